"""collapse push: push a store to the Hugging Face Hub."""

from typing import Any

import click

from collapse.cli.terminal import say


@click.command()
@click.argument("path", metavar="STORE")
@click.argument("repo")
@click.option("--private", is_flag=True, help="Create the repository as private.")
@click.option("--create-pr", is_flag=True, help="Propose the commit as a pull request.")
@click.option("--into-model-repo", is_flag=True, help="REPO is the model's own repository: keep its card.")
@click.option("--revision", help="Existing branch to commit to.")
def command(path: str, repo: str, **options: Any) -> None:
    """Push a store to the Hugging Face Hub, in one commit.

    REPO is user/name. Without --revision and --into-model-repo, REPO is created if it does not exist. Log in first
    with: hf auth login. A repository can hold several stores; existing files are not sent again.

    \b
    collapse push stores/a user/a-statistics
    collapse push stores/a user/model --into-model-repo --create-pr
    """
    from collapse.hub.sharing import push

    made = push(path, repo, **options)
    if made.url is None:
        say(f"{made.name} already holds this store; nothing was sent")
        return
    say(f"{made.url}\nmeasure it with: collapse measure {made.name}")
