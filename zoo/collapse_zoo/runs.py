"""A run directory: the trained model, its record, its loss curve, its checkpoints and its measurements.

config.json model.safetensors tokenizer.json …   the trained model, once training has ended
training.json                                     recipe, text, versions, arguments, state, the complete checkpoints
curve.jsonl                                       the loss of every step
checkpoints/checkpoint-<step>/                    a model after each epoch; the newest with its optimizer's state
stores/epoch-<n>/   results.csv results.json      collected statistics and measurements, if requested

The Trainer writes the checkpoints. One that is not in ``training.json`` is incomplete. What is true of this machine
alone, such as where the texts are, is in the record's ``here``, which is never published.
"""

import json
import os
import shutil
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from collapse.core.reading import read_json
from collapse.errors import CollapseError, UsageError, first_line
from collapse.inputs.collection_spec import CollectionSpec
from collapse.inputs.text_pair import find_texts
from collapse.measurement.results import Results, Row
from collapse.stores.files import canonical
from collapse.stores.writing import ANOTHER_OUTPUT, replacing, write_atomic
from collapse_zoo.recipes import Recipe

RECORD, CURVE = "training.json", "curve.jsonl"
CHECKPOINTS, STORES = "checkpoints", "stores"

_STATE_FILES = ("optimizer.pt", "scheduler.pt", "scaler.pt", "rng_state*.pth")


@dataclass(frozen=True)
class Checkpoint:
    """A complete checkpoint.

    Attributes:
        path: Its folder, which transformers can load.
        step: Optimizer steps taken.
        k: It is the last checkpoint of epoch k + 1; None if another one of the same epoch follows or may follow.
        validation: Loss, accuracy and perplexity if there is a validation text; None for an infinite value.
        ends_epoch: Whether the epoch was complete; the last step of ``max_steps`` may be inside an epoch.
    """

    path: Path
    step: int
    k: int | None
    validation: dict[str, float | None] = field(default_factory=dict)
    ends_epoch: bool = True

    @property
    def model_files(self) -> list[str]:
        """The names of its files of the model and tokenizer; config.json is the last."""
        names = [file.name for file in sorted(self.path.iterdir()) if file not in self._state_files()]
        names.remove("trainer_state.json")
        return sorted(names, key=lambda name: name == "config.json")

    @property
    def is_resumable(self) -> bool:
        """Whether it has the optimizer's state."""
        return (self.path / "optimizer.pt").is_file()

    def drop_state(self) -> None:
        """Delete the files that are needed only to resume from it."""
        for file in self._state_files():
            file.unlink()

    def settle(self) -> None:
        """Flush a new checkpoint to disk, and delete its pickled arguments, which the record has too."""
        (self.path / "training_args.bin").unlink(missing_ok=True)
        for file in self.path.iterdir():
            with file.open("rb+") as handle:
                os.fsync(handle.fileno())

    def _state_files(self) -> list[Path]:
        return [file for pattern in _STATE_FILES for file in self.path.glob(pattern)]


@dataclass(frozen=True)
class Run:
    """A run directory, which may not exist yet."""

    path: Path

    @property
    def record(self) -> dict[str, Any]:
        """The content of ``training.json``; empty if there is no run.

        Raises:
            CollapseError: It cannot be read.
        """
        file = self.path / RECORD
        try:
            return dict(read_json(file)) if file.exists() else {}
        except (OSError, ValueError, TypeError) as error:
            raise CollapseError(
                f"{file} cannot be read: {first_line(error)}; restore it, or move {self.path} away"
            ) from error

    @property
    def name(self) -> str:
        """The run's name, such as TinyStories-12x1024_10L."""
        return str(self.record["name"])

    @property
    def recipe(self) -> Recipe:
        """The recipe of the record."""
        return Recipe.from_dict(self.record["recipe"])

    @property
    def finished(self) -> bool:
        """Whether training has ended and the model has been written."""
        return self.record.get("state") == "finished"

    def update(self, **changes: Any) -> None:
        """Write the record with changed values."""
        text = json.dumps(self.record | changes, indent=1, ensure_ascii=False) + "\n"
        write_atomic(self.path / RECORD, text.encode(), other=ANOTHER_OUTPUT)

    def check_same(self, recipe: Recipe, text: dict[str, Any]) -> None:
        """Raise UsageError if the directory holds anything but this recipe's run on this text."""
        record = self.record
        if not record:
            if self.path.exists() and (self.path.is_file() or any(self.path.glob("[!.]*"))):
                raise UsageError(f"{self.path} is not empty and holds no run (no {RECORD}): choose another --output")
            return
        if record["state"] == "waiting":  # in a sweep, where nothing has been trained yet
            return
        now, there = recipe.as_dict() | text, record["recipe"] | record["text"]
        differ = [f"{key} {_brief(there.get(key))} and {_brief(now[key])}" for key in now if there.get(key) != now[key]]
        if differ:
            raise UsageError(
                f"{self.path} holds a run of other settings: {'; '.join(differ)} (stored and requested): "
                "choose another --output, or give the same options"
            )

    def check_model(self) -> None:
        """Raise CollapseError if a finished run has lost its model."""
        for name in ("config.json", "model.safetensors"):
            if not (self.path / name).is_file():
                raise CollapseError(
                    f"{self.path / name} is missing: restore it, for example from {self.path / CHECKPOINTS}, "
                    "or train again into another folder"
                )

    def texts(self) -> dict[str, Any]:
        """Return where the texts are on this machine: options of :func:`collapse.collect`.

        Raises:
            CollapseError: A text is not what it was.
        """
        record = self.record
        options = dict(record["here"]["texts"])
        found = find_texts(CollectionSpec(**options), lambda: "")
        now = {"corpus": found.training, "validation": found.validation}
        for which, corpus in now.items():
            recorded = record["text"][which]  # None where the data set has no validation split
            if recorded and (corpus is None or corpus.identity() != recorded):
                raise CollapseError(
                    f"the {which} text of {self.path} has changed since training: "
                    "give the texts with --text and --validation-text"
                )
        return options

    @property
    def checkpoints(self) -> list[Checkpoint]:
        """The complete checkpoints, in order; the folder of one may have been deleted to save space."""
        folder, entries = self.path / CHECKPOINTS, self.record.get("checkpoints", [])
        return [Checkpoint(folder / f"checkpoint-{each['step']}", **each) for each in entries]

    @property
    def epochs(self) -> list[Checkpoint]:
        """The last checkpoint of each epoch."""
        return [each for each in self.checkpoints if each.k is not None]

    @property
    def newest(self) -> Checkpoint | None:
        """The newest complete checkpoint, from which training resumes."""
        return self.checkpoints[-1] if self.checkpoints else None

    def checkpoint(self, k: int) -> Checkpoint:
        """Return the last checkpoint of epoch k + 1.

        Raises:
            UsageError: There is no such checkpoint.
        """
        there = {each.k: each for each in self.epochs if each.path.is_dir()}
        if k not in there:
            has = ", ".join(f"@{each}" for each in there) or "none yet"
            raise UsageError(f"{self.path} has no checkpoint @{k}; there are: {has}")
        return there[k]

    def keep(self, new: Checkpoint) -> None:
        """Record a checkpoint as complete, and delete what was needed only to resume from older ones."""
        new.settle()
        older = self.checkpoints
        kept = [*(each for each in older if each.k is not None), new]
        self.update(checkpoints=[{k: v for k, v in asdict(each).items() if k != "path"} for each in kept])
        for each in older:
            if each.k is None:
                shutil.rmtree(each.path)
            else:
                each.drop_state()

    def resume(self) -> Checkpoint | None:
        """Return the checkpoint to resume from, and delete what a kill left after it.

        Raises:
            CollapseError: Its files are gone.
        """
        complete, last = self.checkpoints, self.newest
        if last is not None and not last.is_resumable:
            raise CollapseError(
                f"{self.path} cannot be resumed: {last.path / 'optimizer.pt'} is missing; restore it, or delete "
                f"{self.path} to train from the beginning"
            )
        for folder in (self.path / CHECKPOINTS).glob("checkpoint-*"):
            if folder not in [each.path for each in complete]:
                shutil.rmtree(folder)
        kept = [line for line in self.curve() if last is not None and line["step"] <= last.step]
        write_atomic(self.path / CURVE, b"".join(canonical(line) + b"\n" for line in kept), other=ANOTHER_OUTPUT)
        return last

    def finish(self) -> None:
        """Copy the last checkpoint's model to the run directory, config.json last, and update the record."""
        last = self.checkpoints[-1]
        for name in last.model_files:
            with replacing(self.path / name) as partial:
                shutil.copyfile(last.path / name, partial)
        self.update(state="finished", problem=None)
        last.drop_state()

    def curve(self) -> list[dict[str, Any]]:
        """Return the lines of the curve: step, epoch and loss, or validation_loss after an epoch.

        A kill may have truncated the last line, which is left out.
        """
        file = self.path / CURVE
        whole = file.read_text(encoding="utf-8").split("\n")[:-1] if file.exists() else []
        return [json.loads(line) for line in whole]

    def store(self, k: int) -> Path:
        """Return the folder of the store of checkpoint @k."""
        return self.path / STORES / f"epoch-{k + 1}"

    def results(self) -> list[Row]:
        """Return the rows measured so far, one per checkpoint."""
        file = self.path / "results.json"
        return Results.read(file).rows if file.exists() else []

    def measured(self) -> set[int]:
        """Return the k of the checkpoints that have a row."""
        return {_k_of(row) for row in self.results()}

    def add(self, row: Row, k: int) -> Row:
        """Add a checkpoint's row to ``results.json`` and ``results.csv`` under the checkpoint's name."""
        named = replace(row, model=f"{self.name}@{k}")
        write_rows(self.path, sorted([*self.results(), named], key=_k_of))
        return named


def runs_in(folder: str | Path) -> list[Run]:
    """Return the run directories in a folder, by name."""
    return [Run(file.parent) for file in sorted(Path(folder).glob(f"*/{RECORD}"))]


def write_rows(folder: Path, rows: Iterable[Row]) -> None:
    """Write rows to ``results.csv`` and ``results.json``."""
    table = Results(rows)
    table.write(folder / "results.csv")
    table.write(folder / "results.json")  # last: a checkpoint with a row in it is not measured again


def _k_of(row: Row) -> int:
    return int(row.model.rpartition("@")[-1])


def _brief(value: Any) -> str:
    if isinstance(value, dict) and value.get("sha256"):
        return f"sha256 {value['sha256'][:12]}…"
    text = str(value)
    return text if len(text) <= 60 else f"{text[:60]}…"
