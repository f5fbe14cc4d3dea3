"""Options of commands that print a table: ``--format``, ``--json`` and ``--output``."""

import click

from collapse.cli.options import Command
from collapse.cli.terminal import say, say_aside
from collapse.errors import CollapseError, UsageError
from collapse.measurement.output import check_output, rendered
from collapse.measurement.table import Table

_JSON = f"{__name__}.json"


def table_options() -> list[click.Option]:
    """Return the options of a command that prints a table: ``--format``, ``--json`` for its JSON, and ``--output``.

    The command gets the arguments ``format_`` (None means "table") and ``output``, which is checked.
    """
    return [
        click.Option(
            ["--format", "format_"],
            type=click.Choice(("table", "markdown", "latex", "csv", "json")),
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
        click.Option(
            ["--output"],
            metavar="FILE",
            callback=_checked,
            help="Write everything to a file too: .csv, .json, .parquet; or what is printed: .md, .tex.",
        ),
    ]


def _chosen(context: click.Context, _: click.Parameter, format_: str | None) -> str | None:
    """Return the format of ``--format`` and ``--json``, which must agree."""
    if not context.meta.get(_JSON):
        return format_
    if format_ not in (None, "json"):
        raise UsageError(f"--json contradicts --format {format_}: leave one of them out")
    return "json"


def _checked(_: click.Context, __: click.Parameter, output: str | None) -> str | None:
    """Refuse an ``--output`` that cannot be written, before any work is done."""
    if output is not None:
        check_output(output)
    return output


def prints_a_table(command: Command) -> Command:
    """Give a command the options of :func:`table_options`."""
    params = command.__dict__.setdefault("__click_params__", [])
    params += reversed(table_options())  # click reads them from the last to the first
    return command


def deliver(format_: str | None, output: str | None, table: Table) -> None:
    """Print a table in a format ("table" or None: in the terminal's width), and write it to a file if one is given.

    Raises:
        CollapseError: It cannot be written, or a name cannot be encoded.
    """
    if format_ in (None, "table"):
        from collapse.cli.rendering import print_table

        print_table(table)
    else:
        try:
            say(rendered(table, str(format_)).rstrip("\n"))
        except UnicodeError as error:
            raise CollapseError("a name in the table is not UTF-8: use --format json") from error
        if format_ == "csv":  # which has no place for them
            for note in table.notes:
                say_aside(note)
    if output:
        table.write(output)
        say_aside(f"written to {output}")
