"""collapse demo: show neural collapse in a small model, offline."""

import logging
from pathlib import Path
from typing import Any

import click

from collapse.cli.terminal import say, say_aside


@click.command()
@click.option("--output", default="collapse-demo", show_default=True, metavar="DIR", help="Folder for all files.")
def command(output: str) -> None:
    """Show neural collapse in a small model, offline.

    Trains a GPT-Neo of 2 layers and width 128 on 20 generated stories for 243 epochs, and measures it at its
    initialization and at five checkpoints. Writes results and a report with curves. Takes one to two minutes on two
    cores; finished work is reused.
    """
    from collapse import CollapseError, report
    from collapse.cli.progress_bar import progress
    from collapse.cli.rendering import print_table
    from collapse_zoo.demo import demo

    say_aside(f"Training and measuring a small model in {output}/ …")
    log = logging.getLogger("collapse")
    if log.level == logging.INFO:  # without a terminal, there would be a line per phase of six models
        log.setLevel(logging.WARNING)
    with progress() as shown:
        table = demo(output, progress=shown)
        sources = [f"{output}/results.json", *sorted(map(str, Path(output).glob("*/stores/*")))]
        about: Any = {"title": "Neural collapse during training", "figures": ("training", "run-loss", "nulls")}
        try:
            made = f"The curves: {report(sources, f'{output}/report.html', progress=shown, **about)}"
        except CollapseError as error:
            made = f"No report is written: {error}"
    print_table(table)
    say(
        f"""
Read down: the embeddings before each token shrink to their mean (NC1), the
means get equal norms (NC2 norms) and align with the rows of the classifier
(NC3), and the model predicts the token of the nearest mean (NC4). This continues
long after the training loss is low, although the validation loss rises again.
The angles between the means (NC2 angle) become those of random directions, not
those of a simplex. The row "permuted" shows embeddings unrelated to labels.

{made}
Every measurement: {output}/results.csv. Next, measure your own model:

  collapse measure MODEL --text train.jsonl --validation-text validation.jsonl"""
    )
