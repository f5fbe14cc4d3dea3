"""collapse pull: copy a store from the Hugging Face Hub into a folder."""

import click

from collapse.cli.terminal import say


@click.command()
@click.argument("repo")
@click.option("--store", required=True, metavar="DIR", help="Folder of the store.")
def command(repo: str, store: str) -> None:
    """Copy a store from the Hugging Face Hub, and check every file.

    REPO is user/name, or user/name/folder if the repository has several stores; @revision may follow.

    \b
    collapse pull user/a-statistics --store stores/a
    """
    from collapse.hub.sharing import pull

    made = pull(repo, store)
    say(f"{made} is {made.state}: {made.size / 1e6:,.1f} MB, digest {made.digest[:12]}")
