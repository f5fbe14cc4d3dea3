"""The Hugging Face Trainer: its arguments, a seeded order of the text, a checkpoint after each epoch, and progress."""

import os
import time
from collections.abc import Container, Iterator
from typing import Any

import numpy as np
import torch
import transformers
from torch import Tensor
from torch.utils.data import Dataset, Sampler

from collapse.core.progress import Report
from collapse.core.settings import quiet
from collapse.errors import CollapseError, UsageError, counted, first_line
from collapse.inputs.chunk_files import Chunks
from collapse_zoo.loss import IGNORED
from collapse_zoo.recipes import Recipe
from collapse_zoo.runs import CHECKPOINTS, Run

MOST_LOGGED = 2_000
"""A run of N steps logs the mean loss of every max(1, N // MOST_LOGGED) steps."""


_FREE = ("lr_scheduler_type", "dataloader_pin_memory", "report_to")
"""Arguments of the Trainer that this module sets, but that ``--trainer-arg`` may override.

Runs depend on all other arguments that this module sets.
"""

_SAME = "learning_rate weight_decay adam_beta1 adam_beta2 adam_epsilon max_grad_norm seed data_seed".split()
"""Fields of a recipe that are arguments of the Trainer with the same name."""

_RELIED_ON = ("save_total_limit", "save_only_model", "logging_steps")
"""Arguments that must keep the Trainer's default, because runs depend on them."""


class Samples(Dataset[dict[str, Tensor]]):
    """Chunks as a Trainer data set; a negative index returns a padding chunk whose labels are all ignored."""

    def __init__(self, chunks: Chunks) -> None:
        self.chunks = chunks

    def __len__(self) -> int:
        return len(self.chunks)

    def __getitem__(self, index: int) -> dict[str, Tensor]:
        tokens_T = torch.from_numpy(np.asarray(self.chunks.tokens[max(index, 0)], dtype=np.int64))
        return {"input_ids": tokens_T, "labels": torch.full_like(tokens_T, IGNORED) if index < 0 else tokens_T}


class Order(Sampler[int]):
    """The chunks in an order that depends only on the seed and the epoch, followed by padding chunks.

    With several processes, padding chunks give each process an equal share of the last batch. They do not affect the
    loss or the gradient.
    """

    def __init__(self, chunks: int, seed: int, multiple: int = 1) -> None:
        self.chunks, self.seed, self.blanks, self.epoch = chunks, seed, -chunks % multiple, 0

    def set_epoch(self, epoch: int) -> None:
        """Set the epoch; the Trainer's loader calls this before each epoch."""
        self.epoch = epoch

    def __len__(self) -> int:
        return self.chunks + self.blanks

    def __iter__(self) -> Iterator[int]:
        yield from np.random.default_rng([self.seed, self.epoch]).permutation(self.chunks).tolist()
        yield from [-1] * self.blanks


class ZooTrainer(transformers.Trainer):
    """A Trainer that reads the chunks in the zoo's order and computes the zoo's validation loss and accuracy."""

    def __init__(self, data_seed: int, **options: Any) -> None:
        super().__init__(compute_metrics=validation_metrics, **options)
        self.data_seed = data_seed
        # the Trainer prints each log entry to stdout, which is reserved for results
        self.remove_callback(transformers.trainer_callback.PrinterCallback)

    def _get_train_sampler(self, train_dataset: Any = None) -> Order:
        processes = self.args.world_size
        multiple = self.args.per_device_train_batch_size * processes if processes > 1 else 1
        return Order(len(self.train_dataset), self.data_seed, multiple)

    def _save_rng_state(self, output_dir: str) -> None:
        super()._save_rng_state(output_dir)
        self.accelerator.wait_for_everyone()  # then the first process completes the checkpoint


def validation_metrics(evaluated: Any) -> dict[str, float]:
    """Compute the mean loss over tokens and the accuracy, from each chunk's number of tokens, hits and summed loss."""
    tokens, hits, loss = np.asarray(evaluated.predictions, dtype=np.float64).sum(0)
    return {"validation_loss": float(loss / tokens), "accuracy": float(hits / tokens)}


class Watcher(transformers.TrainerCallback):
    """Log each epoch, report progress, and stop if the loss diverges.

    The model is validated and saved after the last epoch, and after the epochs in ``checkpoints``, counted from 0. If
    ``checkpoints`` is None, it is validated and saved after every epoch.
    """

    def __init__(
        self, run: Run, name: str, tokens_a_step: int, checkpoints: Container[int] | None, progress: Report | None
    ) -> None:
        self.run, self.name, self.tokens_a_step, self.progress = run, name, tokens_a_step, progress
        self.checkpoints = checkpoints
        self.began, self.first_step, self.loss = 0.0, 0, float("nan")

    def on_train_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        state.logging_steps = max(1, state.max_steps // MOST_LOGGED)
        self.began, self.first_step = time.perf_counter(), state.global_step

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        if state.epoch == int(state.epoch) or state.global_step == state.max_steps:
            control.should_save = False  # on_epoch_end, which follows, saves
        control.should_log |= control.should_save  # so that a resumed run logs the same means
        if self.progress:
            speed = (state.global_step - self.first_step) * self.tokens_a_step / (time.perf_counter() - self.began)
            note = f"{speed:,.0f} tokens/s" + (f", loss {self.loss:.3f}" if np.isfinite(self.loss) else "")
            self.progress(f"training {self.name}", state.global_step, state.max_steps, note)

    def on_epoch_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        control.should_log = control.should_save = True
        wanted = self.checkpoints is None or round(state.epoch) - 1 in self.checkpoints
        if not wanted and state.global_step < state.max_steps:
            control.should_save = control.should_evaluate = False

    def on_log(self, args: Any, state: Any, control: Any, logs: dict[str, float] | None = None, **_: Any) -> None:
        self.loss = (logs or {}).get("loss", self.loss)
        if logs and "loss" in logs and not np.isfinite(self.loss):
            raise CollapseError(
                f"the loss is {self.loss} at step {state.global_step:,}: training has diverged. Start a new run with a "
                "lower --learning-rate or --max-grad-norm"
            )

    def on_save(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        if state.is_world_process_zero:
            self.run.drop_states(but=state.global_step)


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
