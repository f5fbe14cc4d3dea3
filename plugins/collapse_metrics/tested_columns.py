"""The rows and columns that a permutation test can use, and remarks on the others."""

import re
from collections.abc import Collection, Sequence
from dataclasses import fields
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from collapse import CollapseError, Row
from collapse.errors import UsageError, counted, near_names
from collapse.measurement.columns import Column, read_column, split_columns
from collapse.plugin.plugin_manager import plugins
from collapse_metrics.shuffling import Groups, centred

if TYPE_CHECKING:
    import pandas as pd


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
    columns: str | Sequence[str] | None, frame: "pd.DataFrame", goal: Column
) -> tuple[list[Column], dict[str, str], list[str]]:
    """The columns to test, why others are left out, and the expressions that were named themselves.

    Without names, every measurement that the table has and that is not generalization itself.
    """
    if columns is None:
        measurements = plugins().measurements().items()
        names = [name for name, (metric, _) in measurements if metric.property_of(name) != "generalization"]
        wanted = {name: False for name in names if name in frame}
    else:
        wanted = split_columns(columns, frame)
        if not wanted:
            raise UsageError("--columns names no column: name some, or leave the option out to test all measurements")
    tested: list[Column] = []
    named: list[str] = []
    left_out: dict[str, str] = {}
    for name, itself in wanted.items():
        if itself:
            tested.append(read_column(frame, name))
            named.append(tested[-1].expression)
        elif name not in goal.names:
            _take(name, frame, tested, left_out)
    return tested, left_out, named


def _take(name: str, frame: "pd.DataFrame", tested: list[Column], left_out: dict[str, str]) -> None:
    """Add a column that nobody named to those that are tested, or say why it is left out."""
    try:
        column = read_column(frame, name)
    except (CollapseError, UsageError):
        left_out[name] = "not finite"
        return
    if np.isnan(column.values).all():
        left_out[name] = "null"
    elif _is_constant(column):
        left_out[name] = "constant"
    else:
        tested.append(column)


def complete_rows(
    frame: "pd.DataFrame", goal: Column, tested: list[Column], within: str | None = None
) -> tuple["pd.DataFrame", Column, list[Column], list[str]]:
    """The rows with a value in every column, so that all are tested on the same models; a note on the others.

    A row needs a value of the column ``within`` too: rows without one are no group.
    """
    missing = [(column.label, np.isnan(column.values)) for column in [goal, *tested]]
    if within is not None:
        missing.append((within, _lacking(frame, within)))
    kept = ~np.any([rows for _, rows in missing], axis=0)
    if kept.all():
        return frame, goal, tested, []
    lacking = ", ".join(f"{label} in {int(rows.sum()):,}" for label, rows in missing if rows.any())
    note = f"{counted(int((~kept).sum()), 'row')} left out for missing values: {lacking}"
    goal, *tested = [Column(c.label, c.expression, c.names, c.values[kept]) for c in [goal, *tested]]
    return frame.loc[kept], goal, tested, [note]


def _lacking(frame: "pd.DataFrame", within: str) -> NDArray[np.bool_]:
    """Which rows have no value of the column within whose values rows are permuted."""
    if within not in frame:
        raise UsageError(f"no column is called {within!r} (--within); {near_names(within, map(str, frame.columns))}")
    return np.asarray(frame[within].isna() | (frame[within] == ""), dtype=np.bool_)


def repeated(frame: "pd.DataFrame") -> list[str]:
    """A note on rows that were measured of one store: they make a p-value too small."""
    if not {"store", "min_count"} <= set(frame.columns):
        return []
    stores = frame.loc[frame["store"].notna() & (frame["store"] != ""), ["store", "min_count"]]
    again = int(stores.duplicated().sum())
    one = "row repeats the store of another row and counts as a model of its own"
    several = "rows repeat the store of another row and count as models of their own"
    return [f"{again:,} {one if again == 1 else several}"] if again else []


def groups_of(frame: "pd.DataFrame", within: str) -> Groups:
    """Return the group of each row by the values of a column that has one in every row."""
    groups = np.unique([str(value) for value in frame[within]], return_inverse=True)[1]
    if len(np.unique(groups)) == len(frame):
        raise UsageError(f"every row has another {within}: there is nothing to permute within (--within)")
    return np.asarray(groups, dtype=np.int64)


def varying_within(goal: Column, tested: list[Column], groups: Groups, within: str, notes: list[str]) -> list[Column]:
    """Leave out columns that are constant within each group, with a note; the goal must not be."""

    def varies(column: Column) -> bool:
        largest = np.abs(column.values).max()
        return bool(np.abs(centred(column.values / largest, groups)).max() > 8 * np.finfo(np.float64).eps)

    if not varies(goal):
        raise CollapseError(f"{goal.label} is constant within equal {within}: nothing can correlate with it")
    constant = [column.label for column in tested if not varies(column)]
    if len(constant) == len(tested):
        raise CollapseError(f"every column is constant within equal {within}: {', '.join(constant)}")
    if constant:
        notes.append(f"not tested: {', '.join(constant)} (constant within equal {within})")
    return [column for column in tested if column.label not in constant]


def sizes_note(frame: "pd.DataFrame", groups: Groups | None = None) -> list[str]:
    """A note on models of different sizes, whose rows are not exchangeable; with groups, on those within one."""
    name = next((each for each in ("n_params", "dim") if each in frame and frame[each].nunique() > 1), None)
    if name is None:
        return []
    if groups is not None:
        mixed = int((frame[name].groupby(groups).nunique() > 1).sum())
        within = f"models of different {name} are permuted within {mixed} groups: size may drive both sides there"
        return [within] if mixed else []
    advice = f"; --within {name} permutes models of equal {name} only" if frame[name].duplicated().any() else ""
    return [
        f"the models have {frame[name].nunique()} values of {name}: size may drive both sides of a correlation, and p "
        f"assumes that rows are exchangeable{advice}"
    ]


def listed(frame: "pd.DataFrame", most: int = 12) -> str:
    """The first columns of a table, for a message: those that only this table has come first."""
    known = {*(field.name for field in fields(Row)), *plugins().measurements()}
    columns = [str(name) for name in frame.columns]
    names = sorted(columns, key=known.__contains__)
    said = ", ".join(names[:most]) + (f" and {len(names) - most} more" if len(names) > most else "")
    unknown = next((name for name in names if name not in known and _MEASUREMENT.fullmatch(name)), None)
    return said + (f"; if {unknown} is a measurement of a plugin, name that with -p" if unknown else "")
