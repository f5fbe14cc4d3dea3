"""Correlations within each stratum: the groups of rows with equal values of a column."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from collapse import CollapseError, Table
from collapse.measurement.columns import Column
from collapse_analyses import shown
from collapse_analyses.residuals import Codes, is_explained
from collapse_analyses.shuffling import unit

if TYPE_CHECKING:
    from collapse_analyses.selecting import Selected

FEWEST = 3
"""Rows of a stratum in which a correlation says something: two rows always have r = ±1."""


def in_each(column: Column, goal: Column, groups_n: Codes) -> list[float | None]:
    """Return Pearson's r in each stratum; None where it has fewer than 3 rows or a column does not vary.

    >>> numbers = [Column("", "", (), np.array(each)) for each in ([1.0, 2.0, 3.0, 9.0], [2.0, 4.0, 6.0, 0.0])]
    >>> [r and round(r, 9) for r in in_each(*numbers, np.array([0, 0, 0, 1]))]
    [1.0, None]
    """
    found: list[float | None] = []
    for group in range(int(groups_n.max()) + 1):
        x_n, y_n = (each.values[groups_n == group] for each in (column, goal))
        if len(x_n) < FEWEST or any(is_explained(each, each - each.mean()) for each in (x_n, y_n)):
            found.append(None)
        else:
            found.append(float(np.clip(unit(x_n, None) @ unit(y_n, None), -1, 1)))
    return found


def signs_of(correlations: Sequence[float | None] | None) -> dict[str, float | int | None]:
    """Return the number of strata with a correlation, those of each sign, and the median.

    >>> signs_of([0.5, -0.25, None, 1.0])
    {'strata': 3, 'strata_positive': 2, 'strata_negative': 1, 'strata_median_r': 0.5}
    """
    given = [r for r in correlations or () if r is not None]
    none = correlations is None
    return {
        "strata": None if none else len(given),
        "strata_positive": None if none else sum(r > 0 for r in given),
        "strata_negative": None if none else sum(r < 0 for r in given),
        "strata_median_r": float(np.median(given)) if given else None,
    }


def strata_table(found: "Selected", name: str, groups_n: Codes) -> Table:
    """Return r of every column in every stratum, a row each: column, the stratum, rows, mean, r.

    Raises:
        CollapseError: No stratum has 3 rows that vary.
    """
    records: list[dict[str, Any]] = []
    first = [int(np.flatnonzero(groups_n == group)[0]) for group in range(int(groups_n.max()) + 1)]
    values = [found.frame[name].iloc[at] for at in first]
    order = sorted(range(len(values)), key=lambda at: (isinstance(values[at], str), values[at]))
    for column in found.tested:
        correlations = in_each(column, found.goal, groups_n)
        for at in order:
            rows_n = groups_n == at
            records.append(
                {
                    "column": column.label,
                    name if name not in ("column", "rows", "mean", "r") else f"{name} of it": shown.plain(values[at]),
                    "rows": int(rows_n.sum()),
                    "mean": float(column.values[rows_n].mean()),
                    "r": correlations[at],
                }
            )
    if all(record["r"] is None for record in records):
        raise CollapseError(
            f"no group of equal {name} has {FEWEST} rows in which {found.goal.label} and a column vary (--within)"
        )
    rows = [[*list(each.values())[:3], shown.three(each["mean"]), shown.signed(each["r"])] for each in records]
    return Table(
        title=f"Correlation with {found.goal.label} in each {name}, {len(found.frame)} rows",
        columns=list(records[0]),
        rows=[list(record.values()) for record in records],
        notes=[*found.notes, f"–: fewer than {FEWEST} rows, or a column that does not vary"]
        if any(each["r"] is None for each in records)
        else list(found.notes),
        shown=Table("", [*list(records[0])[:3], "mean", "r"], rows, keys=2),
    )
