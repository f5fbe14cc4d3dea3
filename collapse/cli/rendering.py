"""Tables for people: as wide as the terminal, without cutting a name or a number.

A table that is too wide is printed as several, which repeat its first columns; headings wrap after ``.``, ``_``, ``-``
and ``/``, texts at spaces.
"""

import os
import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from rich.cells import cell_len
from rich.text import Text

from collapse.cli.terminal import line, say_error
from collapse.core.escaping import visible
from collapse.errors import counted
from collapse.measurement.cells import aligned, is_numeric
from collapse.measurement.table import Table

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table as RichTable

    from collapse.measurement.rows import Row

_UNLIMITED = 10_000
_GAP = 2  # characters between columns
_BELOW = 4  # blanks before a text that stands below its name
_NARROW = 24  # the least width of a column of prose
_PIECES = tuple(re.compile(rf"[^{at}]*[{at}]+|[^{at}]+") for at in (r". ", r"._\-/ "))
"""Pieces of a heading between its lines: broken at dots and blanks, or also at underscores, hyphens and slashes."""


def console(*, stderr: bool = False) -> "Console":
    """Return a rich console; if the output is not a terminal, lines are as long as they need to be."""
    from rich.console import Console

    made = Console(stderr=stderr, highlight=False)
    if not made.is_terminal and not os.environ.get("COLUMNS", "").isdigit():
        made.width = _UNLIMITED
    return made


def print_table(table: Table) -> None:
    """Print a table, divided if the terminal is too narrow for it."""
    table, out = table.for_people(), console()
    columns = [_Column.of(heading, [row[at] for row in table.rows]) for at, heading in enumerate(table.columns)]
    keys, others = columns[: table.keys], columns[table.keys :]
    for above in table.above:
        out.print(line(above, out.width, indent="  "), soft_wrap=True)
    if table.title:
        out.print(line(table.title, out.width, "bold", indent="  "), soft_wrap=True)
    if _width([*keys, *others]) > out.width:
        others = _without_equal(out, others)
    if sum(column.whole for column in columns) + _GAP * (len(columns) - 1) <= out.width:
        out.print(_table(columns))
    elif any(_width([*keys, other]) > out.width for other in others):
        _print_lists(out, keys, others)
    else:
        first, *more = _balanced(keys, others, out.width)
        out.print(_table(_widened([*keys, *first], out.width), out.width))
        for some in more:
            out.print(_table(_widened(_with_values(keys, some), out.width), out.width))
    for note in table.notes:
        out.print(line(f"  {note}", out.width, "dim"), soft_wrap=True)


def print_rows(
    rows: Sequence["Row"], shown: Collection[str] | None = None, *, more: str = "--all, or --metrics NAMES"
) -> None:
    """Print what was measured of some models, and the notes; errors in measuring go to stderr.

    Args:
        rows: A row per model, with the same measurements.
        shown: The measurements to print; None for all.
        more: How to see the others.
    """
    from collapse.measurement.row_tables import headings_of, notes_below, table_of

    out = console()
    for model, about in headings_of(rows):
        heading = line(model + about, out.width, indent="  ")
        heading.stylize("bold", 0, len(visible(model)))
        out.print(heading, soft_wrap=True)
    hidden = 0 if shown is None else len(rows[0].measurements.keys() - set(shown))
    others = [f"{counted(hidden, 'more measurement')}: {more}"] if hidden else []
    print_table(replace(table_of(rows, shown), notes=[*others, *notes_below(rows, shown)]))
    say_failures(rows)


def say_failures(rows: Sequence["Row"]) -> None:
    """Print the errors that occurred in measuring some models, in a line each."""
    from collapse.measurement.comparing import distinct
    from collapse.measurement.row_tables import by_line

    failed = [[f"{note.measurement}: {note.text}" for note in row.notes if note.kind == "error"] for row in rows]
    for said in by_line(failed, distinct(rows)):
        say_error(said)


@dataclass(frozen=True)
class _Column:
    """A formatted column: its cells, the width that cuts no word of them, and whether they are prose."""

    heading: str
    cells: list[str]
    least: int
    prose: bool
    numeric: bool

    @property
    def whole(self) -> int:
        """The width without any line break."""
        return max(map(cell_len, [self.heading, *self.cells]))

    def as_wide_as(self, pieces: re.Pattern[str] | None) -> "_Column":
        """Return the column as wide as the pieces of its heading; None for the whole heading."""
        heading = [self.heading] if pieces is None else _pieces(self.heading, pieces)
        return replace(self, least=max(self.least, *map(cell_len, heading)))

    @classmethod
    def of(cls, heading: str, values: Sequence[Any]) -> "_Column":
        cells = [visible(each) for each in aligned(values)]
        heading, numeric = visible(heading), is_numeric(cells)
        widest = max(map(cell_len, cells), default=0)
        prose = not numeric and widest > _NARROW and any(" " in each for each in cells)
        if prose:
            words = max(cell_len(word) for each in cells for word in each.split())
            widest = max(_NARROW, words)
        return cls(heading, cells, max(widest, *map(cell_len, _pieces(heading))), prose, numeric)


def _pieces(heading: str, pieces: re.Pattern[str] = _PIECES[-1]) -> list[str]:
    return [each.strip() for each in pieces.findall(heading)] or [""]


def _widened(columns: Sequence[_Column], width: int) -> list[_Column]:
    """Return the columns with as many headings unbroken, or broken at dots only, as the width has room for."""
    made = list(columns)
    for pieces in (None, _PIECES[0]):
        wide = [each.as_wide_as(pieces) for each in made]
        for at in sorted(range(len(made)), key=lambda at: wide[at].least - made[at].least):
            if _width(made) + wide[at].least - made[at].least <= width:
                made[at] = wide[at]
    return made


def _heading(column: _Column) -> str:
    """Return a heading in lines that are no wider than its column."""
    width = max(column.least, *map(cell_len, column.cells)) if column.cells else cell_len(column.heading)
    lines = [""]
    whole = next((each for each in _PIECES if max(map(cell_len, _pieces(column.heading, each))) <= width), _PIECES[-1])
    for piece in whole.findall(column.heading):
        if cell_len((lines[-1] + piece).rstrip()) > width:
            lines.append("")
        lines[-1] += piece
    return "\n".join(line.strip() for line in lines)


def _width(columns: Sequence[_Column]) -> int:
    return sum(column.least for column in columns) + _GAP * (len(columns) - 1)


def _without_equal(out: "Console", columns: list[_Column]) -> list[_Column]:
    """Print the columns of one text that all rows share on a line above the table, and return the others."""
    equal = [each for each in columns if not each.numeric and len(each.cells) > 1 and len(set(each.cells)) == 1]
    for column in equal:
        if column.cells[0].strip():
            out.print(line(f"{column.heading}: {column.cells[0]}", out.width, "dim"), soft_wrap=True)
    return [column for column in columns if column not in equal]


def _balanced(keys: list[_Column], others: list[_Column], width: int) -> list[list[_Column]]:
    """Divide columns into as few tables as fit the width, and about equally."""
    fewest = _divided(keys, others, width)
    for narrower in range(width - 1, 0, -1):
        tried = _divided(keys, others, narrower)
        if len(tried) > len(fewest):
            break
        fewest = tried
    return fewest


def _divided(keys: list[_Column], others: list[_Column], width: int) -> list[list[_Column]]:
    runs: list[list[_Column]] = [[]]
    for column in others:
        if runs[-1] and _width([*keys, *runs[-1], column]) > width:
            runs.append([])
        runs[-1].append(column)
    return runs


def _with_values(keys: list[_Column], others: list[_Column]) -> list[_Column]:
    """Return columns without the rows in which the others are blank; a group's name, written once, stays with it."""
    kept, names, group, written = list[int](), list[str](), "", None
    for at, name in enumerate(keys[0].cells):
        group = name or group
        if any(column.cells[at].strip() for column in others):
            kept.append(at)
            names.append(name or ("" if group == written else group))
            written = group
    cells = [names, *([column.cells[at] for at in kept] for column in (*keys[1:], *others))]
    return [replace(column, cells=those) for column, those in zip([*keys, *others], cells, strict=True)]


def _table(columns: Sequence[_Column], limit: int | None = None) -> "RichTable":
    """Return a table, with texts and headings wrapped if it must not be wider than ``limit``."""
    from rich import box
    from rich.table import Table as RichTable

    made = RichTable(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False, show_edge=False)
    spare = 0 if limit is None else limit - _width(columns)
    shown = []
    for column in columns:
        heading = column.heading if limit is None else _heading(column)
        width = column.whole if limit is None else column.least
        if column.prose and limit is not None:  # texts take what the other columns leave, the first ones first
            more = min(spare, max(column.whole - column.least, 0))
            width, spare = width + more, spare - more
        justify: Any = "right" if column.numeric else "left"
        made.add_column(Text(heading), justify=justify, no_wrap=not column.prose, overflow="fold", width=width)
        # rich drops the blanks that align decimal points, unless a cell fills its column
        shown.append([each.rjust(width) if column.numeric else each for each in column.cells])
    for cells in zip(*shown, strict=True):
        made.add_row(*(Text(each, justify="left") for each in cells))
    return made


def _print_lists(out: "Console", keys: list[_Column], others: list[_Column]) -> None:
    """Print each row as a list, for names that are nearly as long as the line."""
    if len(keys) == len(others) == 1 and not others[0].heading:  # a list of records already
        out.print(Text(keys[0].heading, "bold"), soft_wrap=True)
        _print_entries(out, keys[0].cells, others[0].cells)
        return
    for at in range(len(keys[0].cells)):
        out.print(Text("  ".join(key.cells[at] for key in keys), "bold"), soft_wrap=True)
        _print_entries(out, [f"  {each.heading}" for each in others], [each.cells[at] for each in others])


def _print_entries(out: "Console", names: Sequence[str], texts: Sequence[str]) -> None:
    """Print texts beside their names, wrapped at spaces; below its name if a text has a word that is too long."""
    beside = max(map(cell_len, names)) + _GAP
    for name, text in zip(names, texts, strict=True):
        label, longest = name + " " * (beside - cell_len(name)), max(map(cell_len, text.split()), default=0)
        if longest > out.width - cell_len(label):
            out.print(Text(name), soft_wrap=True)
            label = " " * _BELOW
        if longest > out.width - cell_len(label):
            out.print(Text(label + text.strip()), soft_wrap=True)
            continue
        for some in Text(text.strip()).wrap(out, out.width - cell_len(label)) or [Text()]:
            some.rstrip()
            out.print(Text.assemble(label, some))
            label = " " * cell_len(label)
