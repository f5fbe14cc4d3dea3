# %% [markdown]
# # Measure while the Trainer trains
#
# `CollapseCallback` measures a model during the training with transformers' Trainer. This tiny language model
# learns generated stories; for your own training, only `callbacks=` is new.

# %%
from pathlib import Path

import transformers

import collapse
from collapse_zoo.stories import stories, train_tokenizer

tokenizer = train_tokenizer(stories(800, seed=1), Path("tokenizer"))
size = {"hidden_size": 64, "intermediate_size": 256, "num_hidden_layers": 2, "num_attention_heads": 4}
transformers.set_seed(0)
model = transformers.LlamaForCausalLM(transformers.LlamaConfig(vocab_size=len(tokenizer), **size))


def chunks(number, seed):
    tokens = tokenizer("".join(stories(number, seed)), verbose=False).input_ids
    return [{"input_ids": tokens[k : k + 128], "labels": tokens[k : k + 128]} for k in range(0, len(tokens) - 127, 128)]


train, validation = chunks(800, seed=1), chunks(100, seed=2)
arguments = transformers.TrainingArguments(
    "my-run",
    max_steps=200,
    per_device_train_batch_size=16,
    learning_rate=5e-3,
    report_to="none",
    disable_tqdm=True,
    use_cpu=True,
)
names = ["nc1.cdnv_ratio_debiased", "nc2.interference_std", "nc3.self_duality", "nc4.agreement", "val_loss"]
callback = collapse.CollapseCallback(every=40, validation=validation, metrics=names)
trainer = transformers.Trainer(model, arguments, train_dataset=train, callbacks=[callback])
output = trainer.train()

# %% [markdown]
# The numbers went to the Trainer's loggers (W&B, TensorBoard, …), and to a table with a row per step:

# %%
results = collapse.Results.read("my-run/results.parquet")
results.frame().set_index("step")[names].round(4)

# %%
collapse.draw("training", results)

# %% [markdown]
# The same on the command line:
#
#     collapse figures my-run/results.parquet --out figures --figure training
#     collapse report my-run/results.parquet
