"""Tables of measurements and of analyses, for people. Results go to stdout, everything else to stderr."""

from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, Any

from collapse.cli.sheets import console, print_sheet
from collapse.cli.terminal import line, say_error
from collapse.errors import counted
from collapse.escaping import visible
from collapse.measurement.sheets import Sheet

if TYPE_CHECKING:
    from collapse.measurement.results import Row
    from collapse.measurement.table import Table


def print_rows(
    rows: Sequence["Row"], shown: Collection[str] | None = None, *, more: str = "--all, or --metrics NAMES"
) -> None:
    """Print what was measured of some models, and the notes; errors in measuring go to stderr.

    Args:
        rows: A row per model, with the same measurements.
        shown: The measurements to print; None for all.
        more: How to see the others.
    """
    from collapse.measurement.row_sheets import headings_of, notes_below, sheet_of

    out = console()
    for model, about in headings_of(rows):
        heading = line(model + about, out.width, indent="  ")
        heading.stylize("bold", 0, len(visible(model)))
        out.print(heading, soft_wrap=True)
    print_sheet(sheet_of(rows, shown))
    hidden = 0 if shown is None else len(rows[0].measurements.keys() - set(shown))
    if hidden:
        out.print(line(f"  {counted(hidden, 'more measurement')}: {more}", out.width, "dim"), soft_wrap=True)
    for said in notes_below(rows, shown):
        out.print(line(f"  {said}", out.width, "dim"), soft_wrap=True)
    say_failures(rows)


def say_failures(rows: Sequence["Row"]) -> None:
    """Print the errors that occurred in measuring some models, in a line each."""
    from collapse.measurement.comparing import distinct
    from collapse.measurement.row_sheets import by_line

    failed = [[f"{note.measurement}: {note.text}" for note in row.notes if note.kind == "error"] for row in rows]
    for said in by_line(failed, distinct(rows)):
        say_error(said)


def print_analysis(table: "Table") -> None:
    """Print an analysis's table with its notes."""
    print_sheet(table.sheet())


def print_records(columns: Sequence[str], rows: Sequence[Sequence[Any]], *, title: str | None = None) -> None:
    """Print a plain table of texts and numbers."""
    print_sheet(Sheet(columns, rows, title=title))
