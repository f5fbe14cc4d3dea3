"""Choose the rows, columns and groups of an analysis, note what is excluded, and correlate columns with the goal."""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from collapse import CollapseError, Results
from collapse.errors import UsageError, counted, near_names
from collapse.measurement.columns import (
    LOGARITHM,
    Column,
    choose_rows,
    direction,
    one_width,
    read_column,
    split_columns,
)
from collapse.measurement.model_names import training_of
from collapse.measurement.prepared import TABLE_1, prepared, remarks_on, size_of
from collapse.plugin.plugin_manager import plugins
from collapse_analyses.fits import Codes, Correlation, Floats, Jackknife, LinearModel, linear_model

if TYPE_CHECKING:
    import pandas as pd

Names = str | Sequence[str] | None
"""A string with one or more names, separated by commas; or a list of such strings; or None."""

LOG_CDNV = "log(nc1.cdnv)"
"""The logarithm of CDNV, as in the paper's figures: one rare pair of classes can be a third of the mean CDNV."""
SETS: Mapping[str, Sequence[str]] = {
    "paper": TABLE_1,
    "figure1": (
        LOG_CDNV,
        "gnc2.uncentred_uniformity",
        "gnc2.hyperspherical_uniformity",
        "unc3.uniform_duality",
        "nc4.agreement",
    ),
}
"""Sets of columns by name: the seven of the paper's Table 1, and five for Figure 1.

The set for Figure 1 has two columns for GNC2: as published, and as in Eq. 7.
"""


@dataclass(frozen=True)
class Chosen:
    """The rows and columns that :func:`choose` returns.

    The goal and each tested column still vary after the effects of groups and controls are subtracted.
    """

    frame: "pd.DataFrame"  # the rows that have every value, with the values in their models' names
    goal: Column
    tested: list[Column]
    controls: list[Column]
    within: list[str]
    groupings: list[Codes]  # for each effect of groups, the group of each row, shape (rows,)
    model: LinearModel  # the linear model of the groups and controls
    notes: list[str]  # remarks on rows and columns that are excluded or cannot be compared

    def __len__(self) -> int:
        return len(self.frame)

    def values(self) -> Floats:
        """Return the values of the tested columns and, as the last row, of the goal, shape (k, rows)."""
        return np.stack([column.values for column in (*self.tested, self.goal)])


def groups_of(frame: "pd.DataFrame", names: Sequence[str]) -> Codes:
    """Return the group of each row, 0 to G−1; rows with equal values in these columns form a group."""
    return frame[list(names)].astype(str).groupby(list(names)).ngroup().to_numpy(np.int64)


def names_of(texts: Names, frame: "pd.DataFrame") -> list[str]:
    """Return the columns that an option names.

    Raises:
        UsageError: The table has no such column.
    """
    names = list(split_columns(texts, frame)) if texts else []
    for name in names:
        if name not in frame:
            raise UsageError(f"no column is called {name!r}; {near_names(name, map(str, frame.columns))}")
    return names


def whole(value: Any) -> Any:
    """Convert a value of a column to a Python value; whole floats become integers.

    >>> whole(2.0), whole(0.1), whole("2x16")
    (2, 0.1, '2x16')
    """
    value = value.item() if hasattr(value, "item") else value
    return int(value) if isinstance(value, float) and value.is_integer() else value


def choose(
    results: Results,
    *,
    against: str = "val_loss",
    columns: Names = None,
    where: Names = None,
    within: Names = None,
    joint: bool = False,
    control: Names = None,
    needs: Names = None,
    also: Sequence[str] = (),
) -> Chosen:
    """Choose the columns, and the rows that match the filters and have a value in each column.

    Args:
        results: The table.
        against, columns, where, within, control: As in the analyses' options with these names. If ``columns`` is None,
            every measurement of collapse is tested.
        joint: If true, rows with equal values in all columns of ``within`` form a group. If false, each column defines
            separate groups, and the effects of all columns are subtracted.
        needs: Further columns in which a row needs a value.
        also: Columns that are also tested if the table has them and ``columns`` is None.

    Raises:
        UsageError: A column is unknown, an expression is invalid, or ``within`` puts every row into its own group.
        CollapseError: There are fewer than 3 rows, no degree of freedom or no column to test, or the goal is constant.
    """
    every = prepared(results)
    frame = choose_rows(every, where)
    filters = where if isinstance(where, str) else " and ".join(where or ())
    notes = [f"{len(frame):,} of {counted(len(every), 'row')}, with {filters}"] if where else []
    groups = names_of(within, frame)
    goal = read_column(frame, against)
    tested, left_out = _readable(frame, goal, _wanted(frame, columns, also))
    controls = [read_column(frame, name) for name in split_columns(control, frame)] if control else []
    kept = _complete(frame, [goal, *tested, *controls], [*groups, *names_of(needs, frame)], notes)
    frame = frame.loc[kept]
    notes += remarks_on(frame)
    if len(frame) < 3:
        why = f" ({'; '.join(notes)})" if notes else ""
        raise CollapseError(f"only {counted(len(frame), 'row')} to compare{why}: give at least 3")
    goal, *others = (replace(each, values=each.values[kept]) for each in (goal, *tested, *controls))
    tested, controls = others[: len(tested)], others[len(tested) :]
    groupings = [groups_of(frame, names) for names in ([groups] if joint else [[name] for name in groups]) if names]
    if any(len(np.unique(groups_n)) == len(frame) for groups_n in groupings):
        raise UsageError(
            f"--within {','.join(groups)} puts every row into a group of its own: name a column whose values several "
            "rows share"
        )
    model = linear_model(len(frame), groupings, [each.values for each in controls])
    return _varying(Chosen(frame, goal, tested, controls, groups, groupings, model, notes), left_out)


def _complete(frame: "pd.DataFrame", columns: Sequence[Column], names: Sequence[str], notes: list[str]) -> Any:
    """Return a mask of the rows that have a value in all ``columns``, and in the columns of ``frame`` called ``names``.

    So all columns are tested on the same models. A note on the excluded rows is appended to ``notes``.
    """
    missing = {column.label: np.isnan(column.values) for column in columns}
    missing |= {name: (frame[name].isna() | (frame[name] == "")).to_numpy(np.bool_) for name in names}
    kept = ~np.any(list(missing.values()), axis=0)
    if not kept.all():
        lacking = ", ".join(f"{label} in {int(rows.sum()):,}" for label, rows in missing.items() if rows.any())
        notes.append(f"{counted(int((~kept).sum()), 'row')} excluded for missing values: {lacking}")
    return kept


def _wanted(frame: "pd.DataFrame", columns: Names, also: Sequence[str]) -> dict[str, bool]:
    """Return the names of the columns to test, each with True if the user wrote the column itself.

    The value is False for the columns of a prefix or of a set in :data:`SETS`. If ``columns`` is None, return ``also``
    and all measurements of collapse, with False, as far as the table has them.
    """
    if columns is None:
        measurements = plugins().measurements().items()
        names = [name for name, (metric, _) in measurements if metric.property_of(name) != "generalization"]
        return dict.fromkeys((name for name in [*also, *names] if LOGARITHM.sub(r"\1", name) in frame), False)
    made: dict[str, bool] = {}
    for name, itself in split_columns(columns, frame).items():
        made |= dict.fromkeys(SETS[name], False) if name in SETS else {name: itself}
    return made


def _readable(frame: "pd.DataFrame", goal: Column, wanted: Mapping[str, bool]) -> tuple[list[Column], list[str]]:
    """Read the columns; return also the names of the excluded columns.

    A column that cannot be read, or lacks a value in a row with a goal, is excluded, unless the user wrote the column
    itself. Columns that the goal's expression reads are also skipped, but not listed as excluded.
    """
    tested: list[Column] = []
    left_out: list[str] = []
    for name, itself in wanted.items():
        if itself:
            tested.append(read_column(frame, name))
        elif name not in goal.names:
            with suppress(CollapseError):
                column = read_column(frame, name)
                if not np.isnan(column.values[~np.isnan(goal.values)]).any():
                    tested.append(column)
                    continue
            left_out.append(name)
    return tested, left_out


def _varying(chosen: Chosen, left_out: list[str]) -> Chosen:
    """Exclude the columns that groups and controls explain completely; a constant column is always explained.

    A note lists these columns and ``left_out``, the names of the columns that were excluded before. Raise CollapseError
    if groups and controls explain the goal, or if no column or no degree of freedom is left.
    """
    model, equal = chosen.model, " and ".join([*chosen.within, *(each.label for each in chosen.controls)])
    constant = f"constant among rows of equal {equal}" if equal else "constant"
    if model.degrees < 1:
        raise CollapseError(
            f"{counted(len(chosen), 'row')} are too few to subtract the effect of {equal}: give more rows"
        )
    if model.explains(chosen.goal.values):
        raise CollapseError(
            f"{chosen.goal.label} is {constant}, so it has no correlation: give rows in which it differs, or choose "
            "another --against"
        )
    tested = [each for each in chosen.tested if not model.explains(each.values)]
    left_out += [each.label for each in chosen.tested if each not in tested]
    why = f"{constant}, or without a number in some row: {', '.join(left_out)}"
    note = [f"not tested ({why})"] if left_out else []
    if not tested:
        raise CollapseError(
            f"no column can be tested against {chosen.goal.label} "
            f"({why if left_out else 'the table has no measurement'}): choose other --columns"
        )
    return replace(chosen, tested=tested, notes=[*chosen.notes, *note])


def cautions(chosen: Chosen) -> list[str]:
    """Return a warning if the models differ in size or training, because this may drive both a column and the goal."""
    frame, within = chosen.frame, chosen.within
    if chosen.controls:
        return []
    groups_n = groups_of(frame, within) if within else np.zeros(len(frame), dtype=np.int64)
    name = size_of(frame)
    if name is None or (frame.groupby(groups_n)[name].nunique() < 2).all():
        name = training_of(frame, groups_n)
    if name is None:
        return []
    whose = f"of equal {' and '.join(within)} " if within else ""
    drives = f"may drive both a column and {chosen.goal.label}"
    said = f"models {whose}differ in {name}, which {drives}; they are not exchangeable"
    repeated = frame[name].nunique() < len(frame)
    return [f"{said}: see --within {','.join([*within, name])}" if repeated else said]


def correlated(chosen: Chosen, left_kn: Floats, fits: Jackknife) -> list[tuple[dict[str, Any], Correlation]]:
    """Correlate the residuals of each column with the residuals of the goal, which are the last row of ``left_kn``.

    Returns:
        A pair for each column: a record with r, r_low, r_high, predicted, agrees and R2; and the :class:`Correlation`.
    """
    left_kn = left_kn / np.abs(left_kn).max(axis=1, keepdims=True)
    widths = one_width(chosen.frame) or any(one_width(chosen.frame, each) for each in chosen.groupings)
    goal = direction(chosen.goal, chosen.frame, widths)
    made = []
    for column, found in zip(chosen.tested, fits.correlations(left_kn), strict=True):
        r, low, high, *_ = found
        lower = direction(column, chosen.frame, widths)
        # no sign is predicted with two groupings: residuals need not rise together, even if their columns do
        known = lower is not None and goal is not None and len(chosen.groupings) < 2
        sign = ("r > 0" if lower == goal else "r < 0") if known else None
        sure = sign is not None and low is not None and high is not None and low * high > 0
        record = {"r": r, "r_low": low, "r_high": high, "predicted": sign}
        made.append((record | {"agrees": (r > 0) == (sign == "r > 0") if sure else None, "R2": r**2}, found))
    return made
