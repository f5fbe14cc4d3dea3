"""The Hugging Face Trainer's arguments for a recipe: the Trainer's defaults, except for arguments set here."""

import os
from typing import Any

import torch
import transformers

from collapse.core.settings import quiet
from collapse.errors import UsageError, counted, first_line
from collapse_zoo.recipes import Recipe
from collapse_zoo.runs import CHECKPOINTS, Run

_FREE = ("lr_scheduler_type", "dataloader_pin_memory", "report_to")
"""Arguments set here that ``--trainer-arg`` may override. Runs depend on all other arguments that are set here."""

_SAME = "learning_rate weight_decay adam_beta1 adam_beta2 adam_epsilon max_grad_norm seed data_seed".split()
"""Fields of a recipe with the same name in the Trainer."""

_RELIED_ON = ("save_total_limit", "save_only_model", "logging_steps")
"""Arguments that must keep the Trainer's default, because runs depend on them."""


def arguments_of(
    recipe: Recipe, run: Run, device: str, save_every: int | None, micro_batch: int | None
) -> transformers.TrainingArguments:
    """Return the Trainer's arguments to train a recipe into a run directory.

    Raises:
        UsageError: The device is not available, the Trainer rejects a value, or the batch is not divisible by the
            number of processes and micro-batches.
    """
    if device == "cuda" and not torch.cuda.is_available():
        raise UsageError("device 'cuda' is not available: use --device cpu or auto")
    cpu = device == "cpu" or not torch.cuda.is_available()
    processes = int(os.environ.get("WORLD_SIZE", "1"))  # set by torchrun
    if recipe.batch_size % processes:
        raise UsageError(
            f"a batch of {counted(recipe.batch_size, 'chunk')} cannot be divided among {processes} processes: "
            "use another number of processes, or another --batch-size (of all processes together)"
        )
    share = recipe.batch_size // processes
    size = micro_batch or share
    if share % size:
        chunks = f"the {counted(share, 'chunk')} that each process has of a batch"
        raise UsageError(f"--micro-batch {size} does not divide {chunks}: give a divisor of {share}")
    values: dict[str, Any] = {
        **{name: getattr(recipe, name) for name in _SAME},
        "output_dir": str(run.path / CHECKPOINTS),
        "num_train_epochs": recipe.epochs,
        "max_steps": recipe.max_steps or -1,
        "per_device_train_batch_size": size,
        "per_device_eval_batch_size": size,
        "gradient_accumulation_steps": share // size,
        "lr_scheduler_type": "linear",
        "bf16": recipe.precision == "bf16",
        "save_strategy": "steps" if save_every else "epoch",
        "save_steps": save_every or 500,
        "eval_strategy": "epoch",
        "report_to": "none",
        "run_name": run.path.name,
        "logging_nan_inf_filter": False,
        "disable_tqdm": True,
        "remove_unused_columns": False,
        "use_cpu": cpu,
        "ddp_backend": "gloo" if cpu and processes > 1 else None,
        "ddp_find_unused_parameters": False,
        "ddp_broadcast_buffers": False,
        "ddp_timeout": 24 * 3600,  # other processes wait while one packs the text
        "dataloader_pin_memory": not cpu,
    }
    reserved = {*values, *_RELIED_ON} - {*_FREE}
    if fixed := sorted(recipe.trainer.keys() & reserved):
        raise UsageError(f"--trainer-arg cannot set {', '.join(fixed)}: use another option, or keep the default")
    with quiet("transformers", "accelerate"):
        try:
            arguments = transformers.TrainingArguments(**values | dict(recipe.trainer))
        except (TypeError, ValueError) as error:
            raise UsageError(
                f"the Trainer rejects its arguments: {first_line(error)}. Correct --trainer-arg"
            ) from error
        arguments._n_gpu = min(arguments.n_gpu, 1)  # DataParallel would multiply the batch; torchrun uses several GPUs
    return arguments
