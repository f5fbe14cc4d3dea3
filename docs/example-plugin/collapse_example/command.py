"""``collapse rarest STORE``: a command. Loaded at every start, this module imports nothing heavy at the top."""

import click

from collapse import hookimpl


@click.command()
@click.argument("store")
@click.option("--top", default=5, show_default=True, help="How many.")
def rarest(store: str, top: int) -> None:
    """The classes of a store with the fewest samples."""
    import collapse
    from collapse.cli.rendering import print_table

    s = collapse.load(store).statistics()
    order = s.counts.argsort(stable=True)[:top].tolist()
    rows = [[int(s.classes[row]), int(s.counts[row])] for row in order]
    print_table(collapse.Table("Rarest", ["class", "samples"], rows))


@hookimpl
def collapse_commands(cli: click.Group) -> None:
    """Add the command."""
    cli.add_command(rarest)
