"""A run directory: the trained model, its record, its loss curve, its checkpoints and its measurements.

config.json model.safetensors tokenizer.json …   the trained model, once training has ended
training.json                                     recipe, text, versions, arguments, state, each epoch's validation
curve.jsonl                                       the loss of every step
texts.json                                        where the texts are on this machine; never published
checkpoints/checkpoint-<step>/                    a model after each epoch; the newest with its optimizer's state
stores/epoch-<n>/   results.csv results.json      collected statistics and measurements, if requested
"""

import json
import shutil
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from collapse.errors import CollapseError, UsageError, first_line
from collapse.inputs.collection_spec import CollectionSpec
from collapse.inputs.text_pair import find_texts
from collapse.measurement.results import Results, Row
from collapse.reading import read_json
from collapse.stores.files import canonical
from collapse.stores.writing import ANOTHER_OUTPUT, replacing, write_atomic, write_error
from collapse_zoo.checkpoints import (
    COMPLETE,
    Checkpoint,
    check_files,
    check_sizes,
    complete,
    drop_state,
    is_state,
    read_checkpoint,
)
from collapse_zoo.recipes import Recipe
from collapse_zoo.records import read_curve, read_record, read_results

RECORD = "training.json"
CURVE = "curve.jsonl"
TEXTS = "texts.json"
CHECKPOINTS, STORES = "checkpoints", "stores"


@dataclass(frozen=True)
class Run:
    """A run directory, which may not exist yet."""

    path: Path

    @property
    def record(self) -> dict[str, Any] | None:
        """The content of ``training.json``, or None if there is no run.

        Raises:
            CollapseError: It cannot be read.
        """
        file = self.path / RECORD
        return read_record(file) if file.is_symlink() or file.exists() else None

    @property
    def recipe(self) -> Recipe:
        """The recipe of the record."""
        record = self.record
        if record is None:
            raise CollapseError(f"{self.path} is not a run: it has no {RECORD}")
        return Recipe.from_dict(record["recipe"])

    @property
    def finished(self) -> bool:
        """Whether training has ended and the model has been written."""
        record = self.record
        return record is not None and record["state"] == "finished"

    def update(self, **changes: Any) -> None:
        """Write the record with changed values."""
        record = (self.record or {}) | changes
        _write(self.path / RECORD, (json.dumps(record, indent=1, ensure_ascii=False) + "\n").encode())

    def write_texts(self, options: Mapping[str, Any]) -> None:
        """Write where the texts are: options of :func:`collapse.collect`."""
        _write(self.path / TEXTS, (json.dumps(options, indent=1, ensure_ascii=False) + "\n").encode())

    def texts(self) -> dict[str, Any]:
        """Return where the texts are.

        Raises:
            CollapseError: The file cannot be read, or a text is not what it was.
        """
        try:
            options = dict(read_json(self.path / TEXTS))
            spec = CollectionSpec(**options)
        except (ValueError, TypeError, OSError, RecursionError, UsageError) as error:
            raise CollapseError(
                f"{self.path / TEXTS} cannot be read: {first_line(error)}; name the text with --text"
            ) from error
        found, recorded = find_texts(spec, lambda: ""), (self.record or {}).get("text", {})
        if found.training is None or found.training.identity() != recorded.get("corpus"):
            raise CollapseError(
                f"the text that {self.path} was trained on changed since: name one with --text to measure on it"
            )
        validation = recorded.get("validation")  # None where the data set had no such split
        if validation and (found.validation is None or found.validation.identity() != validation):
            raise CollapseError(
                f"the validation text of {self.path} changed since: name the texts with --text and --validation-text"
            )
        return options

    def checkpoints(self) -> list[Checkpoint]:
        """Return the complete checkpoints, in order."""
        whole, _ = self._checkpoints()
        return whole

    def checkpoint(self, k: int) -> Checkpoint:
        """Return the last checkpoint of epoch k + 1.

        Raises:
            UsageError: There is no such checkpoint.
            CollapseError: It is damaged.
        """
        whole, damaged = self._checkpoints()
        there = {each.k: each for each in whole if each.k is not None}
        if k in there:
            return there[k]
        steps = [epoch["step"] for epoch in (self.record or {}).get("epochs", []) if epoch["k"] == k]
        for error in (damaged[f"checkpoint-{step}"] for step in steps if f"checkpoint-{step}" in damaged):
            raise error
        has = ", ".join(f"@{each}" for each in there) or "none yet"
        raise UsageError(f"{self.path} has no checkpoint @{k}; there are: {has}")

    def _checkpoints(self) -> tuple[list[Checkpoint], dict[str, CollapseError]]:
        whole, damaged = [], {}
        for marker in (self.path / CHECKPOINTS).glob(f"checkpoint-*/{COMPLETE}"):
            try:
                whole.append(read_checkpoint(marker.parent))
            except CollapseError as error:
                damaged[marker.parent.name] = error
        return sorted(whole, key=lambda each: each.step), damaged

    def check_resumable(self) -> None:
        """Verify that the newest checkpoint, if there is one, can be resumed to the same losses.

        Raises:
            CollapseError: It was altered or lacks its optimizer's state, or another checkpoint is damaged.
        """
        whole, damaged = self._checkpoints()
        for error in damaged.values():
            raise error
        if not whole:
            return
        last, remedy = whole[-1], f"restore it, or delete {self.path / CHECKPOINTS} to train from the beginning"
        if not any(is_state(last.path / name) for name in last.files):
            raise CollapseError(
                f"{self.path} cannot be resumed: a later checkpoint than {last.path.name} is gone, and earlier ones do "
                f"not keep the optimizer's state; {remedy}"
            )
        last.check(remedy, remember=False)

    def complete(
        self, folder: Path, step: int, k: int | None, validation: dict[str, float | None], ends_epoch: bool = True
    ) -> None:
        """Mark a checkpoint as complete, and delete files that were needed only to resume from older ones."""
        complete(folder, step, k, validation, ends_epoch)
        for older in self.checkpoints()[:-1]:
            if older.k is None:
                (older.path / COMPLETE).unlink()  # first, so that a half-deleted checkpoint does not count as complete
                shutil.rmtree(older.path)
            else:
                drop_state(older)
        self.update(
            epochs=[
                {"k": each.k, "step": each.step, **each.validation} for each in self.checkpoints() if each.k is not None
            ]
        )

    def drop_unfinished(self) -> None:
        """Delete what a kill left after the last complete checkpoint: incomplete checkpoints and lines of the curve."""
        whole = self.checkpoints()
        for folder in (self.path / CHECKPOINTS).glob("checkpoint-*"):
            if folder not in [each.path for each in whole]:
                shutil.rmtree(folder)
        last = whole[-1] if whole else None
        kept = [line for line in self.curve() if last is not None and line["step"] <= last.step]
        _write(self.path / CURVE, b"".join(canonical(line) + b"\n" for line in kept))
        measured, ks = self.results(), {each.k for each in whole}
        trained = [row for row in measured if int(row.model.rpartition("@")[-1]) in ks]
        if len(trained) < len(measured):  # drop rows of checkpoints that will be trained again
            self._write_results(trained)

    def curve(self) -> list[dict[str, Any]]:
        """Return the lines of the curve: step, epoch and loss, or validation_loss after an epoch."""
        return read_curve(self.path / CURVE)

    def finish(self) -> None:
        """Copy the last checkpoint's model to the run directory, config.json last, and update the record."""
        last = self.checkpoints()[-1]
        last.check(remember=False)
        files = last.model_files
        for name in sorted(files, key=lambda name: name == "config.json"):
            _copy(last.path / name, self.path / name)
        self.update(state="finished", problem=None, model=files)
        drop_state(last)

    def check_model(self, *, quick: bool = False) -> None:
        """Compare the model files of a finished run with what was written.

        Args:
            quick: Compare only their sizes.

        Raises:
            CollapseError: A file is missing or altered.
        """
        files: Mapping[str, Mapping[str, Any]] = (self.record or {}).get("model", {})
        if not files:  # the run is of a version that did not record them
            last = self.checkpoints()[-1:]
            files = last[0].model_files if last else {}
        remedy = f"restore it, for example from {self.path / CHECKPOINTS}, or train again into another folder"
        if not (self.path / "config.json").is_file():
            raise CollapseError(f"{self.path / 'config.json'} is missing; {remedy}")
        if not any((self.path / name).is_file() for name in ("model.safetensors", "model.safetensors.index.json")):
            raise CollapseError(f"{self.path / 'model.safetensors'} is missing; {remedy}")
        if quick:
            check_sizes(self.path, files, remedy)
        else:
            check_files(self.path, files, remedy)

    def check_written(self, ks: Iterable[int]) -> None:
        """Compare a finished run's model, and measured checkpoints that are kept, with what was written.

        Args:
            ks: The k of the checkpoints.

        Raises:
            CollapseError: A file is missing or altered.
        """
        if self.finished:
            self.check_model()
        for k in self.measured().intersection(ks):
            with suppress(UsageError):  # a measured checkpoint may be deleted to save space
                self.checkpoint(k).check()

    @property
    def name(self) -> str:
        """The run's name, such as TinyStories-12x1024_10L."""
        return str((self.record or {})["name"])

    def store(self, k: int) -> Path:
        """Return the folder of the store of checkpoint @k."""
        return self.path / STORES / f"epoch-{k + 1}"

    def results(self, *, whole: bool = False) -> list[Row]:
        """Return the rows measured so far, one per checkpoint, of the stores that are kept; see :func:`read_results`.

        Raises:
            CollapseError: The file is damaged, or holds rows that are not of this run's checkpoints.
        """
        record = self.record
        return read_results(self.path / "results.json", record["name"], self.store, whole=whole) if record else []

    def measured(self) -> set[int]:
        """Return the k of the checkpoints that have a row."""
        return {int(row.model.rpartition("@")[-1]) for row in self.results()}

    def keep(self, row: Row, k: int) -> Row:
        """Add a checkpoint's row to ``results.json`` and ``results.csv`` under the checkpoint's name."""
        named = replace(row, model=f"{self.name}@{k}")
        rows = [each for each in self.results() if each.model != named.model] + [named]
        rows.sort(key=lambda each: int(each.model.rpartition("@")[-1]))
        self._write_results(rows)
        return named

    def _write_results(self, rows: list[Row]) -> None:
        Results(rows).write(self.path / "results.csv")
        Results(rows).write(self.path / "results.json")  # last: a checkpoint with a row in it is not measured again


def _write(file: Path, data: bytes) -> None:
    write_atomic(file, data, other=ANOTHER_OUTPUT)


def _copy(file: Path, to: Path) -> None:
    try:
        with replacing(to) as partial:
            shutil.copyfile(file, partial)
    except OSError as error:
        raise write_error(to, error, file.stat().st_size, other=ANOTHER_OUTPUT) from error
