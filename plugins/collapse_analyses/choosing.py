"""What an analysis correlates: rows and columns chosen by its options, groups, and remarks on what is left out."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from collapse import CollapseError, Results
from collapse.errors import UsageError, counted, near_names
from collapse.measurement.columns import Column, choose_rows, read_column, split_columns
from collapse.measurement.model_names import training_of
from collapse.measurement.prepared import prepared, remarks_on, size_of, sizes_said
from collapse.plugin.plugin_manager import plugins
from collapse_analyses.fits import FEWEST, Codes, Explained, Floats, is_explained

if TYPE_CHECKING:
    import pandas as pd

SETS: Mapping[str, Sequence[str]] = {
    "paper": (
        "nc1.cdnv nc2.equinormness nc2.equiangularity gnc2.uncentred_uniformity nc3.self_duality unc3.uniform_duality "
        "nc4.agreement"
    ).split(),
    "figure1": (
        "log(nc1.cdnv) gnc2.uncentred_uniformity gnc2.hyperspherical_uniformity unc3.uniform_duality nc4.agreement"
    ).split(),
}
"""The seven of the paper's Table 1; the four of Figure 1, with GNC2 as published and by Eq. 7, with centring."""
_LOGGED = "nc1.cdnv"  # one rare pair can be a third of this mean: figures and the paper correlate its logarithm


@dataclass(frozen=True)
class Chosen:
    """Rows and columns of a table.

    Attributes:
        frame: The rows that have every value, with the parts of their models' names.
        goal: The column against which others are tested.
        tested: The others, none of them constant.
        controls: Columns of numbers that are controlled for.
        within: Columns of groups.
        notes: Remarks on rows and columns that are left out or cannot be compared.
    """

    frame: "pd.DataFrame"
    goal: Column
    tested: list[Column]
    controls: list[Column]
    within: list[str]
    notes: list[str]

    def __len__(self) -> int:
        return len(self.frame)

    def values(self) -> Floats:
        """Return the (k, rows) values of the columns, the goal last."""
        return np.stack([column.values for column in (*self.tested, self.goal)])

    def groups(self, *names: str) -> Codes:
        """Return the group of each row by the values of columns, 0 to G−1."""
        return self.frame[list(names)].astype(str).groupby(list(names)).ngroup().to_numpy(np.int64)


def names_of(texts: str | Sequence[str] | None, frame: "pd.DataFrame", option: str) -> list[str]:
    """Split lists of column names at commas, except inside the exact name of a column.

    Raises:
        UsageError: The table has no such column.
    """
    given = [texts] if isinstance(texts, str) else list(texts or ())
    pieces = [piece.strip() for text in given for piece in ([text] if text in frame else text.split(","))]
    names = list(dict.fromkeys(filter(None, pieces)))
    for name in names:
        if name not in frame:
            raise UsageError(f"no column is called {name!r} ({option}); {near_names(name, map(str, frame.columns))}")
    return names


def choose(
    results: Results,
    *,
    against: str = "",
    columns: str | Sequence[str] | None,
    where: str | Sequence[str] | None,
    within: str | Sequence[str] | None = None,
    named: Mapping[str, Any] | None = None,
    controls: str | Sequence[str] | None = None,
    logarithms: bool = False,
) -> Chosen:
    """Choose the columns, and the rows that match the filters and have a value in each column.

    Args:
        results: The table.
        against: The goal, as columns are written; the first of ``named`` if it is "".
        columns: The columns to test; None for every measurement.
        where: Filters of rows.
        within: Columns of groups, in which a row needs a value.
        named: Further such columns of any kind, by the option that names them.
        controls: Columns of numbers, as columns are written.
        logarithms: Test the logarithm of the mean CDNV too, if no columns are named.

    Raises:
        UsageError: An unknown column, or an expression that cannot be read.
        CollapseError: Fewer than 3 rows, or no column to test; a named column is constant.
    """
    whole = prepared(results)
    frame = choose_rows(whole, where)
    filters = where if isinstance(where, str) else " and ".join(where or ())
    notes = [f"{len(frame):,} of {counted(len(whole), 'row')}, with {filters}"] if where else []
    groups = names_of(within, frame, "--within")
    needed = [name for option, names in (named or {}).items() for name in names_of(names, frame, option)]
    against = against or needed[0]
    if against == "val_loss" and against not in frame:
        known = near_names(against, map(str, frame.columns))
        raise UsageError(f"no column is called 'val_loss'; {known}; name the column of the goal with --against")
    goal = read_column(frame, against)
    tested, left_out = _readable(frame, goal, _wanted(frame, columns, logarithms))
    given = [controls] if isinstance(controls, str) else controls or ()
    controlled = [read_column(frame, piece) for text in given for piece in text.split(",")]
    frame, kept, dropped = _complete(frame, [goal, *tested, *controlled], [*groups, *needed])
    goal, tested, controlled = kept[0], kept[1 : len(tested) + 1], kept[len(tested) + 1 :]
    notes += [*dropped, *remarks_on(frame)]
    if len(frame) < 3:
        why = f" ({'; '.join(notes)})" if notes else ""
        raise CollapseError(f"only {counted(len(frame), 'row')} to correlate{why}: at least 3 are needed")
    for column in [goal, *tested]:
        if is_explained(column.values):
            raise CollapseError(
                f"{column.label} is constant, {column.values[0]:.6g} in all {len(frame)} rows: "
                "nothing can correlate with it"
            )
    if left_out:
        notes.append("not tested: " + ", ".join(f"{name} ({why})" for name, why in left_out.items()))
    if not tested:
        raise CollapseError(
            f"no column to test against {against}: {notes[-1] if left_out else 'the table has no known measurement'}; "
            f"name columns or expressions with --columns; it has {', '.join(map(str, frame.columns[:12]))}"
        )
    return Chosen(frame, goal, tested, controlled, groups, notes)


def _wanted(frame: "pd.DataFrame", columns: str | Sequence[str] | None, logarithms: bool) -> dict[str, bool]:
    """The columns to test, and whether each was named itself; without names, every measurement but the goal's kind."""
    import pandas as pd

    if columns is None:
        measurements = plugins().measurements().items()
        names = [name for name, (metric, _) in measurements if metric.property_of(name) != "generalization"]
        wanted = [name for name in names if name in frame]
        if logarithms and _LOGGED in frame and pd.to_numeric(frame[_LOGGED], errors="coerce").gt(0).all():
            wanted.append(f"log({_LOGGED})")
        return dict.fromkeys(wanted, False)
    split = split_columns(columns, frame)
    if not split:
        raise UsageError("--columns names no column: name some, or leave the option out to test all measurements")
    made: dict[str, bool] = {}
    for name, itself in split.items():
        made |= dict.fromkeys(SETS[name], False) if name in SETS else {name: itself}
    return made


def _readable(frame: "pd.DataFrame", goal: Column, wanted: Mapping[str, bool]) -> tuple[list[Column], dict[str, str]]:
    """Read the columns; of those that nobody named itself, return why some cannot be tested.

    They may not cost a row either, such as a debiased ratio that is null where noise decides it.
    """
    tested: list[Column] = []
    left_out: dict[str, str] = {}
    for name, itself in wanted.items():
        if itself:
            tested.append(read_column(frame, name))
        elif name not in goal.names:
            try:
                column = read_column(frame, name)
            except CollapseError as error:
                unreadable = str(error).partition(": ")[2] if "is not of numbers" in str(error) else "not in the table"
                left_out[name] = unreadable if isinstance(error, UsageError) else "not finite"
                continue
            values = column.values[~np.isnan(goal.values)]
            null = int(np.isnan(values).sum())
            if null:
                left_out[name] = "null" if null == len(values) else f"null in {counted(null, 'row')}"
            elif len(values) and is_explained(values):
                left_out[name] = "constant"
            else:
                tested.append(column)
    return tested, left_out


def _complete(
    frame: "pd.DataFrame", columns: Sequence[Column], named: Sequence[str]
) -> tuple["pd.DataFrame", list[Column], list[str]]:
    """The rows with a value in every column, so that all are tested on the same models; a note on the others."""
    missing = {column.label: np.isnan(column.values) for column in columns}
    missing |= {name: np.asarray(frame[name].isna() | (frame[name] == ""), dtype=np.bool_) for name in named}
    kept = ~np.any(list(missing.values()), axis=0)
    lacking = ", ".join(f"{label} in {int(rows.sum()):,}" for label, rows in missing.items() if rows.any())
    note = f"{counted(int((~kept).sum()), 'row')} left out for missing values: {lacking}"
    complete = [replace(column, values=column.values[kept]) for column in columns]
    return frame.loc[kept], complete, [note] if lacking else []


def left_varying(chosen: Chosen, model: Explained) -> Chosen:
    """Leave out columns of which groups and controls leave nothing; the goal must not be one."""
    equal, goal = " and ".join([*chosen.within, *(each.label for each in chosen.controls)]), chosen.goal
    if model.degrees < 1:
        raise CollapseError(f"{counted(len(chosen), 'row')} are too few for {equal}: no degree of freedom is left")
    if is_explained(goal.values, model.residuals(goal.values)):
        raise CollapseError(f"{goal.label} is constant within equal {equal}: nothing can correlate with it")
    kept = [each for each in chosen.tested if not is_explained(each.values, model.residuals(each.values))]
    gone = ", ".join(each.label for each in chosen.tested if each not in kept)
    if not kept:
        raise CollapseError(f"every column is constant within equal {equal}: {gone}")
    note = [f"not tested: {gone} (constant within equal {equal})"] if gone else []
    return replace(chosen, tested=kept, notes=[*chosen.notes, *note])


def check_groups(chosen: Chosen, names: Sequence[str]) -> None:
    """Refuse columns of groups in which no group has two rows."""
    if not chosen.frame.duplicated(list(names)).any():
        raise UsageError(f"every row has another {' and '.join(names)}: no group has two rows to compare (--within)")


def trained_note(chosen: Chosen, groups_n: Codes) -> list[str]:
    """A warning about groups whose models differ in training, which a trend in both columns would drive."""
    names, training = chosen.within, training_of(chosen.frame, groups_n)
    if not training or training in names:
        return []
    return [
        f"models of equal {' and '.join(names)} differ in {training}: training time may drive both sides; "
        f"--within {names[0]},{training} compares what neither explains"
    ]


def sizes_note(frame: "pd.DataFrame", advice: Sequence[str], *, exchangeable: bool) -> list[str]:
    """A warning about models of different sizes, whose rows are not exchangeable.

    Args:
        frame: The table, with the parts of its models' names.
        advice: What the analysis's options do about it, with ``{size}`` for the column.
        exchangeable: Whether p assumes that rows are exchangeable; with clusters it does not.
    """
    size = size_of(frame)
    if size is None:
        return []
    said = f"{sizes_said(frame)}: size may drive both sides of a correlation"
    said += ", and p assumes that rows are exchangeable" if exchangeable else ""
    many = frame[size].nunique()
    if many < len(frame):  # sizes repeat
        said += f"; {many} values support no p-value over all rows" if many < FEWEST else ""
        said += "".join(f"; {each.format(size=size)}" for each in advice)
    return [said]
