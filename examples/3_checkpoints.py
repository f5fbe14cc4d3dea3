# %% [markdown]
# # Compare the checkpoints of a training run
#
# We train a tiny GPT-Neo model on generated stories, and measure it after each epoch. The same works for the folders
# `checkpoint-500`, `checkpoint-1000`, … of transformers' Trainer, or for the revisions of a model on the Hub.

# %%
from pathlib import Path

from collapse_zoo.recipes import Recipe
from collapse_zoo.sources import find_source
from collapse_zoo.stories import stories, train_tokenizer, write_stories
from collapse_zoo.training import train

write_stories(Path("train.jsonl"), 800, seed=1)
write_stories(Path("validation.jsonl"), 100, seed=2)
train_tokenizer(stories(800, seed=1), Path("tokenizer"))
source = find_source(text="train.jsonl", validation_text="validation.jsonl", tokenizer="tokenizer")
values = {"heads": 4, "chunk_length": 128, "batch_size": 16, "learning_rate": 2e-3, "precision": "float32"}
recipe = Recipe(depth=2, width=64, vocabulary=len(source.tokenizer), epochs=4, **values)
run = train(recipe, source, "run", device="cpu")
checkpoints = sorted(run.path.glob("checkpoints/*"), key=lambda folder: int(folder.name.split("-")[1]))
[folder.name for folder in checkpoints]

# %% [markdown]
# Each checkpoint gets a store, and each store a row of the table. The step is read from the name of the folder.

# %%
import collapse

texts = {"text": "train.jsonl", "validation_text": "validation.jsonl", "chunk_length": 128}
stores = [collapse.collect(folder, store=f"stores/{folder.name}", **texts) for folder in checkpoints]
results = collapse.Results(collapse.measure(store) for store in stores)
results.write("results.csv")
names = ["nc1.cdnv", "nc2.equinormness", "nc3.self_duality", "unc3.uniform_duality", "nc4.agreement", "val_loss"]
results.frame()[["step", *names]].round(4)

# %%
collapse.draw("training", results)

# %% [markdown]
# Is the last checkpoint really different from the one before? `compare` shows the differences with standard errors:
# those of the validation text are paired, because both checkpoints read the same text.

# %%
collapse.compare(stores[-2], stores[-1], metrics=names)
