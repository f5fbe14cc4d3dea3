"""Differences between pairs of models that are alike in everything but one thing."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from collapse import CollapseError, Results, Table, analysis
from collapse.errors import UsageError, counted
from collapse.measurement.columns import Column
from collapse_analyses import shown
from collapse_analyses.checking import check_numbers
from collapse_analyses.directions import direction
from collapse_analyses.jackknife import interval, interval_of_r, without_each
from collapse_analyses.pairing import Pairs, pairs_of, units_of
from collapse_analyses.residuals import Codes, Floats, is_explained
from collapse_analyses.rows import names_of, one_width
from collapse_analyses.selecting import Selected, select, table_of


@analysis("paired")
def paired(
    results: Results,
    *,
    by: str,
    against: str = "val_loss",
    columns: Sequence[str] | None = None,
    where: Sequence[str] | None = None,
    values: str | None = None,
    equal: Sequence[str] | None = None,
    level: float = 0.95,
) -> Table:
    """Compare pairs of models that differ in one thing only.

    That is for example their weight decay. Rows are paired if they have two given values of a column and are equal in
    everything else that their names say. For each column: the mean difference, how often it rises and falls, a sign
    test, and the correlation of its differences with those of the goal. Several pairs of one architecture, such as
    checkpoints, are not independent: the intervals and the sign test then count architectures.

    Args:
        by: The column in which the rows of a pair differ: decay, width, depth, checkpoint, or another.
        against: The goal: a column, expression, or label=expression.
        columns: Columns to compare, separated by commas: names, prefixes, arithmetic, or label=expression. All
            measurements by default; paper means the seven of the paper's Table 1.
        where: Keep the rows whose column matches a glob, such as 'epochs=10'. Rows must match every filter.
        values: The two values of the column, separated by a comma; differences are the second's minus the first's. By
            default the two that the column has, in order.
        equal: Columns in which the rows of a pair are equal. By default everything that names say (depth, width,
            epochs, decay, checkpoint, seeds), and the texts and settings of the measurement.
        level: Of the intervals.

    Returns:
        A row for the goal and for each column: column, pairs, mean, mean_low, mean_high, rises, falls, better (pairs in
        which the second value is better, None where that is unknown), p (sign test), r, r_low, r_high (correlation of
        the differences with the goal's; None for the goal). Intervals are None with fewer than 5 independent pairs.

    Raises:
        UsageError: An unknown column or filter, or a column without two values.
        CollapseError: Fewer than 3 pairs, or several rows that are equal in everything.

    Source: Dixon & Mood 1946 for the sign test.

    >>> from collapse import Row
    >>> def model(name, loss):
    ...     return Row(name, None, "text", "", 1, 9, 4, 99, {"val_loss": loss, "nc1.cdnv": loss / 10})
    >>> names = ["1x8_01", "2x8_01", "4x8_01"]
    >>> rows = [model(name + letter, float(i + (letter == "d"))) for i, name in enumerate(names, 2) for letter in "dL"]
    >>> [(row["column"], round(row["mean"], 9), row["better"]) for row in paired(Results(rows), by="decay").records()]
    [('val_loss', -1.0, 3), ('nc1.cdnv', -0.1, 3)]
    """
    check_numbers(level=level)
    frame, notes = table_of(results, where)
    name, *others = names_of([by], frame, "--by")
    if others:
        raise UsageError(
            f"--by must name one column, got {by!r}: the others go to --equal, or choose rows with --where"
        )
    found = select(frame, notes, against=against, columns=columns, whole=len(results), named=[name])
    pairs = pairs_of(found.frame, name, values=values, equal=equal)
    if len(pairs.first) < 3:
        raise CollapseError(
            f"{counted(len(pairs.first), 'pair')} of rows that differ in {name} and are equal in "
            f"{', '.join(pairs.equal) or 'nothing'}: at least 3 are needed; --equal names what must be equal"
        )
    goal = _difference(found.goal, pairs.first, pairs.second)
    both, codes = [*pairs.first, *pairs.second], np.tile(np.arange(len(pairs.first)), 2)
    of_one_width = one_width(found.frame.iloc[both].reset_index(drop=True), codes)
    units = units_of(found.frame, pairs)
    records = []
    for column in (found.goal, *found.tested):
        change = _difference(column, pairs.first, pairs.second)
        other = None if column is found.goal else goal
        towards = direction(column, found.frame, of_one_width)
        records.append(_record(column, change, other, towards, units, level))
    one, two = pairs.values
    left = len(found.frame) - 2 * len(pairs.first)
    return Table(
        title=f"{name} {two} − {name} {one}, {counted(len(pairs.first), 'pair')}",
        columns=list(records[0]),
        rows=[list(record.values()) for record in records],
        notes=_explain(found, records, left, pairs, units),
        shown=_shown(records, level, f"Δ{found.goal.label}"),
    )


def _difference(column: Column, first: Sequence[int], second: Sequence[int]) -> Floats:
    return column.values[list(second)] - column.values[list(first)]


def _record(
    column: Column, change_n: Floats, goal_n: Floats | None, towards: int | None, units_n: Codes, level: float
) -> dict[str, Any]:
    from scipy.stats import binomtest  # takes half a second

    rises, falls = int((change_n > 0).sum()), int((change_n < 0).sum())
    mean, sum_G, size_G = float(change_n.mean()), np.bincount(units_n, weights=change_n), np.bincount(units_n)
    independent = len(size_G)
    without_G = (change_n.sum() - sum_G) / (len(change_n) - size_G)
    low, high, _ = interval(mean, without_G, independent - 1, level) or [None] * 3
    up, down = int((sum_G > 0).sum()), int((sum_G < 0).sum())
    constant = any(is_explained(each, each - each.mean()) for each in (change_n, *([] if goal_n is None else [goal_n])))
    r = None if goal_n is None or constant else float(np.corrcoef(change_n, goal_n)[0, 1])
    r_low = r_high = None
    if r is not None and goal_n is not None:
        without_G = without_each(change_n, goal_n, clusters_n=units_n)[0]
        r_low, r_high, _ = interval_of_r(r, without_G, independent - 2, level) or [None] * 3
    return {
        "column": column.label,
        "pairs": len(change_n),
        "mean": mean,
        "mean_low": low,
        "mean_high": high,
        "rises": rises,
        "falls": falls,
        "better": None if towards is None else falls if towards == 1 else rises,
        "p": float(binomtest(up, up + down).pvalue) if up + down else None,
        "r": r,
        "r_low": r_low,
        "r_high": r_high,
    }


def _explain(found: Selected, records: Sequence[Mapping[str, Any]], left: int, pairs: Pairs, units: Codes) -> list[str]:
    notes = list(found.notes)
    notes.append(f"pairs are equal in {', '.join(pairs.equal) or 'nothing that is known'}")
    if left:
        notes.append(f"{counted(left, 'row')} without a counterpart left out")
    tested, several = counted(len(records), "column"), int(units.max()) + 1 < len(units)
    test = f"rises against falls{' of the mean difference of each architecture' if several else ''}"
    notes.append(
        f"better: pairs in which {pairs.values[1]} is better; p: sign test of {test}, two-sided, not corrected for "
        f"{tested}"
    )
    of = f"pairs{f', those of the same architecture together ({units.max() + 1} units)' if several else ''}"
    notes.append(
        f"r: correlation of the differences with {found.goal.label}'s; intervals: jackknife of the {of}, Student's t"
    )
    return notes


def _shown(records: Sequence[Mapping[str, Any]], level: float, goal: str) -> Table:
    percent = f"{100 * level:g} %"
    headings = ["column", "mean Δ", f"{percent} of mean Δ", "rises", "falls", "better", "p", f"r with {goal}"]
    rows = [
        [
            each["column"],
            shown.three(each["mean"]),
            shown.interval(each["mean_low"], each["mean_high"], signs=False),
            each["rises"],
            each["falls"],
            each["better"],
            shown.p_value(each["p"]),
            shown.signed(each["r"]),
            shown.interval(each["r_low"], each["r_high"]),
        ]
        for each in records
    ]
    return Table("", [*headings, f"{percent} of r"], rows)
