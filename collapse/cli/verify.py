"""collapse verify: hash every file of a store again."""

import click

from collapse.cli.terminal import say, say_error
from collapse.errors import counted


@click.command()
@click.argument("stores", nargs=-1, required=True, metavar="STORE...")
def command(stores: tuple[str, ...]) -> None:
    """Check every byte of stores against their manifests."""
    from collapse.errors import StoreError
    from collapse.hub.opening import load

    problems = []
    for path in stores:
        store = load(path)
        found = store.verify()
        for problem in found:
            say_error(problem)
        if not found:
            files = counted(len(store.manifest["files"]), "file")
            say(f"{store}: {files}, {store.size / 1e6:,.1f} MB, all match the manifest")
        problems += found
    if problems:
        raise StoreError(
            f"{counted(len(problems), 'file')} {'differs' if len(problems) == 1 else 'differ'} from the manifest: "
            "pull each damaged store again, or collect it again with --recollect"
        )
