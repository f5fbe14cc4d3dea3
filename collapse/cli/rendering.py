"""Tables of measurements and of analyses, for people. Results go to stdout, everything else to stderr."""

from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, Any

from collapse.cli.sheets import console, print_sheet
from collapse.cli.terminal import cell, say_error
from collapse.errors import counted
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
    from collapse.measurement.comparing import distinct, mixed
    from collapse.measurement.row_sheets import sheet_of

    names = distinct(rows)
    out = console()
    for row, model in zip(rows, names, strict=True):
        out.print(_heading(row, model))
    print_sheet(sheet_of(rows, shown))
    hidden = 0 if shown is None else len(rows[0].measurements.keys() - set(shown))
    if hidden:
        out.print(cell(f"  {counted(hidden, 'more measurement')}: {more}", "dim"), soft_wrap=True)
    _print_notes(rows, names, shown)
    for remark in mixed(rows):
        out.print(cell(f"  {remark}", "dim"), soft_wrap=True)
    say_failures(rows)


def say_failures(rows: Sequence["Row"]) -> None:
    """Print the errors that occurred in measuring some models, in a line each."""
    from collapse.measurement.comparing import distinct

    failed = [[f"{note.measurement}: {note.text}" for note in row.notes if note.kind == "error"] for row in rows]
    for line in _by_line(failed, distinct(rows)):
        say_error(line)


def print_analysis(table: "Table") -> None:
    """Print an analysis's table with its notes."""
    print_sheet(table.sheet())


def print_records(columns: Sequence[str], rows: Sequence[Sequence[Any]], *, title: str | None = None) -> None:
    """Print a plain table of texts and numbers."""
    print_sheet(Sheet(columns, rows, title=title))


def _heading(row: "Row", model: str) -> Any:
    from rich.text import Text

    corpus = f" on {row.corpus}" if row.corpus else ""
    kept = f", classes of at least {row.min_count:,} samples" if row.min_count > 1 else ""
    shape = f"C = {row.classes:,} classes, d = {row.dim:,}, N = {counted(row.samples, 'sample')}{kept}"
    chunks = f"; T = {row.chunk_length:,}" if row.chunk_length else ""
    chunks += f", at most {counted(row.max_chunks, 'chunk')}" if row.max_chunks else ""
    dtype = f"; {row.dtype}" if row.dtype not in (None, "float32") else ""
    store = f"; store {row.store[:12]}" if row.store else ""
    origin = f" from {row.origin}" if row.origin else ""
    return Text.assemble(cell(model or "statistics", "bold"), cell(f"{corpus}: {shape}{chunks}{dtype}{store}{origin}"))


def _print_notes(rows: Sequence["Row"], names: Sequence[str], shown: Collection[str] | None) -> None:
    """Print the notes on what is shown, but for errors."""
    out = console()
    for line in _by_line([_notes(row, shown) for row in rows], names):
        out.print(cell(f"  {line}", "dim"))


def _notes(row: "Row", shown: Collection[str] | None) -> list[str]:
    """Return the notes on a row's measurements, a line each; measurements with the same note share one."""
    grouped: dict[str, list[str]] = {}
    for note in row.notes:
        if note.kind != "error" and (shown is None or note.measurement in ("*", *shown)):
            grouped.setdefault(note.text, []).append(note.measurement)
    from collapse.plugin.plugin_manager import plugins

    known = plugins().measurements()
    for name, left_out in row.excluded.items():
        if shown is None or name in shown:
            of_pairs = name in known and known[name][0].kind == "pair"
            what = f"{counted(left_out, 'pair')} of classes" if of_pairs else counted(left_out, "class")
            grouped.setdefault(f"{what} left out (equal, zero, or of value 0)", []).append(name)
    about = {text: "" if "*" in named else f"{_several(named)}: " for text, named in grouped.items()}  # * is the row
    return [f"{about[text]}{text}" for text in grouped]


def _by_line(lines: Sequence[Sequence[str]], names: Sequence[str]) -> list[str]:
    """Return the lines of some models, each line once, with the models' names unless it is of all of them."""
    models: dict[str, list[str]] = {}
    for said, name in zip(lines, names, strict=True):
        for line in said:
            models.setdefault(line, []).append(name)
    return [line if len(of) == len(names) else f"{_several(of)}: {line}" for line, of in models.items()]


def _several(names: list[str]) -> str:
    return ", ".join(names) if len(names) <= 4 else f"{', '.join(names[:3])} and {len(names) - 3} more"
