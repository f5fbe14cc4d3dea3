"""``collapse results``: join, extend, convert and show results tables."""

import json
from itertools import takewhile
from typing import TYPE_CHECKING

import click

from collapse.cli.formats import deliver, prints_a_table
from collapse.errors import UsageError, counted, near_names

if TYPE_CHECKING:
    import pandas as pd

_NAMING = ("model", "step", "layer", "group", "min_count")  # columns that name a row


@click.command()
@click.argument("files", nargs=-1, required=True)
@click.option("--set", "added", multiple=True, metavar="NAME=VALUE", help="Add a column. May be given several times.")
@click.option("--parts", is_flag=True, help="Add columns from the models' names: depth, width, epochs, decay, etc.")
@click.option("--where", multiple=True, metavar="NAME=GLOB", help="Keep rows that match. May be given several times.")
@click.option("--columns", metavar="NAMES", help="Print these columns or prefixes.  [default: headlines]")
@prints_a_table
def command(
    files: tuple[str, ...],
    added: tuple[str, ...],
    parts: bool,
    where: tuple[str, ...],
    columns: str | None,
    format_: str | None,
    output: str | None,
) -> None:
    """Join results tables, add columns, convert, and show.

    FILES are .csv, .json or .parquet files, from `collapse measure --output` or from elsewhere, or `paper`, the
    published measurements. All rows are joined to one table.

    \b
    collapse results a.csv b.json --set corpus_size=2 --output all.parquet
    collapse results paper --where width=64 --columns val_loss,nc4.agreement
    """
    from collapse.measurement.results import Results, join
    from collapse.measurement.table import Table

    new = dict(map(_named, added))
    table = join(files, columns=new, parts=parts, where=where or None)
    names = _chosen(columns, table.frame(), list(new))
    part = Results.from_frame(table.frame()[names])
    rows = [list(record.values()) for record in part.data()]
    source = table if columns is None else part  # by default, files and JSON have every column
    keys = max(1, len([*takewhile(_NAMING.__contains__, names)]))
    deliver(format_, output, Table(counted(len(part), "row"), names, rows, keys=keys, source=source))


def _named(text: str) -> tuple[str, str | int | float]:
    """Parse ``--set NAME=VALUE``; a value that is a number in JSON becomes a number, any other value a text."""
    name, equals, value = text.partition("=")
    if not (name and equals):
        raise UsageError(f"--set must be NAME=VALUE, got {text!r}")
    try:
        read = json.loads(value)
    except ValueError:
        return name, value
    return name, read if isinstance(read, int | float) and not isinstance(read, bool) else value


def _chosen(columns: str | None, frame: "pd.DataFrame", added: list[str]) -> list[str]:
    """Return the names of the columns to print.

    By default, these are ``model``, the columns in ``added``, and the headlines. They also include ``step``, ``layer``
    and ``group`` if rows have values there, and ``min_count`` if its values differ. If the table has no headline, all
    columns are printed.
    """
    from collapse.measurement.columns import split_columns
    from collapse.plugin.parameter_names import OF_OTHERS
    from collapse.plugin.plugin_manager import plugins

    if columns is not None:
        wanted = list(split_columns(columns, frame))
    else:
        known = [name for name in ("val_loss", *plugins().headlines(OF_OTHERS)) if name in frame]
        apart = [name for name in _NAMING[1:-1] if name in frame and frame[name].notna().any()]
        apart += ["min_count"] if "min_count" in frame and frame["min_count"].nunique() > 1 else []
        wanted = [*apart, *added, *known] if known else [str(name) for name in frame.columns]
    for name in wanted:
        if name not in frame:
            raise UsageError(f"no column is called {name!r} (--columns); {near_names(name, map(str, frame.columns))}")
    return list(dict.fromkeys([*(["model"] if "model" in frame else []), *wanted]))
