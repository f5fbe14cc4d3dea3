"""The columns that an analysis can use, and remarks on the others."""

import re
from collections.abc import Collection, Sequence
from dataclasses import fields
from typing import TYPE_CHECKING

import numpy as np

from collapse import CollapseError, Row
from collapse.errors import UsageError, counted
from collapse.measurement.columns import Column, read_column, split_columns
from collapse.plugin.plugin_manager import plugins
from collapse_analyses.paper_columns import SETS, columns_of

if TYPE_CHECKING:
    import pandas as pd


_LOGGED = "nc1.cdnv"  # one rare pair can be a third of this mean: figures and the paper correlate its logarithm
_MEASUREMENT = re.compile(r"[a-z][a-z0-9_]*(\.[a-z0-9_]+)+")


def _is_constant(column: Column) -> bool:
    """Equal to rounding: (3·a)/a need not give the same number in each row."""
    present = column.values[~np.isnan(column.values)]
    largest = np.abs(present).max()
    return bool(largest == 0 or np.ptp(present / largest) <= 8 * np.finfo(np.float64).eps)


def varying(
    frame: "pd.DataFrame", goal: Column, tested: list[Column], left_out: dict[str, str], named: Collection[str]
) -> list[Column]:
    """The columns that are not constant; one that was named itself, and the goal, must not be."""
    for column in [goal, *tested]:
        if not _is_constant(column):
            continue
        if column.expression in named or column is goal:
            raise CollapseError(
                f"{column.label} is constant, {column.values[0]:.6g} in all {len(frame)} rows: "
                "nothing can correlate with it"
            )
        left_out[column.label] = "constant"
    return [column for column in tested if column.label not in left_out]


def chosen(
    columns: str | Sequence[str] | None, frame: "pd.DataFrame", goal: Column, logarithms: bool = False
) -> tuple[list[Column], dict[str, str], list[str]]:
    """The columns to test, why others are left out, and the expressions that were named themselves.

    Without names, every measurement that the table has and that is not generalization itself. ``paper`` and
    ``figure1`` mean the columns of the paper's Table 1 and Figure 1 that the table has. ``logarithms`` adds that of
    the mean CDNV to all measurements.
    """
    import pandas as pd

    left_out: dict[str, str] = {}
    if columns is None:
        measurements = plugins().measurements().items()
        names = [name for name, (metric, _) in measurements if metric.property_of(name) != "generalization"]
        wanted = {name: False for name in names if name in frame}
        if logarithms and _LOGGED in frame and pd.to_numeric(frame[_LOGGED], errors="coerce").gt(0).all():
            wanted[f"log({_LOGGED})"] = False
    else:
        wanted = _with_sets(split_columns(columns, frame), frame, left_out)
        if not wanted and not left_out:
            raise UsageError("--columns names no column: name some, or leave the option out to test all measurements")
    tested: list[Column] = []
    named: list[str] = []
    for name, itself in wanted.items():
        if itself:
            tested.append(read_column(frame, name))
            named.append(tested[-1].expression)
        elif name not in goal.names:
            _take(name, frame, goal, tested, left_out)
    _check_labels(goal, tested)
    return tested, left_out, named


def _check_labels(goal: Column, tested: Sequence[Column]) -> None:
    """Refuse two columns of one label, which nobody could tell apart in the table of results."""
    first: dict[str, str] = {goal.label: goal.expression}
    for column in tested:
        other = first.setdefault(column.label, column.expression)
        if other != column.expression:
            raise UsageError(
                f"two columns have the label {column.label!r}: {other} and {column.expression}; give them different "
                "labels"
            )


def _with_sets(wanted: dict[str, bool], frame: "pd.DataFrame", left_out: dict[str, str]) -> dict[str, bool]:
    """Replace the names of sets by their columns; columns that the table lacks are left out."""
    made: dict[str, bool] = {}
    for name, itself in wanted.items():
        if name in SETS and name not in frame:
            found, missing = columns_of(name, frame)
            made.update(dict.fromkeys(found, True))
            left_out.update(dict.fromkeys(missing, "not in the table"))
        else:
            made[name] = itself
    return made


def _take(name: str, frame: "pd.DataFrame", goal: Column, tested: list[Column], left_out: dict[str, str]) -> None:
    """Add a column that nobody named to those that are tested, or say why it is left out."""
    try:
        column = read_column(frame, name)
    except CollapseError as error:
        left_out[name] = str(error).partition(": ")[2] if isinstance(error, UsageError) else "not finite"
        return
    null = np.isnan(column.values[~np.isnan(goal.values)])
    if null.any():  # such as a debiased ratio that noise decides: rows matter more than a column that nobody named
        left_out[name] = "null" if null.all() else f"null in {counted(int(null.sum()), 'row')}"
    elif _is_constant(column):
        left_out[name] = "constant"
    else:
        tested.append(column)


def listed(frame: "pd.DataFrame", most: int = 12) -> str:
    """The first columns of a table, for a message: those that only this table has come first."""
    known = {*(field.name for field in fields(Row)), *plugins().measurements()}
    columns = [str(name) for name in frame.columns]
    names = sorted(columns, key=known.__contains__)
    said = ", ".join(names[:most]) + (f" and {len(names) - most} more" if len(names) > most else "")
    unknown = next((name for name in names if name not in known and _MEASUREMENT.fullmatch(name)), None)
    return said + (f"; if {unknown} is a measurement of a plugin, name that with -p" if unknown else "")
