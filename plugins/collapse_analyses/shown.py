"""Make tables of analyses: files get all digits; printed tables have three, and show an interval in one column."""

from collections.abc import Mapping, Sequence
from typing import Any

from collapse import Table

Record = Mapping[str, Any]
Cell = str | tuple[str, ...]
"""What a printed column shows: the name of one value, printed unchanged; or a tuple of names and, last, a format.

Several formatted values are joined by "to".
"""
_SMALLEST = 1e-6  # smaller p-values are printed as a bound, because their digits depend on the assumed noise
SIGNED, SHARE, THREE, P = "+.3f", ".3f", "#.3g", "p-value"
"""Formats of correlations, of R², of other numbers, and of p-values."""


def table_of(
    title: str, records: Sequence[Record], notes: Sequence[str], headings: Mapping[str, Cell], keys: int = 1
) -> Table:
    """Return a table with a row per record.

    Each of ``headings`` is a heading of the printed table, with what its column shows. ``keys`` is the number of
    leading columns that name a row.
    """
    rows = [[_cell(record, cell) for cell in headings.values()] for record in records]
    values = [list(record.values()) for record in records]
    return Table(title, list(records[0]), values, list(notes), shown=Table("", list(headings), rows, keys=keys))


def predicted_note(goal: str, effects: int) -> str:
    """Return the note on the column of predicted signs; ``effects`` is the number of groupings that are subtracted."""
    if effects > 1:
        return "predicted: no sign is predicted if the effects of several columns are subtracted"
    sign = f"predicted: the sign of r if better {goal} goes with more collapse; none: no prediction"
    return f"{sign}; ✗: r has the opposite sign, and its interval excludes 0"


def _cell(record: Record, cell: Cell) -> Any:
    """Format one cell of the printed table; return "–" if a value is missing.

    >>> record = {"r_low": -0.5, "r_high": 0.25, "p": 1e-43, "max_t_p": 0.0001, "max_t_p_is_bound": True}
    >>> _cell(record, ("r_low", "r_high", SIGNED)), _cell(record, ("p", P)), _cell(record, ("max_t_p", P))
    ('-0.500 to +0.250', '< 1e-06', '≤ 0.0003')
    """
    if cell == "predicted":
        return f"{record[cell] or 'none'}{' ✗' if record['agrees'] is False else ''}"
    if isinstance(cell, str):
        return record[cell]
    *names, form = cell
    values = [record[name] for name in names]
    if None in values:
        return "–"
    if form != P:
        return " to ".join(f"{value:{form}}".removesuffix(".") for value in values)
    (p,) = values
    if record.get(f"{names[0]}_is_bound"):  # by the rule of three
        return f"≤ {min(3 * p, 1):.3g}"
    return f"{p:#.3g}" if p >= _SMALLEST else f"< {_SMALLEST:g}"
