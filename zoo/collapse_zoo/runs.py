"""A run directory: the model as anybody loads it, what made it, its curve, its checkpoints and what was measured.

config.json model.safetensors tokenizer.json …   the trained model, once training has ended
training.json                                     recipe, text, versions, arguments, state, each epoch's validation
curve.jsonl                                       the loss of every step
checkpoints/checkpoint-<step>/                    a model after each epoch; the newest with its optimizer's state
stores/epoch-<n>/   results.csv results.json      what was collected and measured, where it was asked for
"""

import json
import os
import shutil
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from collapse.errors import CollapseError, UsageError
from collapse.files import ANOTHER_OUTPUT, canonical, sha256_file, write_atomic, write_error
from collapse.results import Results, Row
from collapse_zoo.recipes import Recipe

RECORD = "training.json"
CURVE = "curve.jsonl"
COMPLETE = "complete.json"
CHECKPOINTS, STORES = "checkpoints", "stores"

_STATE_FILES = ("optimizer.pt", "scheduler.pt", "scaler.pt", "rng_state*.pth")


@dataclass(frozen=True)
class Checkpoint:
    """A whole checkpoint.

    Attributes:
        path: Its folder, which transformers loads.
        step: Optimizer steps taken.
        k: After epoch k + 1; None inside an epoch.
        validation: Loss, accuracy and perplexity, where there is a validation text; None where infinite.
        files: The sha256 of each of its files as it was written.
    """

    path: Path
    step: int
    k: int | None
    validation: dict[str, float | None]
    files: Mapping[str, str]


@dataclass(frozen=True)
class Run:
    """A run directory, which may not be there yet."""

    path: Path

    @property
    def record(self) -> dict[str, Any] | None:
        """What ``training.json`` says, or None where there is no run.

        Raises:
            CollapseError: It cannot be read.
        """
        file = self.path / RECORD
        if not file.is_file():
            return None
        try:
            return dict(json.loads(file.read_text(encoding="utf-8")))
        except (ValueError, OSError) as error:
            raise CollapseError(f"{file} cannot be read: {error}. Move the run away, or restore the file") from error

    @property
    def recipe(self) -> Recipe:
        """The recipe of the record."""
        record = self.record
        if record is None:
            raise CollapseError(f"{self.path} is no run: it has no {RECORD}")
        return Recipe.from_dict(record["recipe"])

    @property
    def finished(self) -> bool:
        """Whether training has ended and the model is there."""
        record = self.record
        return record is not None and record["state"] == "finished"

    def update(self, **changes: Any) -> None:
        """Write the record anew with other values."""
        record = (self.record or {}) | changes
        _write(self.path / RECORD, (json.dumps(record, indent=1, ensure_ascii=False) + "\n").encode())

    def checkpoints(self) -> list[Checkpoint]:
        """The whole ones, in order; what a kill left half-written is not among them."""
        found = [_read(folder) for folder in (self.path / CHECKPOINTS).glob("checkpoint-*")]
        return sorted((each for each in found if each is not None), key=lambda each: each.step)

    def checkpoint(self, k: int) -> Checkpoint:
        """The one after epoch k + 1.

        Raises:
            UsageError: It is not there.
        """
        there = [each for each in self.checkpoints() if each.k is not None]
        for each in there:
            if each.k == k:
                return each
        has = ", ".join(f"@{each.k}" for each in there) or "none yet"
        raise UsageError(f"{self.path} has no checkpoint @{k}; there are: {has}")

    def check_resumable(self) -> None:
        """See that the newest checkpoint, if there is one, can be gone on from to the same losses.

        Raises:
            CollapseError: It is not as it was written or without its optimizer's state, or another one is damaged.
        """
        for marker in (self.path / CHECKPOINTS).glob(f"checkpoint-*/{COMPLETE}"):
            if _read(marker.parent) is None:
                raise CollapseError(f"{marker.parent} is damaged: restore it, or delete it")
        whole = self.checkpoints()
        if not whole:
            return
        last, mend = whole[-1], f"restore it, or delete {self.path / CHECKPOINTS} to train from the beginning"
        if not any(_is_state(last.path / name) for name in last.files):
            raise CollapseError(
                f"{self.path} cannot go on: a later checkpoint than {last.path.name} is gone, and earlier ones do not "
                f"keep the optimizer's state; {mend}"
            )
        for name, digest in last.files.items():
            if sha256_file(last.path / name, remember=False) != digest:
                raise CollapseError(f"{last.path / name} is not as it was written; {mend}")

    def complete(self, folder: Path, step: int, k: int | None, validation: dict[str, float | None]) -> None:
        """Mark a checkpoint as whole, and drop what only older ones needed."""
        (folder / "training_args.bin").unlink(missing_ok=True)  # a pickle; training.json says the same
        files = {file.name: _kept(file) for file in sorted(folder.iterdir()) if file.is_file()}
        about = {"step": step, "k": k, "validation": validation, "files": files}
        _write(folder / COMPLETE, canonical(about))
        for older in self.checkpoints()[:-1]:
            if older.k is None:
                (older.path / COMPLETE).unlink()  # first: half of it is none
                shutil.rmtree(older.path)
            else:
                _drop_state(older)
        self.update(
            epochs=[
                {"k": each.k, "step": each.step, **each.validation} for each in self.checkpoints() if each.k is not None
            ]
        )

    def drop_unfinished(self) -> None:
        """Drop what a kill left after the last whole checkpoint: half-written ones, and the curve's lines."""
        whole = self.checkpoints()
        for folder in (self.path / CHECKPOINTS).glob("checkpoint-*"):
            if folder not in [each.path for each in whole]:
                shutil.rmtree(folder)
        last = whole[-1] if whole else None
        kept = [line for line in self.curve() if last is not None and line["step"] <= last.step]
        _write(self.path / CURVE, b"".join(canonical(line) + b"\n" for line in kept))

    def curve(self) -> Iterator[dict[str, float]]:
        """The lines of the curve: step, epoch and loss, or validation_loss after an epoch."""
        file = self.path / CURVE
        if not file.is_file():
            return
        for line in file.read_text().splitlines():
            try:
                yield json.loads(line)
            except ValueError:  # the last line, cut off by a kill
                return

    def finish(self) -> None:
        """Put the last checkpoint's model where everybody looks for it, config.json last, and say so in the record."""
        last = self.checkpoints()[-1]
        files = [
            file
            for file in last.path.iterdir()
            if file.is_file() and file.name not in (COMPLETE, "trainer_state.json") and not _is_state(file)
        ]
        for file in sorted(files, key=lambda file: file.name == "config.json"):
            _copy(file, self.path / file.name)
        self.update(state="finished", problem=None)
        _drop_state(last)

    @property
    def name(self) -> str:
        """The run's name, such as TinyStories-12x1024_10L."""
        return str((self.record or {})["name"])

    def store(self, k: int) -> Path:
        """Where the store of checkpoint @k lies."""
        return self.path / STORES / f"epoch-{k + 1}"

    def results(self) -> list[Row]:
        """The rows measured so far, a checkpoint each."""
        file = self.path / "results.json"
        return Results.read(file).rows if file.is_file() else []

    def keep(self, row: Row, k: int) -> Row:
        """Add a checkpoint's row to ``results.json`` and ``results.csv`` under the checkpoint's name."""
        named = replace(row, model=f"{self.name}@{k}")
        rows = [each for each in self.results() if each.model != named.model] + [named]
        rows.sort(key=lambda each: int(each.model.rsplit("@")[-1]))
        Results(rows).write(self.path / "results.json")
        Results(rows).write(self.path / "results.csv")
        return named


def _write(file: Path, data: bytes) -> None:
    write_atomic(file, data, other=ANOTHER_OUTPUT)


def _copy(file: Path, to: Path) -> None:
    partial = to.with_name(f".{to.name}.partial")
    try:
        shutil.copyfile(file, partial)
        partial.replace(to)
    except OSError as error:
        partial.unlink(missing_ok=True)
        raise write_error(to, error, file.stat().st_size, other=ANOTHER_OUTPUT) from error


def _read(folder: Path) -> Checkpoint | None:
    try:
        about = json.loads((folder / COMPLETE).read_text())
        whole = all((folder / name).stat().st_size == entry["size"] for name, entry in about["files"].items())
        files = {name: entry["sha256"] for name, entry in about["files"].items()}
        return Checkpoint(folder, about["step"], about["k"], about["validation"], files) if whole else None
    except FileNotFoundError:
        return None
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _kept(file: Path) -> dict[str, Any]:
    """A file's size and hash, once it is on the disk: the Trainer leaves it to the system, which a power cut ends."""
    with file.open("rb+") as handle:
        os.fsync(handle.fileno())
    return {"size": file.stat().st_size, "sha256": sha256_file(file, remember=False)}


def _is_state(file: Path) -> bool:
    return any(file.match(pattern) for pattern in _STATE_FILES)


def _drop_state(checkpoint: Checkpoint) -> None:
    """Free what only resuming from this checkpoint would need."""
    state = [file for file in checkpoint.path.iterdir() if _is_state(file)]
    if not state:
        return
    about = json.loads((checkpoint.path / COMPLETE).read_text())
    for file in state:
        about["files"].pop(file.name, None)
    _write(checkpoint.path / COMPLETE, canonical(about))
    for file in state:
        file.unlink()
