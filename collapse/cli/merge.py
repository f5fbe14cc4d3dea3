"""collapse merge: merge parts into one store."""

import click

from collapse.cli.terminal import say


@click.command()
@click.argument("parts", nargs=-1, required=True, metavar="PART...")
@click.option("--store", "target", required=True, metavar="DIR", help="Folder of the merged store.")
def command(parts: tuple[str, ...], target: str) -> None:
    """Merge all parts of one collection.

    Give the parts in any order, or one folder that holds them. The result is a
    "trained" store, which has the training pass but no validation.

    \b
    collapse merge parts/* --store stores/a
    collapse merge parts --store stores/a
    """
    from collapse.stores.merging import merge

    made = merge(parts[0] if len(parts) == 1 else parts, store=target)  # one folder can hold all parts
    say(f"{made} is {made.state}: merged, digest {made.digest[:12]}")
    if made.state == "trained":
        on_hub = "name" in (made.identity.get("validation") or {})  # the store records the name of the data set
        text = "" if on_hub else " --validation-text FILES"
        say(f"validate it with: collapse collect MODEL --store {made}{text}")
