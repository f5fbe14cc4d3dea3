"""What an analysis correlates: rows and columns chosen by its options, with remarks on what is left out."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from collapse import CollapseError, Results
from collapse.errors import UsageError, counted, near_names
from collapse.measurement.columns import Column, choose_rows, read_column
from collapse.measurement.model_names import with_parts
from collapse_analyses.residuals import Explained, is_explained
from collapse_analyses.rows import complete_rows, remarks
from collapse_analyses.tested_columns import chosen, listed, varying

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True)
class Selected:
    """Rows and columns of a table.

    Attributes:
        frame: The rows that have every value, with the parts of their models' names.
        goal: The column against which others are tested.
        tested: The others, none of them constant.
        controls: Columns of numbers that are controlled for.
        notes: Remarks on rows and columns that are left out or cannot be compared.
        whole: Rows of the whole table.
    """

    frame: "pd.DataFrame"
    goal: Column
    tested: list[Column]
    controls: list[Column]
    notes: list[str]
    whole: int


def table_of(results: Results, where: str | Sequence[str] | None) -> tuple["pd.DataFrame", list[str]]:
    """Return the rows that match filters, with the parts of their models' names, and a note on the filters."""
    whole = with_parts(results.frame())
    frame = choose_rows(whole, where)
    if not where:
        return frame, []
    filters = where if isinstance(where, str) else " and ".join(where)
    return frame, [f"{len(frame):,} of {counted(len(whole), 'row')}, with {filters}"]


def select(
    frame: "pd.DataFrame",
    notes: Sequence[str],
    *,
    against: str,
    columns: str | Sequence[str] | None,
    whole: int,
    named: Sequence[str] = (),
    controls: Sequence[str] = (),
    logarithms: bool = False,
) -> Selected:
    """Choose the columns, and the rows that have a value in each.

    Args:
        frame: The table.
        notes: Remarks so far.
        against: The goal, as columns are written.
        columns: The columns to test; None for every measurement.
        whole: Rows of the whole table, for messages.
        named: Columns of any kind in which a row needs a value.
        controls: Columns of numbers, as columns are written.
        logarithms: Test the logarithm of the mean CDNV too, if no columns are named.

    Raises:
        UsageError: An unknown column, or an expression that cannot be read.
        CollapseError: Fewer than 3 rows, or no column to test; a named column is constant.
    """
    if against == "val_loss" and against not in frame:
        known = near_names(against, map(str, frame.columns))
        raise UsageError(f"no column is called 'val_loss'; {known}; name the column of the goal with --against")
    goal = read_column(frame, against)
    tested, left_out, itself = chosen(columns, frame, goal, logarithms)
    read = [read_column(frame, each) for each in controls]
    frame, (goal, *others), dropped = complete_rows(frame, [goal, *tested, *read], named)
    tested, read = others[: len(tested)], others[len(tested) :]
    notes = [*notes, *dropped, *remarks(frame)]
    if len(frame) < 3:
        why = f" ({'; '.join(notes)})" if notes else ""
        of = f"{len(frame)} of {counted(whole, 'row')}" if len(frame) < whole else counted(whole, "row")
        raise CollapseError(f"only {of} to correlate{why}: at least 3 are needed")
    tested = varying(frame, goal, tested, left_out, itself)
    if left_out:
        notes.append("not tested: " + ", ".join(f"{name} ({why})" for name, why in left_out.items()))
    if not tested:
        raise CollapseError(
            f"no column to test against {against}: {notes[-1] if left_out else 'the table has no known measurement'}; "
            f"name columns or expressions with --columns; it has {listed(frame)}"
        )
    return Selected(frame, goal, tested, read, notes, whole)


def keep(selected: Selected, tested: Sequence[Column], *notes: str) -> Selected:
    """Return the selection with fewer columns, and remarks on those left out."""
    return replace(selected, tested=list(tested), notes=[*selected.notes, *notes])


def left_varying(selected: Selected, model: Explained, of: Sequence[str]) -> Selected:
    """Leave out columns of which groups and controls, named ``of``, leave nothing; the goal must not be one."""
    equal, goal = " and ".join(of), selected.goal
    if is_explained(goal.values, model.residuals(goal.values)):
        raise CollapseError(f"{goal.label} is constant within equal {equal}: nothing can correlate with it")
    gone = [each.label for each in selected.tested if is_explained(each.values, model.residuals(each.values))]
    if len(gone) == len(selected.tested):
        raise CollapseError(f"every column is constant within equal {equal}: {', '.join(gone)}")
    kept = [each for each in selected.tested if each.label not in gone]
    return keep(selected, kept, *([f"not tested: {', '.join(gone)} (constant within equal {equal})"] if gone else []))
