"""collapse status: the progress of collections."""

from typing import TYPE_CHECKING, Any

import click

from collapse.cli.collection_jobs import jobs_of
from collapse.cli.formats import deliver, prints_a_table
from collapse.errors import CollapseError, UsageError

if TYPE_CHECKING:
    from collapse.stores.coverage import Covered


@click.command()
@click.argument("stores", nargs=-1, required=True, metavar="STORE...")
@prints_a_table
def command(stores: tuple[str, ...], format_: str | None, output: str | None) -> None:
    """Show the progress of collections, also while they run.

    STORE is the folder of a store, of an unfinished collection or of a part, or a folder that holds several. Each row
    is a phase of a collection, or a part of a phase, with its saved slices, its speed and the time left.

    \b
    collapse status stores/a
    collapse status parts/*
    """
    from collapse.core.paths import expanded
    from collapse.measurement.table import Table
    from collapse.stores.coverage import covered

    table, jobs = list[list[Any]](), list[str]()
    for folder in map(expanded, stores):
        try:
            record, said, _ = jobs_of(folder)
        except CollapseError as error:  # SLURM may not be on this machine
            record, said = {}, str(error)
        rows_of = {each: covered(each, record.get("parts")) for each in (folder, *sorted(folder.glob("*/")))}
        if not (said or any(rows_of.values())):
            said = f"no slice is saved in {folder} yet: wait, or give the --store of collapse collect"
            if not folder.is_dir():
                said = f"there is no folder {folder}: give the --store of collapse collect"
            if len(stores) == 1:
                raise UsageError(said)
        jobs += [said] if said else []
        table += [[str(each), *_row(row)] for each, some in rows_of.items() for row in some]
    columns = ["store", "phase", "part", "done", "of", "state", "chunks/s", "left"]
    deliver(format_, output, Table("", columns, table, jobs))


def _row(each: "Covered") -> list[Any]:
    from datetime import timedelta

    state = "running" if each.running else "done" if each.done == each.slices else "not running"
    left = None if each.seconds_left is None else str(timedelta(seconds=round(each.seconds_left)))
    part = None if each.part is None else "{}/{}".format(*each.part)
    return [each.phase, part, each.done, each.slices, state, each.rate, left]
