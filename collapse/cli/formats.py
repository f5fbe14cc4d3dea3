"""Formats in which commands print their tables: for people, for papers, and for programs."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from collapse.cli.terminal import json_of, say, say_aside
from collapse.errors import CollapseError, UsageError

if TYPE_CHECKING:
    import pandas as pd

    from collapse.measurement.table import Table

Command = TypeVar("Command", bound=Callable[..., Any])
Frame = Callable[[], "pd.DataFrame"]

_SUFFIXES = {".csv": "csv", ".json": "json", ".md": "markdown", ".tex": "latex"}
FOR_PEOPLE = {".md": ["<!-- a table of collapse -->"], ".tex": ["% a table of collapse"]}
"""Formats that show what is printed, and their first line, which says that a command may replace the file."""
_JSON = f"{__name__}.json"
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
            callback=lambda context, _, given: context.meta.update({_JSON: given}),
            help="The same as --format json.",
        ),
        click.Option(["--output"], metavar="FILE", help=written),
    ]


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


def check_suffix(path: str | None, more: Sequence[str] = (), *, first: str | None = None) -> None:
    """Check an ``--output`` before any work is done.

    Args:
        path: The file, or None.
        more: Further suffixes that the command writes.
        first: First column of the table to write, where that is known before.

    Raises:
        UsageError: Its suffix names no format, it cannot be written, or the file exists and is not such a table.
    """
    from collapse.measurement.table_files import check_output

    if path is not None:
        [first] = FOR_PEOPLE.get(Path(path).suffix.lower(), [first])
        check_output(path, [*more, *(each for each in _SUFFIXES if each not in more)], first=first)


def deliver(
    format_: str | None, output: str | None, table: "Table", *, data: Any = None, frame: Frame | None = None
) -> None:
    """Print a table in a format, and write it to a file if one is given.

    Args:
        format_: One of :data:`FORMATS`; "table" or None prints in the terminal's width.
        output: The file, or None.
        table: What people read, with about four digits.
        data: What ``json`` prints, if that is not the table's own.
        frame: Makes what ``csv`` prints, in full precision, if that is not the table's own.

    Raises:
        UsageError: The file exists and is another table, or none.
        CollapseError: It cannot be written.
    """
    print_in(format_, table, data=data, frame=frame)
    if output:
        write_in(output, table, data=data, frame=frame)
        say_aside(f"written to {output}")


def print_in(format_: str | None, table: "Table", *, data: Any = None, frame: Frame | None = None) -> None:
    """Print a table in a format; arguments as of :func:`deliver`."""
    if format_ in (None, "table"):
        from collapse.cli.rendering import print_table

        print_table(table)
    else:
        try:
            say(_rendered(format_, table, data, frame))
        except UnicodeError as error:
            raise CollapseError("a name in the table is not UTF-8: use --format json") from error


def write_in(path: str, table: "Table", *, data: Any = None, frame: Frame | None = None) -> None:
    """Write a table into the file of ``--output``, in the format of its suffix; as :func:`deliver`."""
    from collapse.measurement.table_files import check_output, first_of
    from collapse.stores.writing import write_output

    suffix = Path(path).suffix.lower()
    try:
        made = "\n".join([*FOR_PEOPLE.get(suffix, []), _rendered(_SUFFIXES[suffix], table, data, frame), ""])
        check_output(path, list(_SUFFIXES), first=first_of(made, suffix))
        write_output(path, made.encode())
    except UnicodeError as error:
        raise CollapseError(f"cannot write {path}: a name in it is not UTF-8") from error


def _rendered(format_: str | None, table: "Table", data: Any, frame: Frame | None) -> str:
    """Return a table in a format for files, without the last line break."""
    from collapse.measurement.table_files import as_csv

    if format_ == "csv":
        return as_csv((frame or table.with_average)()).decode().rstrip("\n")
    if format_ == "json":
        return json_of(table.data() if data is None else data)
    return table.markdown() if format_ == "markdown" else table.latex()
