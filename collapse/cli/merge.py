"""collapse merge: merge parts into one store."""

import click

from collapse.cli.terminal import say
from collapse.errors import counted


@click.command()
@click.argument("stores", nargs=-1, required=True, metavar="STORE...")
@click.option("--store", "target", required=True, metavar="DIR", help="Folder of the merged store.")
def command(stores: tuple[str, ...], target: str) -> None:
    """Merge the parts of one collection, given in any order.

    Parts of the training pass give a store that is trained, not validated; copies of one trained store that hold parts
    of the validation pass give a complete one.

    \b
    collapse merge parts/* --store stores/a
    """
    from collapse.stores.merging import merge

    made = merge(stores, store=target)
    say(f"{made} is {made.state}: {counted(len(stores), 'part')} merged, digest {made.digest[:12]}")
    if made.state == "trained":
        say(f"validate it with: collapse collect MODEL --store {made} --validation-text FILES")
