"""Options of commands that print a table: ``--format``, ``--json`` and ``--output``."""

import click

from collapse.cli.options import with_options
from collapse.cli.terminal import say, say_aside
from collapse.measurement.output import check_output, rendered
from collapse.measurement.table import Table


def _checked(_: click.Context, __: click.Parameter, output: str | None) -> str | None:
    """Reject an ``--output`` that cannot be written, before any work is done."""
    if output is not None:
        check_output(output)
    return output


prints_a_table = with_options(
    click.option(
        "--format",
        "format_",
        type=click.Choice(("table", "markdown", "latex", "csv", "json")),
        help="Format of the printed table.  [default: table]",
    ),
    click.option("--json", "format_", flag_value="json", help="Same as --format json."),
    click.option(
        "--output",
        metavar="FILE",
        callback=_checked,
        help="Also write a file: all values (.csv, .json, .parquet), or the printed table (.md, .tex).",
    ),
)
"""Add the options ``--format``, ``--json`` and ``--output`` to a command. ``--format`` and ``--json`` set the parameter
``format_``; None means "table"."""


def deliver(format_: str | None, output: str | None, table: Table) -> None:
    """Print a table and, if ``output`` is given, also write it to this file. ``format_`` None means "table"."""
    try:
        if output:  # first, because a reader such as head may close the pipe
            table.write(output)
    finally:
        _print(format_, table)
    if output:
        say_aside(f"written to {output}")


def _print(format_: str | None, table: Table) -> None:
    if format_ in (None, "table"):
        from collapse.cli.rendering import print_table

        print_table(table)
    else:
        say(rendered(table, str(format_)).rstrip("\n"))
        if format_ == "csv":  # CSV has no place for notes
            for note in table.notes:
                say_aside(note)
