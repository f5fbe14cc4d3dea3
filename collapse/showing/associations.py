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
        tables: Tables of analyses: ``correlation`` and ``permutation`` over all rows; with ``-within`` at the end,
            inside models of one size, and ``correlation-log-within`` of the log loss.
        size: The column whose values are the sizes, or None where sizes do not repeat.
        trained: The column that says how models of one size were trained, if it differs.
        lacking: Why other analyses are not shown.
    """

    tables: Mapping[str, Table]
    size: str | None = None
    trained: str | None = None
    lacking: Sequence[str] = ()


def associations(results: Results, permutations: int = 9_999) -> Associations:
    """Run those of the analyses permutation and correlation that are sound for the rows.

    Where models share a size, rows are not exchangeable: over all rows whole sizes count, and rows are permuted only
    within them. Where these were trained differently, the correlation subtracts that too, and permutes whole sizes;
    because what additive effects leave depends on the scale of the loss, it is then run for the log loss as well.
    """
    named = with_parts(results.frame())
    size = next((name for name in SIZES if _repeats(named, name)), None)
    trained = training_of(named, size) if size is not None else None
    names, end = [name for name in (size, trained) if name is not None], "-within" if size else ""
    runs: dict[str, dict[str, Any]] = {"correlation": {"cluster": size}}
    if size:
        runs["correlation-within"] = {"within": names}
    if trained:
        runs["correlation-log-within"] = {"within": names, "against": "log(val_loss)"}
    else:
        runs[f"permutation{end}"] = {"within": names or None, "n": permutations}
    tables, lacking = {}, []
    for name, options in runs.items():
        try:
            tables[name] = analyze(name.partition("-")[0], Results.from_frame(named), **options)
        except CollapseError as error:
            lacking.append(f"{name}: {error}")
    return Associations(tables, size, trained, lacking)


def _repeats(frame: "pd.DataFrame", column: str) -> bool:
    """Whether a column divides the rows into several groups, most of more than two rows."""
    if column not in frame:
        return False
    sizes = frame[column].value_counts()
    return len(sizes) > 1 and bool((sizes > 2).mean() > 0.5)
