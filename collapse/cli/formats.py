"""Formats in which commands print their tables: for people, for papers, and for programs."""

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from collapse.cli.terminal import json_of, say_aside, say_json, say_whole
from collapse.core.reading import open_regular, read_json
from collapse.errors import CollapseError, UsageError

if TYPE_CHECKING:
    import pandas as pd

    from collapse.measurement.table import Table

Command = TypeVar("Command", bound=Callable[..., Any])

_SUFFIXES = {".csv": "csv", ".json": "json", ".md": "markdown", ".tex": "latex"}
_MARKS = {"markdown": "<!-- a table of collapse -->\n", "latex": "% a table of collapse\n"}
"""First line of a file of a format whose tables do not show what they are: a command replaces such files only."""

_JSON = f"{__name__}.json"
_LONGEST_LINE = 1 << 20
FORMATS = ("table", "markdown", "latex", "csv", "json")


def table_options(*, output: str | None = None) -> list[click.Option]:
    """Return the options of a command that prints a table: ``--format``, ``--json`` for its JSON, and ``--output``.

    The command gets the arguments ``format_`` (None means "table") and ``output``.

    Args:
        output: The help text of ``--output``.
    """
    written = output or f"Write it to a file too: {', '.join(_SUFFIXES)}."
    return [
        click.Option(
            ["--format", "format_"],
            type=click.Choice(FORMATS),
            callback=_chosen,
            help="What is printed.  [default: table]",
        ),
        click.Option(  # eager, so that the other option's callback comes after this one's
            ["--json"],
            is_flag=True,
            is_eager=True,
            expose_value=False,
            callback=_note_json,
            help="The same as --format json.",
        ),
        click.Option(["--output"], metavar="FILE", help=written),
    ]


def _note_json(context: click.Context, _: click.Parameter, given: bool) -> None:
    context.meta[_JSON] = given


def _chosen(context: click.Context, _: click.Parameter, format_: str | None) -> str | None:
    """Return the format of ``--format`` and ``--json``, which must agree."""
    if not context.meta.get(_JSON):
        return format_
    if format_ not in (None, "json"):
        raise UsageError(f"--json contradicts --format {format_}: leave one of them out")
    return "json"


def prints_a_table(*, output: str | None = None) -> Callable[[Command], Command]:
    """Give a command the options of :func:`table_options`."""

    def decorate(command: Command) -> Command:
        params = command.__dict__.setdefault("__click_params__", [])
        params += reversed(table_options(output=output))  # click reads them from the last to the first
        return command

    return decorate


def deliver(format_: str | None, output: str | None, table: "Table", **given: Any) -> None:
    """Print a table, and write it to a file if one is given; arguments as :func:`print_in`.

    Raises:
        UsageError, CollapseError: As :func:`write_in`.
    """
    print_in(format_, table, **given)
    if output:
        write_in(output, table, **given)
        say_aside(f"written to {output}")


def print_in(
    format_: str | None, table: "Table", *, data: Any = None, frame: "Callable[[], pd.DataFrame] | None" = None
) -> None:
    """Print a table in a format.

    Args:
        format_: One of :data:`FORMATS`; "table" or None prints in the terminal's width.
        table: What people read, with about four digits.
        data: What ``json`` prints, if that is not the table's own.
        frame: Makes what ``csv`` prints, in full precision, if that is not the table's own.
    """
    if format_ in (None, "table"):
        from collapse.cli.rendering import print_table

        print_table(table)
    elif format_ == "json":
        say_json(table.data() if data is None else data)
    else:
        try:
            say_whole(_rendered(format_, table, data, frame).rstrip("\n"))
        except UnicodeError as error:
            raise CollapseError("a name in the table is not UTF-8: use --format json") from error


def _rendered(format_: str, table: "Table", data: Any, frame: "Callable[[], pd.DataFrame] | None") -> str:
    """Return a table in a format for files; the arguments are those of :func:`print_in`."""
    from collapse.measurement.results import as_csv

    if format_ == "csv":
        return as_csv((frame or table.with_average)()).decode()
    if format_ == "json":
        return json_of(table.data() if data is None else data)
    return table.markdown() if format_ == "markdown" else table.latex()


def check_suffix(path: str | None, more: Sequence[str] = (), *, first: str | None = None) -> None:
    """Check an ``--output`` before any work is done.

    Args:
        path: The file, or None.
        more: Suffixes that the command writes itself; it checks such files itself too.
        first: First column of the table to write, where that is known before.

    Raises:
        UsageError: Its suffix names no format, it cannot be written, or the file exists and is another table, or none.
    """
    from collapse.stores.writing import check_output_place

    if path is None:
        return
    check_output_place(path, in_folder=True)
    known = [*more, *(each for each in _SUFFIXES if each not in more)]
    suffix = Path(path).suffix.lower()
    if suffix not in known:
        raise UsageError(f"the format of {path} is unknown: its name must end in {', '.join(known)}")
    if suffix not in more and not _may_be_replaced(Path(path), _SUFFIXES[suffix], first):
        raise _not_ours(path)


def _not_ours(path: str) -> UsageError:
    return UsageError(f"{path} exists and was not written by this command: choose another --output, or remove it")


def write_in(path: str, table: "Table", *, data: Any = None, frame: "Callable[[], pd.DataFrame] | None" = None) -> None:
    """Write a table into the file of ``--output``, in the format of its suffix (see :func:`print_in`).

    Raises:
        UsageError: The file exists and is another table, or none.
        CollapseError: It cannot be written.
    """
    from collapse.stores.writing import write_output

    format_ = _SUFFIXES[Path(path).suffix.lower()]
    try:
        made = (_MARKS.get(format_, "") + _rendered(format_, table, data, frame).rstrip("\n") + "\n").encode()
    except UnicodeError as error:
        raise CollapseError(f"cannot write {path}: a name in it is not UTF-8") from error
    if not _replaces_its_like(Path(path), made, format_):
        raise _not_ours(path)
    write_output(path, made)


def _replaces_its_like(path: Path, made: bytes, format_: str) -> bool:
    """Whether a path is free or empty, or holds a table of the same kind, perhaps with other rows and columns."""
    if not path.exists():
        return True
    try:
        with open_regular(path) as file:
            first = file.readline(_LONGEST_LINE)
        if not first or format_ == "json":
            return not first or _kind(_columns(read_json(path))) == _kind(_columns(json.loads(made)))
        ours = made.splitlines(keepends=True)[0]
        return first == ours if format_ in _MARKS else _kind(_heading(first)) == _kind(_heading(ours))
    except (OSError, ValueError):
        return False


def _may_be_replaced(path: Path, format_: str, first: str | None) -> bool:
    """Whether --output may replace what is at a path, as far as can be checked before any work."""
    if format_ in _MARKS:
        return _replaces_its_like(path, _MARKS[format_].encode(), format_)
    if not path.exists():
        return True
    try:
        with open_regular(path) as file:
            line = file.readline(_LONGEST_LINE)
        if not line:
            return True
        there, measured = _kind(_columns(read_json(path)) if format_ == "json" else _heading(line))
    except (OSError, ValueError):
        return False
    return not measured and first in (None, there)


def _kind(columns: Sequence[str]) -> tuple[str | None, bool]:
    """Return what tells the kinds of tables apart: the first column, and whether it is a table of measurements.

    A listing of models also begins with their names, but must not replace what took long to measure.
    """
    from collapse.measurement.results import OURS

    return next(iter(columns), None), set(columns) >= OURS


def _heading(line: bytes) -> list[str]:
    return [each.strip('"') for each in line.decode().rstrip("\r\n").split(",")]


def _columns(data: Any) -> list[str]:
    """Return the keys of an object or of the first one of a list; the type of anything else."""
    some = data[0] if isinstance(data, list) and data else data
    return list(some) if isinstance(some, dict) else [type(some).__name__]
