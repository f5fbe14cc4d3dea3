"""A run directory: the trained model, its record, the Trainer's checkpoints and the measurements.

config.json model.safetensors tokenizer.json …   the trained model, once training has ended
training.json                                     recipe, texts, versions, arguments, state, problem
trainer_state.json                                the Trainer's final state, with the log of losses
checkpoints/checkpoint-<step>/                    the model after each epoch; the newest also has optimizer state
stores/epoch-<n>/   results.csv results.json      collected statistics and measurements, if requested; n counts from 1

The Trainer writes ``trainer_state.json`` last into a checkpoint, so a checkpoint is incomplete if this
file is missing or cannot be read.
Facts about this machine, such as the paths of texts, are in the record's ``here``, which is never published.
"""

import json
import math
import shutil
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from collapse.core.reading import read_json
from collapse.errors import CollapseError, UsageError
from collapse.inputs.collection_spec import CollectionSpec
from collapse.inputs.text_pair import find_texts
from collapse.measurement.results import Results, Row
from collapse.stores.provenance import versions
from collapse.stores.writing import write_atomic
from collapse_zoo.recipes import Recipe

if TYPE_CHECKING:
    from collapse_zoo.sources import Source

RECORD, STATE = "training.json", "trainer_state.json"
CHECKPOINTS, STORES = "checkpoints", "stores"
RESUMING = ("optimizer.pt", "scheduler.pt", "scaler.pt", "rng_state*.pth", "training_args.bin")
"""Files of a checkpoint that only resuming needs; they are pickled, and never published."""


@dataclass(frozen=True)
class Checkpoint:
    """The checkpoint at the end of an epoch, or at the last step.

    Attributes:
        path: Path of the folder, which transformers can load. The folder does not exist if the checkpoint was not
            saved, or was deleted to save space.
        step: Number of optimizer steps.
        k: The number of the epoch, counted from 0: @9 is the checkpoint of epoch 10.
        validation: Loss and accuracy on the validation text, if there is one.
    """

    path: Path
    step: int
    k: int
    validation: dict[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class Run:
    """A run directory, which may not exist yet."""

    path: Path

    @property
    def record(self) -> dict[str, Any]:
        """The content of ``training.json``; empty if there is no run."""
        file = self.path / RECORD
        return dict(read_json(file)) if file.exists() else {}

    @property
    def name(self) -> str:
        """The run's name, such as TinyStories-12x1024_10L."""
        return str(self.record["name"])

    @property
    def recipe(self) -> Recipe:
        """The recipe of the record."""
        return Recipe(**self.record["recipe"])

    @property
    def finished(self) -> bool:
        """Whether training has ended and the model exists; otherwise training resumes from the newest checkpoint."""
        return self.record.get("state") == "finished" and (self.path / "model.safetensors").is_file()

    def update(self, **changes: Any) -> None:
        """Write the record with changed values."""
        text = json.dumps(self.record | changes, indent=1, ensure_ascii=False) + "\n"
        write_atomic(self.path / RECORD, text.encode())

    def describe(self, recipe: Recipe, source: "Source", **more: Any) -> None:
        """Write what is known before training, and ``more``, into the record; facts about the machine into ``here``."""
        here = {"texts": source.collecting(recipe.chunk_length), "tokenizer": source.tokenizer_name}
        self.update(
            recipe=asdict(recipe),
            text=source.identity(),
            corpus=source.corpus.name,
            n_params=recipe.n_params,
            versions=versions(),
            here=self.record.get("here", {}) | here,
            problem=None,
            **more,
        )

    def check_same(self, recipe: Recipe, source: "Source", **arguments: Any) -> None:
        """Raise UsageError if the directory holds anything other than a run of this recipe on this text.

        ``arguments`` are arguments of the Trainer that must also be the same. A waiting run of a sweep is not checked.
        """
        record = self.record
        if not record:
            if any(self.path.glob("[!.]*")):
                raise UsageError(f"{self.path} is not empty and holds no run (no {RECORD}): choose another --output")
            return
        if record["state"] == "waiting":  # a planned run of a sweep; nothing has been trained yet
            return
        now = arguments | asdict(recipe) | source.identity()
        there = record.get("arguments", {}) | asdict(self.recipe) | record["text"]
        differ = [f"{key} {there.get(key)} and {now[key]}" for key in now if there.get(key) != now[key]]
        if differ:
            raise UsageError(
                f"{self.path} holds a run with other settings: {'; '.join(differ)} (stored and requested): "
                "choose another --output, or give the same options"
            )

    def texts(self) -> dict[str, Any]:
        """Return options of :func:`collapse.collect` that name the run's texts on this machine.

        Raises:
            CollapseError: A text has changed since training.
        """
        record = self.record
        options = dict(record["here"]["texts"])
        found = find_texts(CollectionSpec(**options))
        for which, corpus in {"corpus": found.training, "validation": found.validation}.items():
            recorded = record["text"][which]  # None where the data set has no validation split
            if recorded and (corpus is None or corpus.identity() != recorded):
                raise CollapseError(
                    f"the texts of {self.path} have changed since training ({which}): give the original texts with "
                    "--text and --validation-text"
                )
        return options

    def newest(self) -> Path | None:
        """Return the folder of the newest complete checkpoint, from which training resumes; None if there is none."""
        complete = [folder for folder in self._checkpoints() if state_in(folder)]
        return complete[-1] if complete else None

    def state(self) -> dict[str, Any]:
        """Return the Trainer's state at the end, or at the newest checkpoint; empty if there is none."""
        newest = self.path if self.finished else self.newest()
        return state_in(newest) if newest else {}

    @property
    def epochs(self) -> list[Checkpoint]:
        """The last checkpoint of each epoch that training has reached."""
        state = self.state()
        found: dict[int, Checkpoint] = {}
        for line in state.get("log_history", ()):
            step, epoch = line["step"], line["epoch"]
            if "loss" in line and (epoch == int(epoch) or step == state["max_steps"]):
                found[step] = Checkpoint(self.path / CHECKPOINTS / f"checkpoint-{step}", step, math.ceil(epoch) - 1)
            elif "eval_validation_loss" in line and step in found:
                found[step].validation.update({name: line[f"eval_{name}"] for name in ("validation_loss", "accuracy")})
        return list(found.values())

    def checkpoint(self, k: int) -> Checkpoint:
        """Return the last checkpoint of epoch k + 1.

        Raises:
            UsageError: There is no such checkpoint.
        """
        there = {each.k: each for each in self.epochs if each.path.is_dir()}
        if k not in there:
            no_other = f", and no other checkpoint: restore the folder {CHECKPOINTS}"
            only = f", only {', '.join(f'@{each}' for each in there)}: restore the folder of @{k}, or choose another"
            has = only if there else no_other
            raise UsageError(f"{self.path} has no checkpoint @{k}{has}")
        return there[k]

    def drop_states(self, but: int | None = None) -> None:
        """Delete the files that only resuming needs, and checkpoints that are not at the end of an epoch.

        Everything of the checkpoint of step ``but`` is kept.
        """
        ends = {each.path for each in self.epochs}
        for folder in self._checkpoints():
            if folder.name == f"checkpoint-{but}":
                continue
            if folder not in ends:
                shutil.rmtree(folder)
            for file in (file for pattern in RESUMING for file in folder.glob(pattern)):
                file.unlink()

    def finish(self) -> None:
        """Copy the last checkpoint into the run directory, update the record, and delete files for resuming."""
        last = self.newest()
        assert last is not None  # training has just ended
        shutil.copytree(last, self.path, dirs_exist_ok=True, ignore=shutil.ignore_patterns(*RESUMING))
        self.update(state="finished", problem=None)
        self.drop_states()

    def store(self, k: int) -> Path:
        """Return the folder of the store of checkpoint @k."""
        return self.path / STORES / f"epoch-{k + 1}"

    def results(self) -> list[Row]:
        """Return the rows measured so far, one per checkpoint."""
        file = self.path / "results.json"
        return Results.read(file).rows if file.exists() else []

    def measured(self) -> set[int]:
        """Return the number k of each checkpoint @k that has a row in ``results.json``."""
        return {_k_of(row) for row in self.results()}

    def add(self, row: Row, k: int) -> Row:
        """Give a row the name of checkpoint @k, add it to ``results.json`` and ``results.csv``, and return it."""
        named = replace(row, model=f"{self.name}@{k}")
        write_rows(self.path, sorted([*self.results(), named], key=_k_of))
        return named

    def _checkpoints(self) -> list[Path]:
        """Return the folders of checkpoints, complete or not, by step."""
        folders = (self.path / CHECKPOINTS).glob("checkpoint-*")
        return sorted(folders, key=lambda folder: int(folder.name.rpartition("-")[2]))


def state_in(folder: Path) -> dict[str, Any]:
    """Return the Trainer's state in a checkpoint's folder; empty if the checkpoint is incomplete."""
    try:
        return dict(read_json(folder / STATE))
    except (OSError, ValueError):
        return {}


def runs_in(folder: str | Path) -> list[Run]:
    """Return the run directories in a folder, by name."""
    return [Run(file.parent) for file in sorted(Path(folder).glob(f"*/{RECORD}"))]


def write_rows(folder: Path, rows: Iterable[Row]) -> None:
    """Write rows to ``results.csv`` and ``results.json``."""
    table = Results(rows)
    table.write(folder / "results.csv")
    table.write(folder / "results.json")  # last, because a checkpoint with a row in this file is not measured again


def _k_of(row: Row) -> int:
    return int(row.model.rpartition("@")[-1])
