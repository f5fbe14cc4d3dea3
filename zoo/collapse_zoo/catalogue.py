"""The models of the zoo: the paper's measurements of its 230 models, and the runs on this machine."""

import logging
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from collapse.errors import CollapseError, UsageError
from collapse_zoo.names import Name, parse
from collapse_zoo.published import ABOUT, published
from collapse_zoo.recipes import Recipe
from collapse_zoo.runs import RECORD, Run

log = logging.getLogger("collapse")

SHOWN = (
    "val_loss",
    "nc1.cdnv",
    "nc2.equinormness",
    "nc2.interference_std",
    "gnc2.hyperspherical_uniformity",
    "nc3.self_duality",
    "unc3.uniform_duality",
    "nc4.agreement",
)
"""The measurements that a listing shows by default."""

PUBLISHED = "published"


@dataclass(frozen=True)
class Entry:
    """A model at a checkpoint, with its measurements.

    Attributes:
        name: Published name, such as TinyStories-12x1024_10L@9; or a run's name with its checkpoint.
        where: "published", or the run directory and its problems.
        recipe: How it was trained.
        k: The checkpoint; None for a run that has none yet.
        measurements: One number per measurement.
    """

    name: str
    where: str
    recipe: Recipe
    k: int | None
    measurements: dict[str, float | None] = field(default_factory=dict)

    def record(self) -> dict[str, Any]:
        """Return the entry as a dictionary for JSON and tables."""
        keys = ("depth", "width", "epochs", "weight_decay", "seed", "data_seed")
        recipe = {key: getattr(self.recipe, key) for key in keys}
        about = {"model": self.name, "where": self.where, **recipe, "checkpoint": self.k}
        return about | {"n_params": self.recipe.n_params} | self.measurements


def catalogue(runs: str | Path = "runs", *, where: Sequence[str] = ("published", "local")) -> list[Entry]:
    """List everything published, then every run in a folder.

    Args:
        runs: Folder of run directories, which need not exist.
        where: "published", "local", or both.
    """
    found = list(_published()) if "published" in where else []
    return found + (list(_local(Path(runs))) if "local" in where else [])


def on_the_hub() -> list[Entry]:
    """List the models of the zoo on the Hub, and stores of them, with the measurements on their cards.

    Raises:
        CollapseError: The Hub cannot be reached.
    """
    from collapse.hub.card import TAGS
    from collapse.hub.requests import models_tagged

    entries = []
    for model in models_tagged(TAGS[0]):
        bases = getattr(model.card_data, "base_model", None) or []
        name = _zoo_name([model.id, *([bases] if isinstance(bases, str) else bases)])
        if name is None:  # a store of another model, or something else with this tag
            continue
        results = (model.card_data.eval_results if model.card_data else None) or []
        numbers: dict[str, float | None] = {
            each.metric_type: each.metric_value for each in results if isinstance(each.metric_value, float)
        }
        k = _checkpoint_of(str(getattr(model.card_data, "model_name", "")), last=name.epochs - 1)
        entries.append(Entry(f"{name}@{k}", f"Hub: {model.id}", name.recipe(), k, numbers))
    return entries


def _checkpoint_of(measured: str, *, last: int) -> int:
    """Return the k of ``name@k`` to which a card's measurements belong; cards of earlier versions do not give it."""
    k = measured.rpartition("@")[2]
    return int(k) if "@" in measured and k.isdecimal() and len(k) < 9 else last


def _zoo_name(candidates: Sequence[object]) -> Name | None:
    """Return the first candidate that is the name of a zoo model."""
    for each in candidates:
        with suppress(UsageError):
            name = parse(str(each))
            name.recipe()
            return name
    return None


def find(model: str, runs: str | Path = "runs") -> list[Entry]:
    """Return the entries of one model, one per checkpoint, by its published name, run name or run directory.

    A name without a corpus, such as 02x0064_01d, finds the models of that name on any corpus.

    Raises:
        UsageError: The text is not the name of a model.
    """
    if Run(Path(model)).record is not None:
        return list(_of_run(Run(Path(model))))
    wanted = parse(model)
    any_corpus = "-" not in model.rpartition("/")[2]
    return [entry for entry in catalogue(runs) if _is(entry, wanted, any_corpus)]


def local_runs(folder: Path) -> list[Run]:
    """Return the run directories in a folder, by name; one with a damaged record is skipped with a warning."""
    found = []
    for run in run_folders(folder):
        try:
            found += [run] if run.record is not None else []
        except CollapseError as error:
            log.warning("%s", error)
    return found


def run_folders(folder: Path) -> list[Run]:
    """Return the subfolders with a ``training.json``, even a damaged one, by name."""
    return [Run(each.parent) for each in sorted(folder.glob(f"*/{RECORD}"))]


def _is(entry: Entry, wanted: Name, any_corpus: bool) -> bool:
    have, run = entry.name.partition("@")[0], wanted.of_run()
    same = have.rpartition("-")[2] == run.short if any_corpus else have == str(run)
    return same and wanted.checkpoint in (None, entry.k)


def _published() -> Iterator[Entry]:
    for model, row in published().iterrows():
        name = parse(str(model))
        numbers: dict[str, float | None] = {key: float(value) for key, value in row.items() if key not in ABOUT}
        yield Entry(str(name), PUBLISHED, name.recipe(), name.checkpoint, numbers)


def _local(folder: Path) -> Iterator[Entry]:
    for run in local_runs(folder):
        try:
            yield from list(_of_run(run))
        except CollapseError as error:  # list the other runs anyway
            log.warning("%s", error)


def _of_run(run: Run) -> Iterator[Entry]:
    record = run.record
    assert record is not None  # the callers checked it
    where = str(run.path)
    if run.finished:
        try:
            run.check_model(quick=True)
        except CollapseError as error:
            log.warning("%s", error)
            where += " (damaged)"
    recipe, measured = run.recipe, {row.model: row.measurements for row in run.results()}
    for epoch in record["epochs"]:
        name = f"{record['name']}@{epoch['k']}"
        curve = {"val_loss": epoch.get("validation_loss"), "val_accuracy": epoch.get("accuracy")}
        yield Entry(name, where, recipe, epoch["k"], curve | measured.get(name, {}))
    if not record["epochs"]:
        yield Entry(record["name"], where, recipe, None)
