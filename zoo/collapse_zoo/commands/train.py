"""collapse zoo train: train one model."""

import os
import shlex
from typing import Any

import click

from collapse.cli.terminal import say, say_aside
from collapse_zoo.commands._options import given_source, recipe_values, training_arguments, training_options


@click.command()
@click.argument("model")
@click.option("--output", metavar="DIR", help="The run directory.  [default: runs/NAME]")
@click.option("--seed", type=int, help="Seed of the initialization.  [default: from the name, or 42]")
@click.option("--data-seed", type=int, help="Seed of the order of the chunks.  [default: from the name, or 42]")
@click.option(
    "--measure",
    is_flag=True,
    help="Measure a sample of the text every 500 steps and, after training, the checkpoint of every epoch.",
)
@training_options
def command(
    model: str, output: str | None, seed: int | None, data_seed: int | None, measure: bool, **options: Any
) -> None:
    """Train a model with the paper's recipe.

    MODEL is depth x width, or a longer name: 12x1024, 2x768_10L (10 epochs, decay 0.1), TinyStories-02x0768_01d07.
    Options change the rest of the paper's recipe. To resume after an interruption, run the same command again.
    With several GPUs, torchrun --nproc-per-node 8 -m collapse zoo train MODEL divides the batch among them.

    \b
    collapse zoo train 12x1024
    collapse zoo train 2x64 --generated --chunk-length 256 \\
        --learning-rate 1e-3 --measure
    collapse zoo train 2x128_03d --text train.jsonl \\
        --validation-text validation.jsonl --tokenizer DIR
    """
    from collapse_zoo.recipes import Name, parse

    name = parse(model)  # report an invalid name before anything is loaded
    name.changed(heads=options["heads"]).recipe.check_heads()
    if name.checkpoint is not None:
        raise click.UsageError(f"{model}: training always covers all epochs: remove @{name.checkpoint}")
    from collapse.cli.progress_bar import progress
    from collapse_zoo.training import leave_group, train

    first = int(os.environ.get("RANK", "0")) == 0
    source = given_source(options, remark=first)
    recipe = source.recipe(name, seed=seed, data_seed=data_seed, **recipe_values(options))
    named = Name(recipe, source.label)
    folder = output or f"runs/{named}"
    if first:
        say_aside(
            f"{named}: {recipe.n_params:,} parameters, learning rate {recipe.learning_rate:g}, weight decay "
            f"{recipe.weight_decay:g}, {recipe.precision}, batches of {recipe.batch_size} x {recipe.chunk_length:,} "
            f"tokens of {source.corpus.name}; into {folder}/"
        )
    with progress() as report:
        run = train(recipe, source, folder, measure=measure, progress=report, **training_arguments(options))
    leave_group()
    if first:
        _print_run(run)


def _print_run(run: Any) -> None:
    from collapse import Table
    from collapse.cli.rendering import print_rows, print_table
    from collapse.plugin.plugin_manager import plugins

    columns = ["checkpoint", "step", "validation loss", "accuracy"]
    keys = ("validation_loss", "accuracy")
    rows = [[f"@{each.k}", each.step, *(each.validation.get(key) for key in keys)] for each in run.epochs]
    print_table(Table(run.name, columns, rows))
    if measured := run.results():
        print_rows(measured[-1:], plugins().headlines(), more=f"in {run.path}/results.csv")
        say(f"Every measurement of every epoch: {run.path}/results.csv\nThe statistics: {run.path}/stores/")
    say(f"{run.path} is trained\nmeasure it with: collapse measure {shlex.quote(str(run.path))} --all")
