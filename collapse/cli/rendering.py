"""Print tables in the width of the terminal, without cutting a name or a number.

A table that is too wide is divided into several tables that repeat its first columns. Headings wrap after ``.``, ``_``,
``-`` and ``/``; texts wrap at spaces.
"""

import os
import re
import textwrap
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from rich.cells import cell_len
from rich.text import Text

from collapse.cli.terminal import say_error
from collapse.core.escaping import visible
from collapse.measurement.cells import aligned, is_numeric
from collapse.measurement.table import Table

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table as RichTable

    from collapse.measurement.rows import Row

_UNLIMITED = 10_000
_GAP = 2  # characters between columns
_PROSE = 24  # minimum width of a column of prose
_WORD = 40  # in prose, longer words are broken
_SHORT = 8  # headings of up to this many characters are not broken
_PIECE = re.compile(r"[^._\-/ ]*[._\-/ ]+|[^._\-/ ]+")


def console(*, stderr: bool = False) -> "Console":
    """Return a rich console. If the output is not a terminal and COLUMNS is not set, lines are not wrapped."""
    from rich.console import Console

    made = Console(stderr=stderr, highlight=False)
    if not made.is_terminal and not os.environ.get("COLUMNS", "").isdigit():
        made.width = _UNLIMITED
    return made


def print_table(table: Table) -> None:
    """Print a table, divided if the terminal is too narrow for it."""
    table, out = table.for_people(), console()
    columns = [_Column.of(heading, [row[at] for row in table.rows]) for at, heading in enumerate(table.columns)]
    if _width(columns) > out.width:
        columns = [column.broken() for column in columns]
    for title in table.title.splitlines():
        print_line(out, title, "bold")
    width = out.width
    for some in _divided(columns[: table.keys], columns[table.keys :], width):
        out.width = max(_width(some), width)  # rich would cut a name that is longer than the line
        out.print(_rich(some, table.keys, out.width))
    out.width = width
    for note in table.notes:
        print_line(out, f"  {note}", "dim")


def print_rows(rows: Sequence["Row"], shown: Collection[str], *, more: str) -> None:
    """Print the measurements of models and the notes on them; print errors to stderr.

    Args:
        rows: A row per model, with the same measurements.
        shown: The measurements to print.
        more: Text of a note that says how to see the other measurements.
    """
    from collapse.measurement.row_tables import whole_table_of

    print_table(whole_table_of(rows, shown, more=more))
    say_failures(rows)


def say_failures(rows: Sequence["Row"]) -> None:
    """Print the errors that occurred when models were measured, one line each."""
    from collapse.measurement.comparable import distinct
    from collapse.measurement.row_tables import by_line

    failed = [[f"{note.measurement}: {note.text}" for note in row.notes if note.kind == "error"] for row in rows]
    for said in by_line(failed, distinct(rows)):
        say_error(said)


@dataclass(frozen=True)
class _Column:
    """A column of a table, with formatted cells. The heading may have line breaks.

    If ``prose`` is true, the cells are texts that wrap at spaces.
    """

    heading: str
    cells: list[str]
    prose: bool
    numeric: bool

    @classmethod
    def of(cls, heading: str, values: Sequence[Any]) -> "_Column":
        cells = [visible(each) for each in aligned(values)]
        numeric, widest = is_numeric(cells), max(map(cell_len, cells), default=0)
        prose = not numeric and widest > _PROSE and any(" " in each for each in cells)
        return cls(visible(heading), cells, prose, numeric)

    @property
    def least(self) -> int:
        """The smallest width at which no number, heading line or word needs to be broken, except very long words."""
        words = [word[:_WORD] for each in self.cells for word in each.split()] if self.prose else self.cells
        return max(map(cell_len, [*self.heading.split("\n"), *words, " " * _PROSE * self.prose]))

    def broken(self) -> "_Column":
        """Return the column with its heading broken into lines to make the column narrow."""
        pieces = _PIECE.findall(self.heading) if len(self.heading) > _SHORT else [self.heading]
        width = max(replace(self, heading="").least, *(cell_len(piece.strip()) for piece in pieces))
        lines = [""]
        for piece in pieces:
            if cell_len((lines[-1] + piece).rstrip()) > width:
                lines.append("")
            lines[-1] += piece
        return replace(self, heading="\n".join(line.strip() for line in lines))


def _width(columns: Sequence[_Column]) -> int:
    return sum(column.least for column in columns) + _GAP * (len(columns) - 1)


def _divided(keys: list[_Column], others: list[_Column], width: int) -> Iterator[list[_Column]]:
    """Divide a wide table: yield the columns of each narrower table.

    Each table has all key columns, and as many of the other columns as fit into ``width``, at least one.
    """
    table = list(keys)
    for column in others:
        if len(table) > len(keys) and _width([*table, column]) > width:
            yield table
            table = list(keys)
        table.append(column)
    yield table


def _rich(columns: Sequence[_Column], keys: int, width: int) -> "RichTable":
    """Return columns as a table of at most this width. The first ``keys`` columns are the key columns.

    A row is excluded if its first cell and all its cells outside the key columns are empty.

    Columns of prose get the spare width, the leftmost first. rich does not choose widths: rich may cut a wide table.
    """
    from rich import box
    from rich.table import Table as RichTable

    table = RichTable(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False, show_edge=False)
    spare = width - _width(columns)
    for column in columns:
        justify: Any = "right" if column.numeric else "left"
        more = min(spare, max(map(cell_len, column.cells), default=0) - column.least) if column.prose else 0
        spare -= more
        wide = column.least + more
        table.add_column(Text(column.heading), justify=justify, no_wrap=not column.prose, width=wide, overflow="fold")
    # rich drops the blanks that align decimal points, unless a cell fills its column
    shown = [[each.rjust(column.least) if column.numeric else each for each in column.cells] for column in columns]
    for cells in zip(*shown, strict=True):
        if not (cells[0] + "".join(cells[keys:])).strip():
            continue
        table.add_row(*(Text(each, justify="left") for each in cells))
    return table


def print_line(out: "Console", text: str, style: str = "") -> None:
    """Print a text literally ([red] is not markup), wrapped between words if the output is a terminal."""
    shown = textwrap.wrap(
        visible(text), out.width, subsequent_indent="  ", break_long_words=False, break_on_hyphens=False
    )
    out.print(Text("\n".join(shown), style), soft_wrap=True)
