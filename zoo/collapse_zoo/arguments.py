"""The Hugging Face Trainer's arguments for a recipe: the Trainer's defaults, except for those given here."""

import os
from collections.abc import Sequence
from typing import Any

import torch
import transformers

from collapse.core.extras import missing_package
from collapse.core.settings import quiet
from collapse.errors import CollapseError, UsageError, counted, first_line
from collapse_zoo.recipes import Recipe
from collapse_zoo.runs import CHECKPOINTS, Run

_DAY = 24 * 3600

_FREE = ("lr_scheduler_type", "dataloader_pin_memory")
"""Arguments set here that ``--trainer-arg`` may override. Others are fields of the recipe, or runs depend on them."""

_RELIED_ON = (
    "per_device_train_batch_size",
    "per_device_eval_batch_size",
    "gradient_accumulation_steps",
    "save_total_limit",
    "save_only_model",
)
"""Arguments that must keep the Trainer's default, because runs depend on them."""


def arguments_of(
    recipe: Recipe,
    run: Run,
    device: str,
    compile_model: bool,
    save_every: int | None,
    report_to: Sequence[str],
) -> transformers.TrainingArguments:
    """Return the Trainer's arguments to train a recipe into a run directory.

    Raises:
        UsageError: The device is not available, the Trainer rejects a value, or the batch is not divisible by the
            number of processes.
    """
    if device == "cuda" and not torch.cuda.is_available():
        raise UsageError("no device 'cuda' here: use --device cpu or auto")
    cpu = device == "cpu" or (device == "auto" and not torch.cuda.is_available())
    values = _values(recipe, run, cpu, compile_model, save_every, report_to)
    fixed = sorted(recipe.trainer.keys() & ({*values, *_RELIED_ON} - {*_FREE}))
    if fixed:
        raise UsageError(f"--trainer-arg cannot set {', '.join(fixed)}: another option sets it, or a run relies on it")
    with quiet("transformers", "accelerate"):
        try:
            arguments = transformers.TrainingArguments(**values | dict(recipe.trainer))
        except (TypeError, ValueError, ImportError) as error:
            if missing := missing_package(error):
                raise CollapseError(missing) from error
            raise UsageError(f"the Trainer does not take these arguments: {first_line(error)}") from error
        processes = arguments.world_size
        arguments._n_gpu = min(arguments.n_gpu, 1)  # DataParallel would multiply the batch; torchrun uses several GPUs
    if recipe.batch_size % processes:
        raise UsageError(
            f"a batch of {counted(recipe.batch_size, 'chunk')} cannot be divided among {processes} processes: "
            "use another number of them, or another --batch-size (it is global)"
        )
    arguments.per_device_train_batch_size = arguments.per_device_eval_batch_size = recipe.batch_size // processes
    return arguments


def _values(
    recipe: Recipe, run: Run, cpu: bool, compile_model: bool, save_every: int | None, report_to: Sequence[str]
) -> dict[str, Any]:
    """Return the Trainer's arguments that follow from a recipe and the options."""
    return {
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
        "ddp_timeout": _DAY,  # other processes wait while one packs or measures
        "dataloader_pin_memory": not cpu,
        "torch_compile": compile_model,
    }
