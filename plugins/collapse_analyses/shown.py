"""Tables of analyses: all numbers for files, and the same as people read them, with three digits and intervals."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from collapse import Table

Record = Mapping[str, Any]
DISAGREES = "✗ (agrees: no): r has the other sign, and its interval excludes 0"
"""The mark beside a predicted sign that the data do not have, and what it means."""
SMALLEST = 1e-6
"""The least p-value that is shown; files have them all: the digits of smaller ones depend on the model of noise."""


def table_of(
    title: str,
    records: Sequence[Record],
    notes: Sequence[str],
    headings: Mapping[str, Callable[[Record], Any]],
    keys: int = 1,
) -> Table:
    """Return a table of records, a row each, with what people read under each heading."""
    rows = [[cell(record) for cell in headings.values()] for record in records]
    values = [list(record.values()) for record in records]
    return Table(title, list(records[0]), values, list(notes), shown=Table("", list(headings), rows, keys=keys))


def of(name: str, write: Callable[[Any], Any] = lambda value: value) -> Callable[[Record], Any]:
    """Return the cell of one value of a record."""
    return lambda record: write(record[name])


def span(name: str, write: Callable[[float | None], str] | None = None) -> Callable[[Record], str]:
    """Return the cell of an interval, ``name_low`` to ``name_high``; – for none.

    >>> span("r")({"r_low": -0.5, "r_high": 0.25})
    '-0.500 to +0.250'
    """
    write = write or signed

    def cell(record: Record) -> str:
        low, high = record[f"{name}_low"], record[f"{name}_high"]
        return "–" if low is None or high is None else f"{write(low)} to {write(high)}"

    return cell


def predicted(record: Record) -> str:
    """Return the predicted sign, marked where the data disagree; – for none."""
    mark = f" {DISAGREES[0]}" if record["agrees"] is False else ""
    return f"{record['predicted'] or '–'}{mark}"


def signed(value: float | None) -> str:
    """Format a correlation, with its sign and three digits; – for none.

    >>> signed(0.5), signed(None)
    ('+0.500', '–')
    """
    return "–" if value is None else f"{value:+.3f}"


def fixed(value: float | None) -> str:
    """Format a share, such as R², with three digits behind the point; – for none."""
    return "–" if value is None else f"{value:.3f}"


def three(value: float | None) -> str:
    """Format a number with three digits; – for none.

    >>> three(0.91604), three(123456.0), three(-2.4449e-5), three(0.0), three(None)
    ('0.916', '123,456', '-2.44e-05', '0', '–')
    """
    if not value:
        return "–" if value is None else "0"
    return f"{value:,.0f}" if 1e3 <= abs(value) < 1e9 else f"{value:#.3g}".removesuffix(".")


def p_value(p: float | None, bound: bool = False) -> str:
    """Format a p-value with three digits; of one that no permutation reached, the bound of 95 % (the rule of three).

    >>> p_value(0.04761), p_value(1e-5, bound=True), p_value(1.0), p_value(1e-43)
    ('0.0476', '≤ 3e-05', '1.00', '< 1e-06')
    """
    if p is None:
        return "–"
    if bound:
        return f"≤ {min(3 * p, 1):.3g}"
    return three(p) if p >= SMALLEST else f"< {SMALLEST:g}"
