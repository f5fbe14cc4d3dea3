"""What goes with validation loss: the analyses of a report, sound for its rows."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from collapse.errors import CollapseError
from collapse.measurement.analyzing import analyze
from collapse.measurement.model_names import ARCHITECTURE, training_of, with_parts
from collapse.measurement.results import Results
from collapse.measurement.table import Table
from collapse.plugin.plugin_manager import plugins

if TYPE_CHECKING:
    import pandas as pd

_SIZES = (ARCHITECTURE, "n_params", "dim")
"""Columns of models of one size, within which rows are more exchangeable than over all; the first that divides them."""
_BOUND = "_is_bound"
"""End of a column that says of the one without it that no permutation reached |r|: 3 p is then its bound of 95 %."""


@dataclass(frozen=True)
class Associations:
    """What goes with validation loss.

    Attributes:
        over: Tables of analyses over all rows, by analysis.
        within: The same within models of one size, and with the effect of ``trained`` subtracted.
        size: The column whose values are the sizes, or None where sizes do not repeat.
        lacking: Why others are not shown.
        trained: The column that says how models of one size were trained, if it differs.
    """

    over: Mapping[str, Table]
    within: Mapping[str, Table]
    size: str | None
    lacking: Sequence[str]
    trained: str | None = None


def associations(results: Results, permutations: int = 9_999) -> Associations:
    """Run those of the analyses permutation and correlation that are installed and sound for the rows.

    Where models share a size, rows are not exchangeable: over all rows whole sizes count, and rows are permuted only
    within them. Where these were trained differently, the correlation subtracts that too, and permutes whole sizes;
    because what additive effects leave depends on the scale of the loss, it is then run for the log loss as well.
    """
    named = with_parts(results.frame())
    size = next((name for name in _SIZES if _repeats(named, name)), None)
    trained = training_of(named, size) if size is not None else None
    names = [name for name in (size, trained) if name is not None]
    runs: list[tuple[str, dict[str, Any]]] = [("correlation", {"cluster": size})]
    runs += [("correlation", {"within": names})] if size else []
    runs += [("correlation", {"within": names, "against": "log(val_loss)"})] if trained else []
    runs += [("permutation", {"n": permutations, "within": names or None})] if trained is None else []
    over: dict[str, Table] = {}
    within: dict[str, Table] = {}
    lacking = []
    for name, options in runs:
        if name not in plugins().analyses:
            continue
        grouped = bool(options.get("within"))
        try:
            table = analyze(name, Results.from_frame(named), **options)
        except CollapseError as error:
            lacking.append(f"{name}{f' within equal {size}' if grouped else ''}: {error}")
            continue
        (within if grouped else over)[f"{name}-log" if "against" in options else name] = table
    return Associations(over, within, size, lacking, trained)


def _repeats(frame: "pd.DataFrame", column: str) -> bool:
    """Whether a column divides the rows into several groups, most of more than two rows."""
    if column not in frame:
        return False
    sizes = frame[column].value_counts()
    return len(sizes) > 1 and bool((sizes > 2).mean() > 0.5)


def analysis_table(table: Table) -> Table:
    """Return the table of an analysis, the strongest association first."""
    records = sorted(table.records(), key=lambda record: -(record.get("R2") or 0.0))
    columns = [name for name in table.columns if not name.endswith(_BOUND)]
    columns = [name for name in columns if any(record[name] is not None for record in records)]
    rows = [
        [f"≤ {min(3 * record[name], 1):.3g}" if record.get(name + _BOUND) else record[name] for name in columns]
        for record in records
    ]
    return Table(table.title, columns, rows, table.notes)
