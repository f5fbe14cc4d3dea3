"""``collapse rarest STORE``: a command. It is loaded when it is used, and may import what it likes."""

import click

import collapse
from collapse.cli.rendering import print_table


@click.command()
@click.argument("store")
@click.option("--top", default=5, show_default=True, help="How many.")
def rarest(store: str, top: int) -> None:
    """The classes of a store with the fewest samples."""
    s = collapse.load(store).statistics()
    order = s.counts.argsort(stable=True)[:top].tolist()
    print_table(
        collapse.Table("Rarest", ["class", "samples"], [[int(s.classes[row]), int(s.counts[row])] for row in order])
    )
