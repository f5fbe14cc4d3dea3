"""Output for people: tables, progress, notes. Results go to stdout, everything else to stderr."""

import math
import re
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from collapse.cli.terminal import cell, say_aside
from collapse.escaping import visible
from collapse.progress import Report

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table as RichTable

    from collapse.measurement.results import Row, Table
    from collapse.plugin.metrics import Limit


_MODELS_A_TABLE = 4


def console(*, stderr: bool = False) -> "Console":
    """Return a rich console; if the output is not a terminal, lines are not wrapped."""
    from rich.console import Console

    made = Console(stderr=stderr, highlight=False)
    if not made.is_terminal:
        made.width = 200
    return made


def number(value: float | int | None) -> str:
    """Format a number for a table, – for none.

    >>> number(0.00010683900472940877), number(29233), number(None), number(float("-inf"))
    ('0.000106839', '29,233', '–', '−∞')
    """
    if value is None:
        return "–"
    if math.isinf(value):
        return "∞" if value > 0 else "−∞"
    if float(value).is_integer() and abs(value) < 1e12:
        return f"{int(value):,}"
    return f"{value:.6g}"


def print_table(rows: Sequence["Row"]) -> None:
    """Print one table (property, measurement, one value per model, at full collapse, reachable), then the notes."""
    from collapse.measurement.comparing import distinct, mixed

    names = distinct(rows)
    for start in range(0, len(rows), _MODELS_A_TABLE):
        _print_some(rows[start : start + _MODELS_A_TABLE], names[start : start + _MODELS_A_TABLE])
    for remark in mixed(rows):
        console().print(cell(f"  {remark}", "dim"))


def _print_some(rows: Sequence["Row"], names: Sequence[str]) -> None:
    from collapse.plugin.metrics import limits_of
    from collapse.plugin.plugin_manager import plugins

    known = plugins().measurements()
    first = rows[0]
    one_shape = all((row.classes, row.dim) == (first.classes, first.dim) for row in rows)
    table = _table("property", "measurement")
    for model in names:
        table.add_column(cell(model or "value"), justify="right")
    table.add_column("at full collapse", justify="right")
    if one_shape:
        table.add_column("reachable", justify="right")
    before = None
    for name in sorted(first.measurements, key=lambda name: (_rank(known[name][0].property_of(name)), name)):
        metric, measure = known[name]
        property_name = metric.property_of(name)
        limits, _ = limits_of(metric, measure, first.classes, first.dim)  # the row's notes report errors in limits
        towards = limits["towards"] if one_shape else measure.towards
        cells = [property_name if property_name != before else "", name]
        cells += [number(row.measurements.get(name)) for row in rows]
        cells.append(_limit(towards))
        if one_shape:
            each = [limits_of(metric, measure, row.classes, row.dim, row.measurements)[0] for row in rows]
            found = {limit for limits in each if (limit := limits["reachable"]) not in (None, towards)}
            cells.append(
                " to ".join(dict.fromkeys(_limit(limit) for limit in (min(found), max(found)))) if found else ""
            )
        table.add_row(*map(cell, cells))
        before = property_name
    out = console()
    for row, model in zip(rows, names, strict=True):
        out.print(_heading(row, model))
    out.print(table)
    _print_notes(rows, names)


def _heading(row: "Row", model: str) -> Any:
    from rich.text import Text

    corpus = f" on {row.corpus}" if row.corpus else ""
    kept = f", classes of at least {row.min_count} samples" if row.min_count > 1 else ""
    shape = f"C = {row.classes:,} classes, d = {row.dim:,}, N = {row.samples:,} samples{kept}"
    chunks = f"; T = {row.chunk_length:,}" if row.chunk_length else ""
    chunks += f", at most {row.max_chunks:,} chunks" if row.max_chunks else ""
    dtype = f"; {row.dtype}" if row.dtype not in (None, "float32") else ""
    store = f"; store {row.store[:12]}" if row.store else ""
    origin = f" from {row.origin}" if row.origin else ""
    return Text.assemble(cell(model or "statistics", "bold"), cell(f"{corpus}: {shape}{chunks}{dtype}{store}{origin}"))


def _print_notes(rows: Sequence["Row"], names: Sequence[str]) -> None:
    """Print the notes, errors first, grouping those of equal text."""
    out = console()
    for row, model in zip(rows, names, strict=True):
        grouped: dict[str, list[str]] = {}
        for note in sorted(row.notes, key=lambda note: note.kind != "error"):
            grouped.setdefault(note.text, []).append(note.measurement)
        excluded: dict[int, list[str]] = {}
        for name, pairs in row.excluded.items():
            excluded.setdefault(pairs, []).append(name)
        for pairs, left_out in excluded.items():
            text = f"{pairs:,} {'pair' if pairs == 1 else 'pairs'} of classes left out (equal, zero, or of value 0)"
            grouped.setdefault(text, []).extend(left_out)
        who = f"{model}: " if len(rows) > 1 else ""
        for text, measurements in grouped.items():
            out.print(cell(f"  {who}{_several(measurements)}: {text}", "dim"))


def print_analysis(table: "Table") -> None:
    """Print an analysis's table with its notes."""
    made = _table(title=table.title)
    for index, column in enumerate(table.columns):
        made.add_column(cell(column), justify="left" if index == 0 else "right")
    for row in table.rows:
        made.add_row(*[cell(_shown(value)) for value in row])
    out = console()
    out.print(made)
    for note in table.notes:
        out.print(cell(f"  {note}", "dim"))


def print_records(columns: Sequence[str], rows: Sequence[Sequence[Any]], *, title: str | None = None) -> None:
    """Print a plain table of texts and numbers."""
    made = _table(*columns, title=title)
    for row in rows:
        made.add_row(*[cell(_shown(value)) for value in row])
    console().print(made)


@contextmanager
def progress() -> Iterator[Report]:
    """Yield a progress callback, which draws a bar on a terminal and prints a line every ten seconds elsewhere."""
    if sys.stderr.isatty():
        with _bar() as report:
            yield report
    else:
        yield _Lines()


@contextmanager
def _bar() -> Iterator[Report]:
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[rate]}", markup=False),
        TimeRemainingColumn(),
        TextColumn("left"),
    )
    with Progress(*columns, console=console(stderr=True), transient=True) as bar:
        tasks: dict[str, Any] = {}

        def report(what: str, done: int, total: int | None, note: str = "") -> None:
            if what not in tasks:
                tasks[what] = bar.add_task(visible(what), total=total, rate="")
            task = bar.tasks[bar.task_ids.index(tasks[what])]
            rate = visible(note) or (f"{task.speed:,.1f}/s" if task.speed else "")
            bar.update(tasks[what], completed=done, total=total, rate=rate)
            if total is not None and done >= total:
                bar.remove_task(tasks.pop(what))

        yield report


class _Lines:
    """Progress without a terminal: one line every ten seconds, the first after two seconds."""

    def __init__(self) -> None:
        self._next = time.monotonic() + 2
        self._what = ""

    def __call__(self, what: str, done: int, total: int | None, note: str = "") -> None:
        if what != self._what:
            self._what, self._next = what, time.monotonic() + 2
        if time.monotonic() >= self._next:
            self._next = time.monotonic() + 10
            share = f"{done:,} of {total:,} ({done / total:.0%})" if total else f"{done:,}"
            say_aside(f"{what}: {share}{note and f', {note}'}")


def _table(*columns: str, title: str | None = None) -> "RichTable":
    from rich import box
    from rich.table import Table as RichTable

    heading = cell(title, "bold") if title else None
    made = RichTable(box=box.SIMPLE_HEAD, title=heading, title_justify="left", pad_edge=False)
    for column in columns:
        made.add_column(cell(column))
    return made


def _limit(limit: "Limit") -> str:
    return "" if limit is None or callable(limit) else number(limit)


def _shown(value: Any) -> str:
    if value is None:
        return "–"
    return number(value) if isinstance(value, int | float) and not isinstance(value, bool) else str(value)


def _rank(property_name: str) -> tuple[float, int, str]:
    """Sort properties by their number, shorter names first: NC1, NC2, GNC2, NC3; names without a number come last."""
    number = re.search(r"\d+", property_name)
    return (float(number[0]) if number else math.inf, len(property_name), property_name)


def _several(names: list[str]) -> str:
    return ", ".join(names) if len(names) <= 4 else f"{', '.join(names[:3])} and {len(names) - 3} more"
