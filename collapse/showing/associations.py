"""Correlation with validation loss: the analyses of a report that are valid for its rows."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from collapse.errors import CollapseError
from collapse.measurement.analyzing import analyze
from collapse.measurement.model_names import training_of, with_parts
from collapse.measurement.prepared import SIZES
from collapse.measurement.results import Results
from collapse.measurement.table import Table

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True)
class Associations:
    """Correlation of measurements with validation loss.

    Attributes:
        tables: Tables of analyses by name. ``correlation`` and ``permutation`` are over all rows; names that end in
            ``-within`` are within models of one size, and ``correlation-log-within`` uses log(val_loss).
        size: The column with the models' sizes, or None if sizes do not repeat.
        trained: The column that shows how models of one size were trained differently, or None.
        lacking: Reasons why analyses are not shown.
    """

    tables: Mapping[str, Table]
    size: str | None = None
    trained: str | None = None
    lacking: Sequence[str] = ()


def associations(results: Results) -> Associations:
    """Run the variants of the analyses ``permutation`` and ``correlation`` that are valid for the rows.

    If models share sizes, rows are not exchangeable: ``correlation`` treats each size as a cluster,
    ``correlation-within`` subtracts the effect of size, and ``permutation-within`` permutes rows only within a size. If
    models of one size were trained differently, ``correlation-within`` also subtracts the effect of training, and its
    p-values come from permutations of whole sizes. ``correlation-log-within`` does the same for log(val_loss), and
    replaces ``permutation-within``. If models do not share sizes, ``permutation`` is run, except for models that
    were trained differently (checkpoints).
    """
    named = with_parts(results.frame())
    size = next((name for name in SIZES if _repeats(named, name)), None)
    trained = training_of(named, size or (lambda _: 0))
    names, end = [name for name in (size, trained) if name is not None], "-within" if size else ""
    tables, lacking = dict[str, Table](), list[str]()
    runs: dict[str, dict[str, Any]] = {"correlation": {"cluster": size}}
    if size:
        runs["correlation-within"] = {"within": names}
    if trained and not size:
        lacking.append(f"permutation: rows that differ in {trained} are not exchangeable")
    elif trained:
        runs["correlation-log-within"] = {"within": names, "against": "log(val_loss)"}
    else:
        runs[f"permutation{end}"] = {"within": names or None, "n": 9_999}
    for name, options in runs.items():
        try:
            tables[name] = analyze(name.partition("-")[0], Results.from_frame(named), **options)
        except CollapseError as error:
            lacking.append(f"{name}: {error}")
    return Associations(tables, size, trained, lacking)


def _repeats(frame: "pd.DataFrame", column: str) -> bool:
    """Whether a column divides the rows into several groups, most of them with more than two rows."""
    if column not in frame:
        return False
    sizes = frame[column].value_counts()
    return len(sizes) > 1 and bool((sizes > 2).mean() > 0.5)
