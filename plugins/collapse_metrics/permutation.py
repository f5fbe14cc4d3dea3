"""The permutation test: does a property of collapse go with generalization, or did these models just happen to?"""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from collapse import CollapseError, Results, Table, analysis, hookimpl
from collapse.errors import UsageError, counted
from collapse.measurement.columns import Column, choose_rows, read_column
from collapse.measurement.comparing import mixed
from collapse.plugin.metrics import Limit, limit_at
from collapse.plugin.plugin_manager import plugins
from collapse_metrics.shuffling import _MOST, Floats, Shuffled, orders, shuffle
from collapse_metrics.tested_columns import (
    chosen,
    complete_rows,
    groups_of,
    listed,
    repeated,
    sizes_note,
    varying,
    varying_within,
)

if TYPE_CHECKING:
    import pandas as pd


@analysis("permutation")
def permutation(
    results: Results,
    *,
    against: str = "val_loss",
    columns: Sequence[str] | None = None,
    where: Sequence[str] | None = None,
    within: str | None = None,
    n: int = 99_999,
    seed: int = 0,
) -> Table:
    """Test whether columns of a results table go with generalization.

    For each column: Pearson's r, the sign that collapse predicts, R², the permutation p-value of |r| with its
    standard error, and a Westfall–Young max-T p-value corrected for all columns tested, from the same permutations.
    Where there are no more orders of the rows than permutations asked for, all are enumerated and p is exact.

    Args:
        results: A results table, a row a model.
        against: The column to permute: a name, expression, or label=expression.
        columns: Columns to test, separated by commas: names, or arithmetic such as norms_log_std/norms_log_mean; write
            nc2.equinormness=norms_log_std/norms_log_mean to say which measurement it is. All measurements by default.
        where: Keep the rows whose column matches a glob, such as 'model=TinyStories-02x0768_01d*@0'. Rows must match
            every filter.
        within: Permute only rows with equal values of this column, such as dim, and correlate what differs from the
            group's mean: models of different sizes are not exchangeable. Rows without a value of it are left out.
        n: Number of random permutations.
        seed: Seed of the permutations.

    Returns:
        A row a column: column, r, predicted ("r > 0", "r < 0" or None), R2, p, p_error, max_t_p.

    Raises:
        UsageError: An unknown column or filter, or an expression that cannot be read.
        CollapseError: A column is constant or not finite, or fewer than 3 rows are left.

    Source: Wu & Papyan 2024, §3.8; Westfall & Young 1993 for max-T.

    >>> from collapse import Row
    >>> def model(loss, cdnv):
    ...     return Row("m", None, "text", "", 1, 9, 4, 99, {"val_loss": loss, "nc1.cdnv": cdnv})
    >>> table = permutation(Results([model(1.0, 0.1), model(2.0, 0.2), model(3.0, 0.3)]))
    >>> [(row["column"], round(row["r"], 9), row["predicted"], round(row["p"], 6)) for row in table.records()]
    [('nc1.cdnv', 1.0, 'r > 0', 0.333333)]
    """
    if n < 1 or seed < 0:
        raise UsageError(f"--n must be at least 1 and --seed at least 0, not {n} and {seed}")
    whole = results.frame()
    frame = choose_rows(whole, where)
    notes: list[str] = []
    if where:
        filters = where if isinstance(where, str) else " and ".join(where)
        notes.append(f"{len(frame):,} of {counted(len(whole), 'row')}, with {filters}")

    goal = read_column(frame, against)
    tested, left_out, named = chosen(columns, frame, goal)
    frame, goal, tested, dropped = complete_rows(frame, goal, tested, within)
    notes.extend([*dropped, *mixed(frame.to_dict("records")), *repeated(frame)])
    if len(frame) < 3:
        why = f" ({'; '.join(notes)})" if notes else ""
        raise CollapseError(
            f"only {len(frame)} of {counted(len(whole), 'row')} to correlate{why}: at least 3 are needed"
        )
    tested = varying(frame, goal, tested, left_out, named)
    if left_out:
        notes.append("not tested: " + ", ".join(f"{name} ({why})" for name, why in left_out.items()))
    if not tested:
        raise CollapseError(
            f"no column to test against {against}: {notes[-1] if left_out else 'the table has no known measurement'}; "
            f"name columns or expressions with --columns; it has {listed(frame)}"
        )
    groups = None
    if within is None:
        notes += sizes_note(frame)
    else:
        groups = groups_of(frame, within)
        notes += sizes_note(frame, groups)
        tested = varying_within(goal, tested, groups, within, notes)
    if min(n, orders(len(frame), groups)) * len(tested) > _MOST:
        raise UsageError(
            f"--n {n:,} needs more memory than there is room for: with {counted(len(tested), 'column')} give at most "
            f"{_MOST // len(tested):,}"
        )
    found = shuffle(
        goal.values, np.stack([column.values for column in tested], axis=1), n=n, seed=seed, groups_n=groups
    )
    rows = _rows(found, goal, tested, frame)
    return Table(
        title=f"Permutation test against {goal.label}, {len(frame)} rows"
        + (f", within equal {within}" if within else ""),
        columns=["column", "r", "predicted", "R2", "p", "p_error", "max_t_p"],
        rows=rows,
        notes=[*notes, *_explain(found, goal, rows, len(frame), seed, within)],
    )


def _rows(found: Shuffled, goal: Column, tested: Sequence[Column], frame: "pd.DataFrame") -> list[list[object]]:
    better = _direction(goal, frame)
    rows: list[list[object]] = []
    for i, column in enumerate(tested):
        expected = _predicted(_direction(column, frame), better)
        r, p, max_t_p = (float(each[i]) for each in (found.r, found.p, found.max_t_p))
        rows.append([column.label, r, expected, r**2, p, None if found.exact else float(found.p_error[i]), max_t_p])
    return rows


def _direction(column: Column, frame: "pd.DataFrame") -> int | None:
    """1 where lower values are better (nearer to full collapse), −1 where higher ones are, None where unknown."""
    known = plugins().measurements()
    if column.label not in known:
        return None
    metric, measure = known[column.label]
    if metric.better is not None:
        return 1 if metric.better == "lower" else -1
    limits = _limits(measure.towards, frame)
    if limits is None:
        return None
    above, below = bool((column.values > limits).any()), bool((column.values < limits).any())
    return None if above == below else 1 if above else -1


def _limits(towards: Limit, frame: "pd.DataFrame") -> Floats | float | None:
    """The limit, one a row where it depends on C and d; None where there is none or the table lacks C and d."""
    if not callable(towards):
        return None if towards is None else float(towards)
    try:
        pairs = zip(frame["classes"], frame["dim"], strict=True)
        limits = [limit_at(towards, int(classes), int(dim)) for classes, dim in pairs]
    except Exception:  # the table lacks a column, or a plugin's function fails: then there is no prediction
        return None
    return None if None in limits else np.array(limits, dtype=np.float64)


def _predicted(column: int | None, goal: int | None) -> str | None:
    if column is None or goal is None:
        return None
    return "r > 0" if column == goal else "r < 0"


def _explain(
    found: Shuffled, goal: Column, rows: Sequence[Sequence[object]], n_rows: int, seed: int, within: str | None
) -> list[str]:
    """How to read the numbers."""
    if found.exact:
        how = (
            f"p is exact, without a standard error: all {found.permutations:,} orders of {goal.label} "
            f"{f'within equal {within}' if within else f'({n_rows}!)'} were enumerated"
        )
    else:
        how = (
            f"p: share of {found.permutations:,} random permutations of {goal.label} (seed {seed}), and of the "
            "order observed, whose |r| is at least as large; p_error is its standard error"
        )
    notes = [
        how,
        f"max_t_p: p-value corrected for testing {counted(len(rows), 'column')} (Westfall–Young max-T, single step)",
        f"predicted: the sign of r if better {goal.label} goes with more collapse",
    ]
    if any(row[2] is None for row in rows):
        notes.append(
            "no sign is predicted for a measurement without a value at full collapse, or with values on both sides of "
            "it, nor for an expression: give one the name of a measurement, as name=expression"
        )
    return notes


@hookimpl
def collapse_analyses() -> list[object]:
    """The analyses of this file."""
    return [permutation]
