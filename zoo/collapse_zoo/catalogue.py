"""The models of the zoo: the paper's measurements of its 230 models, and the runs on this machine.

The paper's numbers are from two files of rhubarbwu/linguistic-collapse, with our column names (see
docs/paper/tinystories.md). ``lc-2024_05_18.csv`` is the source of the paper's tables and figures. In
``lc-2024_10_24.csv``, the same models are measured again with the authors' later library. Numbers have
nine digits; standard deviations over classes divide by n − 1.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from collapse.errors import UsageError
from collapse.stores.lock import is_locked
from collapse_zoo.recipes import Recipe, parse
from collapse_zoo.runs import Run, runs_in

if TYPE_CHECKING:
    import pandas as pd

PUBLISHED = Path(__file__).with_name("published.csv")

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


Record = dict[str, Any]
"""A row of a table: the name, recipe and measurements of a model at a checkpoint. ``where`` is "published", the path of
the run directory, or "Hub: " followed by the repository. ``checkpoint`` is None for a run without a checkpoint."""


_RECIPE = ("depth", "width", "epochs", "weight_decay", "seed", "data_seed")
ABOUT = ("model", "where", *_RECIPE, "checkpoint", "n_params")
"""The keys of a record that are not measurements."""


def _record(
    name: str, where: str, recipe: Recipe, k: int | None, measurements: Mapping[str, float | None] | None = None
) -> Record:
    about: Record = {"model": name, "where": where, **{key: getattr(recipe, key) for key in _RECIPE}}
    return about | {"checkpoint": k, "n_params": recipe.n_params} | dict(measurements or {})


@cache
def published() -> "pd.DataFrame":
    """Return a table with the size, C, d and measurements of each published model.

    The index is the short name, such as ``12x1024_10L@9``.
    """
    import pandas as pd

    return pd.read_csv(PUBLISHED, index_col="model")


def catalogue(runs: str | Path = "runs", *, where: Sequence[str] = ("published", "local")) -> list[Record]:
    """Return the records of the published models, followed by those of the runs in a folder.

    ``pandas.DataFrame`` makes a table of the records.

    Args:
        runs: Folder of run directories, which need not exist.
        where: "published", "local", or both.
    """
    found = list(_published() if "published" in where else ())
    for run in runs_in(runs) if "local" in where else ():
        found += _of_run(run)
    return found


def on_the_hub() -> list[Record]:
    """Return a record for each repository on the Hub that holds a zoo model or the store of a zoo model.

    The measurements are those of the repository's model card.

    Raises:
        CollapseError: The Hub cannot be reached.
    """
    from collapse.hub.card import TAGS
    from collapse.hub.client import models_tagged

    records = []
    for model in models_tagged(TAGS[0]):
        with suppress(UsageError):  # a store of another model
            name = parse(str(getattr(model.card_data, "model_name", None)))
            last = name.recipe.epochs - 1  # cards of stores name no checkpoint
            k = last if name.checkpoint is None else name.checkpoint
            numbers = {each.metric_type: each.metric_value for each in model.card_data.eval_results or ()}
            records.append(_record(f"{name.of_run()}@{k}", f"Hub: {model.id}", name.recipe, k, numbers))
    return records


def find(model: str, runs: str | Path = "runs") -> list[Record]:
    """Find a model by its published name, run name or run directory; return a record per checkpoint, [] if none.

    A name without a corpus, such as 02x0064_01d, finds models with this name on any corpus. ``runs`` is the folder of
    the run directories.

    Raises:
        UsageError: The text is not the name of a model.
    """
    if Run(Path(model)).record:
        return list(_of_run(Run(Path(model))))
    wanted = parse(model)
    run = wanted.of_run()
    name = run.short if re.match(r"\d+x\d", model.rpartition("/")[2]) else str(run)

    def is_named(record: Record) -> bool:
        full = record["model"].partition("@")[0]
        same = name in (full, re.split(r"-(?=\d+x\d)", full)[-1])
        return same and wanted.checkpoint in (None, record["checkpoint"])

    return list(filter(is_named, catalogue(runs)))


def status(folder: str | Path) -> list[dict[str, Any]]:
    """Return the progress of each run in a folder, including the waiting runs of a sweep.

    Returns:
        For each run: ``member``; ``epochs`` (trained so far) and ``epochs_planned`` (None if ``max_steps`` is set);
        ``measured`` and ``measured_planned`` (numbers of checkpoints); ``published`` (a repository, or "no"); and
        ``state``, a text.
    """
    return [_status(run) for run in runs_in(folder)]


def _status(run: Run) -> dict[str, Any]:
    record, epochs, measured = run.record, run.epochs, run.measured()
    planned = set(record.get("measure") or [each.k for each in epochs])
    if is_locked(run.path):
        state = "measuring" if run.finished else "training"
    elif run.finished and measured >= planned:
        state = "done"
    elif record.get("problem"):
        state = f"failed: {record['problem']}"
    elif run.finished:
        state = "trained"
    else:
        state = "waiting" if record["state"] == "waiting" else "interrupted: run the same command to resume"
    return {
        "member": run.path.name,
        "epochs": len(epochs),
        "epochs_planned": None if record["recipe"]["max_steps"] else record["recipe"]["epochs"],
        "measured": len(measured & planned),
        "measured_planned": len(planned) or 1,
        "published": record.get("published") or "no",
        "state": state,
    }


def _published() -> Iterator[Record]:
    numbers = published().drop(columns=["n_params", "classes", "dim"])
    rows: list[dict[str, float | None]] = numbers.to_dict("records")
    for model, row in zip(numbers.index, rows, strict=True):
        name = parse(str(model))
        yield _record(str(name), "published", name.recipe, name.checkpoint, row)


def _of_run(run: Run) -> Iterator[Record]:
    recipe, epochs, measured = run.recipe, run.epochs, {row.model: row.measurements for row in run.results()}
    for each in epochs:
        name, valid = f"{run.name}@{each.k}", each.validation
        trained = {"val_loss": valid.get("validation_loss"), "val_accuracy": valid.get("accuracy")}
        yield _record(name, str(run.path), recipe, each.k, trained | measured.get(name, {}))
    if not epochs:
        yield _record(run.name, str(run.path), recipe, None)
