"""collapse merge: merge parts into one store."""

import click

from collapse.cli.terminal import say
from collapse.errors import counted


@click.command()
@click.argument("stores", nargs=-1, required=True, metavar="PART...")
@click.option("--store", "target", required=True, metavar="DIR", help="Folder of the merged store.")
def command(stores: tuple[str, ...], target: str) -> None:
    """Merge the parts of one collection, given in any order.

    Merging parts of the training pass gives a "trained" store, which has the training pass but no validation. To
    validate in parts, copy the trained store, collect one part of the validation into each copy, and merge the copies.

    \b
    collapse merge parts/* --store stores/a
    """
    from collapse.stores.merging import merge

    made = merge(stores, store=target)
    say(f"{made} is {made.state}: {counted(len(stores), 'part')} merged, digest {made.digest[:12]}")
    if made.state == "trained":
        on_hub = "name" in (made.identity.get("validation") or {})  # then the store knows where the text is
        text = "" if on_hub else " --validation-text FILES"
        say(f"validate it with: collapse collect MODEL --store {made}{text}")
