"""collapse push: push a store to the Hugging Face Hub."""

from typing import Any

import click

from collapse.cli.terminal import say


@click.command()
@click.argument("path", metavar="STORE")
@click.argument("repo")
@click.option("--private", is_flag=True, help="Make the repository private.")
@click.option("--create-pr", is_flag=True, help="Propose it as a pull request.")
@click.option("--into-model-repo", is_flag=True, help="REPO is the model's own: leave its card alone.")
@click.option("--revision", help="Existing branch to commit to.")
def command(path: str, repo: str, **options: Any) -> None:
    """Push a store to the Hugging Face Hub, in one commit.

    REPO is user/name, created if it does not exist (not with --revision). Log in first with: hf auth login. Several
    stores live side by side in a repository; files that are there already are not sent again.

    \b
    collapse push stores/a user/a-statistics
    collapse push stores/a user/model --into-model-repo --create-pr
    """
    from collapse.hub.opening import cached
    from collapse.hub.sharing import push
    from collapse.stores.store import Store

    made = push(cached(path) or Store.load(path), repo, **options)
    if made.url is None:
        at = f" at {made.revision}" if made.revision else ""
        say(f"{repo} holds this store already, in {made.folder}{at}; nothing was sent")
        return
    say(f"{made.url}\nmeasure it with: collapse measure {made.name}")
