# %% [markdown]
# # Figure 1 and Table 1 of the paper
#
# *Linguistic Collapse* (Wu & Papyan, NeurIPS 2024) measured 230 language models trained on TinyStories. The authors
# published their measurements; `collapse` brings them under the name `paper`. Nothing is trained or downloaded here.

# %%
import collapse

paper = collapse.Results.read("paper")
paper

# %% [markdown]
# ## Figure 1: more collapse goes with a lower loss
#
# Each point is a model. As in the paper, R² of NC1 is that of log CDNV, and the means of GNC2 are not centred.

# %%
drawing = collapse.draw("loss", "paper")
print(drawing.caption)
drawing

# %% [markdown]
# Bigger models have a lower loss *and* are more collapsed, so size explains much of the figure. That is why the paper
# also trained one model 21 times, with the text in 21 different orders.
#
# ## Table 1: the permutation test of 21 seeds
#
# If collapse and loss were unrelated, shuffling the losses among the models would change nothing. p is the share of
# shuffles whose correlation is at least as strong as the real one.

# %%
table = collapse.analyze("permutation", "paper", columns="paper", where="model=02x0768_01d*")
table

# %% [markdown]
# Beside the R² that the paper prints:

# %%
printed = {
    "nc1.cdnv": 0.192011,
    "nc2.equinormness": 0.026174,
    "nc2.equiangularity": 0.218574,
    "gnc2.uncentred_uniformity": 0.487935,
    "nc3.self_duality": 0.322210,
    "unc3.uniform_duality": 0.000036,
    "nc4.agreement": 0.490278,
}
frame = table.frame().set_index("column")[["R2", "p", "max_t_p"]]
frame.insert(0, "R2 in the paper", printed)
frame.round(6)

# %% [markdown]
# `max_t_p` corrects p for testing seven properties. GNC2, self-duality (NC3) and agreement (NC4) go with the loss
# beyond chance and beyond size; equinormness and uniform duality do not.
