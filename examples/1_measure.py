# %% [markdown]
# # Measure a model
#
# We train a tiny language model on generated stories, and measure how far its classes have collapsed. Replace the
# first two cells by the folder of your own model, or its name on the Hugging Face Hub, and by your own texts.
# Nothing is downloaded.

# %%
import json
from pathlib import Path

from collapse_zoo.stories import stories, train_tokenizer

for name, number, seed in (("train", 800, 1), ("validation", 100, 2)):
    lines = [json.dumps({"text": story}) for story in stories(number, seed)]
    Path(f"{name}.jsonl").write_text("\n".join(lines) + "\n")
next(stories(1, seed=1))

# %% [markdown]
# Any causal language model of transformers can be measured. This one has two layers of width 64.

# %%
import torch
import transformers

tokenizer = train_tokenizer(stories(800, seed=1), Path("my-model"))
tokens = torch.tensor(tokenizer("".join(stories(800, seed=1)), verbose=False).input_ids)
torch.manual_seed(0)
size = {"hidden_size": 64, "intermediate_size": 256, "num_hidden_layers": 2, "num_attention_heads": 4}
config = transformers.LlamaConfig(vocab_size=len(tokenizer), max_position_embeddings=128, **size)
model = transformers.LlamaForCausalLM(config)
optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
for _ in range(120):
    batch = tokens[torch.randint(len(tokens) - 128, (16, 1)) + torch.arange(128)]
    loss = model(batch, labels=batch).loss
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
model.save_pretrained("my-model")
print(f"{len(tokens):,} tokens, training loss {loss.item():.2f}")

# %% [markdown]
# `measure` runs the text through the model once. For every next token, which is a class here, it keeps the count, the
# mean and the variance of the embeddings that precede it. They make a small *store*, from which it computes the
# measurements; the next time, it finds the store and does not run the model.

# %%
from IPython.display import Markdown

import collapse

row = collapse.measure("my-model", text="train.jsonl", validation_text="validation.jsonl", store="stores/my-model")
Markdown(str(row))

# %% [markdown]
# At full collapse, NC1, NC2, GNC2 and UNC3 would be 0, and NC3 and NC4 would be 1. The validation loss is in nats per
# token. `row["nc4.agreement"]` is one number, `row.measurements` has all of them, and `row.notes` says why one is
# missing or what to be careful about.
#
# A store also knows its tokens:

# %%
collapse.tokens("stores/my-model", top=8)

# %% [markdown]
# Classes differ. The figure shows three measurements of each class: their histograms, and how they depend on the number
# of samples of the class. The frequent classes have collapsed most. A class of one sample has variance 0, so the
# rarest only look collapsed.

# %%
collapse.draw("class-distributions", "stores/my-model")

# %% [markdown]
# The same on the command line:
#
#     collapse measure my-model --text train.jsonl --validation-text validation.jsonl
