"""The zoo's commands. This module is loaded at every start of ``collapse``, so it imports nothing heavy."""

import click

from collapse import hookimpl
from collapse.cli.options import InOrder
from collapse_zoo.commands import catalogue, demo, publish, sweep, train


@click.group(cls=InOrder)
def zoo() -> None:
    """Train, list and sweep the TinyStories models.

    \b
    collapse zoo list --width 768 --decay 0.1  the paper's models and your runs
    collapse zoo info 12x1024_10L              one model: recipe and measurements
    collapse zoo train 2x64 --generated        train one, offline
    collapse zoo sweep 1,2x64,128 --generated  train and measure many
    """


zoo.add_command(catalogue.list_command, "list")
zoo.add_command(catalogue.info_command, "info")
zoo.add_command(train.command, "train")
zoo.add_command(sweep.sweep_command, "sweep")
zoo.add_command(sweep.status_command, "status")
zoo.add_command(publish.command, "publish")


@hookimpl
def collapse_commands(cli: click.Group) -> None:
    """Add ``collapse demo`` and ``collapse zoo``."""
    cli.add_command(demo.command, "demo")
    cli.add_command(zoo)
