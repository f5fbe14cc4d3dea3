# %% [markdown]
# # A collection on a cluster
#
# A large text is divided into parts. Each part is a job of its own, on any machine, in any order; merged, they give
# the same store as one pass (to 1e-12). Here a random model stands for yours, and four processes for four machines.

# %%
from pathlib import Path

import transformers

from collapse_zoo.stories import stories, train_tokenizer, write_stories

write_stories(Path("train.jsonl"), 400, seed=1)
write_stories(Path("validation.jsonl"), 50, seed=2)
tokenizer = train_tokenizer(stories(400, seed=1), Path("MODEL"))
size = {"hidden_size": 64, "intermediate_size": 256, "num_hidden_layers": 2, "num_attention_heads": 4}
config = transformers.LlamaConfig(vocab_size=len(tokenizer), max_position_embeddings=128, **size)
transformers.LlamaForCausalLM(config).save_pretrained("MODEL")

# %% [markdown]
# With SLURM the job is this script, started once with `sbatch collect.sh`. A job that is killed is submitted again; it
# resumes where it stopped.

# %%
script = """\
#!/bin/bash
#SBATCH --array=1-4
#SBATCH --gpus=1
#SBATCH --time=4:00:00
python -m collapse collect MODEL --text train.jsonl --store parts/$SLURM_ARRAY_TASK_ID --part $SLURM_ARRAY_TASK_ID/4
"""
Path("collect.sh").write_text(script)
print(script)

# %% [markdown]
# Without SLURM, we set the number of the task ourselves:

# %%
import os
import subprocess

jobs = []
for k in range(1, 5):
    task = {**os.environ, "SLURM_ARRAY_TASK_ID": str(k)}
    jobs.append(subprocess.Popen(["bash", "collect.sh"], env=task, stdout=subprocess.PIPE, text=True))
for job in jobs:
    print(job.communicate()[0])

# %% [markdown]
# Each part is a folder. The figure `convergence` shows how the measurements change as parts are added. While they still
# move, as here, more text would change them.

# %%
from IPython.display import Markdown

import collapse

parts = [collapse.Part.load(f"parts/{k}") for k in range(1, 5)]
collapse.draw("convergence", parts)

# %% [markdown]
# The last job, which runs after the others (`sbatch --dependency`), merges the parts. Validation needs the class means
# of the whole text, so it follows the merge.

# %%
store = collapse.merge(parts, store="stores/a")
store = collapse.collect("MODEL", validation_text="validation.jsonl", store="stores/a")
Markdown(str(collapse.measure(store)))

# %% [markdown]
# The same in one pass gives the same numbers:

# %%
whole = collapse.collect("MODEL", text="train.jsonl", validation_text="validation.jsonl", store="stores/whole")
collapse.compare(store, whole, metrics=["nc1.cdnv", "nc2.equinormness", "nc3.self_duality", "val_loss"])
