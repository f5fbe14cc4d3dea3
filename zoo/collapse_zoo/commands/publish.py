"""collapse zoo publish: publish a run on the Hugging Face Hub."""

import click

from collapse.cli.terminal import say
from collapse.errors import counted


@click.command()
@click.argument("folder", metavar="RUN")
@click.argument("repo", required=False)
@click.option("--private", is_flag=True, help="Make the repository private.")
@click.option("--dry-run", is_flag=True, help="Only list what would be published.")
def command(folder: str, repo: str | None, private: bool, dry_run: bool) -> None:
    """Publish a run: models, stores, results, losses and a card.

    Each epoch's checkpoint becomes a revision. Revisions are numbered from 0, so REPO@9 is the checkpoint after epoch
    10. The branch main is the last revision. The default REPO is your user name and the run's name. To resume after an
    interruption, run the same command again.

    \b
    collapse zoo publish runs/TinyStories-02x0768_01d --dry-run
    collapse zoo publish runs/TinyStories-02x0768_01d user/TinyStories-02x0768_01d
    """
    from pathlib import Path

    from collapse_zoo.publishing import publish, revisions
    from collapse_zoo.runs import Run

    run = Run(Path(folder))
    if dry_run:
        name = repo or f"YOU/{Path(folder).name}"
        planned = revisions(run, name)
        for k, revision in planned.items():
            say(f"{name}@{k}: {', '.join(sorted(revision))}")
        say(f"{counted(len(planned), 'revision')}; nothing was published")
        return
    where, sent = publish(run, repo, private=private)
    what = f"sent {', '.join(f'@{k}' for k in sent)} to" if sent else "everything is already in"
    say(f"{what} {where}\nmeasure it with: collapse measure {where}")
