"""The Hugging Face Trainer's arguments for a recipe: its defaults but for what is said here."""

import os
from collections.abc import Sequence
from typing import Any

import torch
import transformers

from collapse.errors import UsageError, first_line
from collapse_zoo.recipes import Recipe
from collapse_zoo.runs import CHECKPOINTS, Run
from collapse_zoo.trainer import quiet

_DAY = 24 * 3600

_FREE = (
    "lr_scheduler_type",
    "run_name",
    "dataloader_pin_memory",
    "ddp_find_unused_parameters",
    "ddp_broadcast_buffers",
)
"""What is said here and may be said otherwise; the rest a recipe says, or a run relies on."""

_RELIED_ON = (
    "per_device_train_batch_size",
    "per_device_eval_batch_size",
    "gradient_accumulation_steps",
    "auto_find_batch_size",
    "fp16",
    "save_total_limit",
    "save_only_model",
    "load_best_model_at_end",
)
"""What is left at the Trainer's default and must stay there."""


def arguments_of(
    recipe: Recipe,
    run: Run,
    device: str,
    compile_model: bool,
    save_every: int | None,
    report_to: Sequence[str],
) -> transformers.TrainingArguments:
    """The arguments that train a recipe into a run.

    Raises:
        UsageError: The device is not there, the Trainer refuses a value, or the processes do not divide the batch.
    """
    if device == "cuda" and not torch.cuda.is_available():
        raise UsageError("no device 'cuda' here: use --device cpu or auto")
    cpu = device == "cpu" or (device == "auto" and not torch.cuda.is_available())
    with quiet():
        values: dict[str, Any] = {
            "output_dir": str(run.path / CHECKPOINTS),
            "num_train_epochs": recipe.epochs,
            "max_steps": recipe.max_steps or -1,
            "learning_rate": recipe.learning_rate,
            "weight_decay": recipe.weight_decay,
            "adam_beta1": recipe.adam_beta1,
            "adam_beta2": recipe.adam_beta2,
            "adam_epsilon": recipe.adam_epsilon,
            "max_grad_norm": recipe.max_grad_norm,
            "lr_scheduler_type": "linear",
            "bf16": recipe.precision == "bf16",
            "seed": recipe.seed,
            "data_seed": recipe.data_seed,
            "save_strategy": "steps" if save_every else "epoch",
            "save_steps": save_every or 500,
            "eval_strategy": "epoch",
            "logging_strategy": "steps",
            "logging_steps": 1,
            "report_to": list(report_to) or "none",
            "run_name": run.path.name,
            "logging_nan_inf_filter": False,
            "disable_tqdm": True,
            "remove_unused_columns": False,
            "use_cpu": cpu,
            "ddp_backend": "gloo" if cpu and int(os.environ.get("WORLD_SIZE", "1")) > 1 else None,
            "ddp_find_unused_parameters": False,
            "ddp_broadcast_buffers": False,
            "ddp_timeout": _DAY,  # the others wait while one packs or measures
            "dataloader_pin_memory": not cpu,
            "torch_compile": compile_model,
        }
        fixed = recipe.trainer.keys() & ({*values, *_RELIED_ON} - {*_FREE})
        if fixed:
            raise UsageError(
                f"--trainer-arg {', '.join(sorted(fixed))}: not here. What a recipe says (--learning-rate, …; "
                "--batch-size, which is global) has an option of its own, and a run relies on the rest"
            )
        try:
            arguments = transformers.TrainingArguments(**values | dict(recipe.trainer))
        except (TypeError, ValueError, ImportError) as error:
            raise UsageError(f"the Trainer does not take these arguments: {first_line(error)}") from error
        processes = arguments.world_size
        arguments._n_gpu = min(arguments.n_gpu, 1)  # several are for torchrun: DataParallel would multiply batches
    if recipe.batch_size % processes:
        fitting = ", ".join(str(n) for n in range(1, recipe.batch_size + 1) if recipe.batch_size % n == 0)
        raise UsageError(
            f"a batch of {recipe.batch_size} chunks cannot be divided among {processes} processes: "
            f"use {fitting} of them, or another --batch-size (it is global)"
        )
    arguments.per_device_train_batch_size = arguments.per_device_eval_batch_size = recipe.batch_size // processes
    return arguments
