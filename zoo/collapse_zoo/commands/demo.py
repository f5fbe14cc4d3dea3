"""collapse demo: train and measure eight toy models, offline."""

import logging

import click

from collapse.cli.terminal import say, say_aside


@click.command()
@click.option("--output", default="collapse-demo", show_default=True, metavar="DIR", help="Folder of all files.")
def command(output: str) -> None:
    """Train and measure eight toy models, offline.

    Generates children's stories, trains a tokenizer and small GPT-Neo models of two widths and four seeds, measures
    neural collapse in each, and tests which properties go with the validation loss. Takes two to five minutes,
    depending on the machine; finished work is used again.
    """
    from collapse.cli.progress_bar import progress
    from collapse.cli.rendering import print_rows, print_table
    from collapse.plugin.plugin_manager import plugins
    from collapse_zoo.demo import demo

    say_aside(
        f"Stories, a tokenizer and eight toy models go to {output}/ (two to five minutes, depending on the machine) …"
    )
    log = logging.getLogger("collapse")
    if log.level == logging.INFO:  # off a terminal: eight models have several phases each
        log.setLevel(logging.WARNING)
    with progress(every=30) as report:
        rows, analysis = demo(output, progress=report)
    best = min(rows, key=lambda row: row.measurements["val_loss"] or 0)
    print_rows([best], plugins().headlines(), more=f"in {output}/results.csv")
    print_table(analysis)
    say(
        f"""
The first table is the best of eight toy models; the second tests what goes
with their validation loss among models of equal width. The models are few and
tiny: read this as an example of the output, not as a result.

{output}/ holds text/, models/, stores/ and results.csv, a row per model. Next:

  collapse measure {output}/stores/* --metrics nc1,nc4
  collapse analyze permutation {output}/results.csv --within dim --columns nc3,nc4
  collapse measure YOUR_MODEL --text train.jsonl --validation-text validation.jsonl
  collapse metrics""",
    )
