"""The Hugging Face Trainer with a seeded order of the text, complete checkpoints, a loss curve and progress."""

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
import transformers
from torch import Tensor
from torch.utils.data import Dataset, Sampler

from collapse.core.progress import Report
from collapse.errors import CollapseError
from collapse.inputs.packing import Chunks
from collapse.stores.files import canonical
from collapse_zoo.loss import IGNORED
from collapse_zoo.runs import CURVE, Checkpoint, Run


class Samples(Dataset[dict[str, Tensor]]):
    """Chunks as a data set for the Trainer; a negative index gives a blank, in which nothing is predicted."""

    def __init__(self, chunks: Chunks) -> None:
        self.chunks = chunks

    def __len__(self) -> int:
        return len(self.chunks)

    def __getitem__(self, index: int) -> dict[str, Tensor]:
        tokens_T = torch.from_numpy(np.asarray(self.chunks.tokens[max(index, 0)], dtype=np.int64))
        return {"input_ids": tokens_T, "labels": torch.full_like(tokens_T, IGNORED) if index < 0 else tokens_T}


class Order(Sampler[int]):
    """The chunks in an order that depends only on the seed and the epoch, padded with blanks.

    Padding makes the last global batch complete, so that each process gets its share. Blanks do not affect the loss or
    the gradient.
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
    """A Trainer with atomic checkpoints, which records validation and curve in the run."""

    def __init__(self, run: Run, data_seed: int, steps_an_epoch: int, **options: Any) -> None:
        super().__init__(compute_metrics=validation_metrics, **options)
        self.run, self.data_seed, self.steps_an_epoch = run, data_seed, steps_an_epoch
        self.validation: dict[str, float | None] = {}
        # the Trainer prints each log entry to stdout, which is reserved for results
        self.remove_callback(transformers.trainer_callback.PrinterCallback)

    def _get_train_sampler(self, train_dataset: Any = None) -> Order:
        processes = self.args.world_size
        multiple = self.args.per_device_train_batch_size * processes if processes > 1 else 1
        return Order(len(self.train_dataset), self.data_seed, multiple)

    def evaluate(self, *arguments: Any, **options: Any) -> dict[str, float]:
        """Evaluate as the Trainer does; the loss is the mean over tokens."""
        metrics: dict[str, float] = super().evaluate(*arguments, **options)
        names = ("validation_loss", "accuracy", "perplexity")
        values = {name: metrics[f"eval_{name}"] for name in names}
        self.validation = {name: value if np.isfinite(value) else None for name, value in values.items()}
        return metrics

    def _save_checkpoint(self, model: Any, trial: Any) -> None:
        super()._save_checkpoint(model, trial)
        self.accelerator.wait_for_everyone()  # each process writes its own random state
        if self.args.should_save:
            step, each = self.state.global_step, self.steps_an_epoch
            whole = step % each == 0
            k = -(-step // each) - 1 if whole or step == self.state.max_steps else None  # the last step also has a k
            folder = Path(self.args.output_dir) / f"checkpoint-{step}"
            self.run.keep(Checkpoint(folder, step, k, {} if k is None else self.validation, whole))


@np.errstate(over="ignore")
def validation_metrics(evaluated: Any) -> dict[str, float]:
    """Compute mean loss over tokens, accuracy and perplexity from each chunk's tokens, hits and summed loss."""
    tokens, hits, loss = np.asarray(evaluated.predictions, dtype=np.float64).sum(0)
    mean = float(loss / tokens)
    return {"validation_loss": mean, "accuracy": float(hits / tokens), "perplexity": float(np.exp(mean))}


class Watcher(transformers.TrainerCallback):
    """Writes the curve and reports progress, in one of several processes."""

    def __init__(self, run: Run, name: str, tokens_a_step: int, steps_an_epoch: int, progress: Report | None) -> None:
        self.file = (run.path / CURVE).open("ab")
        self.name, self.tokens_a_step, self.steps_an_epoch = name, tokens_a_step, steps_an_epoch
        self.progress = progress
        self.loss, self.seconds, self.steps, self.began = float("nan"), 0.0, 0, 0.0

    @property
    def tokens_per_second(self) -> float:
        """Mean speed over all steps so far, without validation and saving."""
        return self.steps * self.tokens_a_step / self.seconds if self.seconds else 0.0

    def on_step_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        self.began = time.perf_counter()

    def on_log(self, args: Any, state: Any, control: Any, logs: dict[str, float] | None = None, **_: Any) -> None:
        line: dict[str, float] = {"step": state.global_step, "epoch": state.global_step / self.steps_an_epoch}
        logs = logs or {}
        if "loss" in logs:
            self.seconds += time.perf_counter() - self.began
            self.steps += 1
            self.loss = logs["loss"]
            self._write(line | {name: logs[name] for name in ("loss", "learning_rate", "grad_norm") if name in logs})
            if self.progress:
                note = f"{self.tokens_per_second:,.0f} tokens/s, loss {self.loss:.3f}"
                self.progress(f"training {self.name}", state.global_step, state.max_steps, note)
            self._check(state.global_step)
        elif "eval_validation_loss" in logs:
            metrics = {name: logs[f"eval_{name}"] for name in ("validation_loss", "accuracy", "perplexity")}
            self._write(line | metrics)
        state.log_history.clear()  # the curve has it, and every checkpoint would write this growing list

    def _check(self, step: int) -> None:
        if not np.isfinite(self.loss):
            raise CollapseError(
                f"the loss is {self.loss} at step {step:,}: training has diverged. In a new run, lower "
                "--learning-rate or --max-grad-norm"
            )

    def _write(self, line: dict[str, float]) -> None:
        self.file.write(canonical({name: _plain(value) for name, value in line.items()}) + b"\n")
        self.file.flush()

    def close(self) -> None:
        """Close the file of the curve."""
        self.file.close()


class EveryEpoch(transformers.TrainerCallback):
    """Saves a checkpoint at the end of each epoch, after its validation, in addition to others."""

    def __init__(self, steps_an_epoch: int) -> None:
        self.steps_an_epoch = steps_an_epoch

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        if state.global_step % self.steps_an_epoch == 0 or state.global_step == state.max_steps:
            control.should_save = False  # the end of the epoch, which comes next, saves

    def on_epoch_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        control.should_save = True


class AfterCheckpoint(transformers.TrainerCallback):
    """Calls a function after each whole checkpoint, while other processes wait at the next step."""

    def __init__(self, function: Callable[[], object]) -> None:
        self.function = function

    def on_save(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        self.function()


def _plain(value: float) -> float | str:
    """Replace NaN and infinity, which JSON lacks, by text."""
    return value if np.isfinite(value) else str(value)
