"""collapse verify: hash every file of a store again."""

import click

from collapse.cli.terminal import say, say_error


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
            say(f"{store}: {len(store.manifest['files'])} files, {store.size / 1e6:,.1f} MB, all as the manifest says")
        problems += found
    if problems:
        files = "1 file is" if len(problems) == 1 else f"{len(problems)} files are"
        raise StoreError(f"{files} not what the manifest says")
