"""collapse zoo sweep and status: train and measure many models, and show their progress."""

from typing import Any

import click

from collapse.cli.formats import prints_a_table
from collapse.cli.options import with_options
from collapse.cli.terminal import say, say_aside
from collapse.errors import CollapseError, UsageError, counted
from collapse.inputs.collection_spec import flag_of
from collapse_zoo.commands._options import (
    given_source,
    recipe_values,
    training_arguments,
    training_options,
)

_SLURM = (
    click.option("--launcher", type=click.Choice(["slurm"]), help="Train each run in a job of a SLURM job array."),
    click.option("--parallel", type=click.IntRange(min=1), default=16, show_default=True, help="Jobs at a time."),
    click.option("--partition", help="SLURM partition."),
    click.option("--account", help="SLURM account."),
    click.option("--qos", help="SLURM quality of service."),
    click.option("--constraint", help="SLURM constraint, such as a kind of GPU."),
    click.option("--gpus", type=click.IntRange(min=0), default=1, show_default=True, help="GPUs per run."),
    click.option("--cpus", type=click.IntRange(min=1), default=4, show_default=True, help="CPU cores per job."),
    click.option("--memory", type=click.IntRange(min=1), metavar="GB", help="Memory per job."),
    click.option("--hours", type=click.FloatRange(0.02), default=24.0, show_default=True, help="Wall time per job."),
)


@click.command()
@click.argument("grid")
@click.option("--output", default="runs", show_default=True, metavar="DIR", help="Folder of the run directories.")
@click.option(
    "--vary", type=click.Choice(["data", "init", "both"]), help="What the repeats of `seeds` vary.  [default: data]"
)
@click.option("--seeds", metavar="N,N", help="Repeat each run with these seeds of the initialization.")
@click.option("--data-seeds", metavar="N,N", help="Repeat each run with these seeds of the order.")
@with_options(*_SLURM)
@click.option("--dry-run", is_flag=True, help="Only list the runs.")
@training_options
def sweep_command(grid: str, output: str, dry_run: bool, **options: Any) -> None:
    """Train, collect and measure many models, into one results table.

    GRID is `paper`, `seeds`, or depths and widths. `paper` has 30 architectures, 150 runs and 210 measured checkpoints.
    `seeds` has 02x0768_01d and 20 repeats; --vary chooses what the repeats vary. Depths and widths, such as 1,2x64,128,
    give one run for each combination. Recipes (epochs, and a letter for the weight decay) may follow, such as
    2x768_01d,10L. If you run the same command again, finished work is kept.

    \b
    collapse zoo sweep 1,2x64,128 --data-seeds 0,1 --generated --chunk-length 256
    collapse zoo sweep paper --launcher slurm --partition gpu \\
        --account mine --gpus 1 --hours 48
    """
    from collapse_zoo.grids import grid as members_of

    repeats = {name: _numbers(name, options[name] or "") for name in ("seeds", "data_seeds")}
    members = members_of(grid, vary=options["vary"], **repeats)
    for member in members:
        member.name.changed(heads=options["heads"]).recipe.check_heads()  # report invalid heads before any text is read
    if dry_run:
        for member in members:
            say(" ".join(f"{member.name.short}@{k}" for k in member.checkpoints))
        measurements = counted(sum(len(member.checkpoints) for member in members), "measurement")
        say_aside(f"{counted(len(members), 'run')}, {measurements}")
        return
    from collapse.cli.progress_bar import progress
    from collapse_zoo.sweeping import sweep

    gpus, slurm = options["gpus"], _slurm(options) if options["launcher"] else None
    say_aside(f"{counted(len(members), 'run')} into {output}/")
    with progress() as report:
        made = sweep(
            members,
            given_source(options),
            output,
            values=recipe_values(options, cuda=gpus > 0 if slurm else None),
            training=training_arguments(options),
            gpus=gpus,
            slurm=slurm,
            progress=report,
        )
    _report(made, output)


def _report(made: Any, output: str) -> None:
    """Print what a sweep measured; raise CollapseError if runs failed."""
    if made.rows:
        say(
            f"{counted(len(made.rows), 'measurement')} of {counted(made.members, 'run')} in {made.results}; next: "
            f"collapse analyze permutation {made.results}, or: collapse zoo list --local --runs {output}"
        )
    if made.problems:
        lines = "\n".join(f"  {name}: {problem}" for name, problem in made.problems.items())
        raise CollapseError(
            f"{len(made.problems)} of {counted(made.members, 'run')} failed: correct the errors, and run the same "
            f"command again:\n{lines}"
        )


@click.command()
@click.argument("folder", default="runs", metavar="[DIR]")
@prints_a_table
def status_command(folder: str, format_: str | None, output: str | None) -> None:
    """Show the progress of each run of a sweep, or why it failed."""
    from collapse import Results, Table
    from collapse.cli.formats import deliver
    from collapse_zoo.catalogue import status

    members = status(folder)
    if not members:
        raise UsageError(
            f"there is no run in {folder}: give the --output of a sweep, or start one with: collapse zoo sweep GRID"
        )
    rows = [list(each.values()) for each in members]
    deliver(format_, output, Table("", list(members[0]), rows, source=Results.from_records(members)))


def _slurm(options: dict[str, Any]) -> dict[str, Any]:
    """Return submitit's parameters for the command's SLURM options, without options that are not set."""
    asked = {f"slurm_{name}": options[name] for name in ("partition", "account", "qos", "constraint")}
    asked |= {"gpus_per_node": options["gpus"] or None, "cpus_per_task": options["cpus"], "mem_gb": options["memory"]}
    asked |= {"timeout_min": round(options["hours"] * 60), "slurm_array_parallelism": options["parallel"]}
    return {name: value for name, value in asked.items() if value is not None}


def _numbers(name: str, text: str) -> list[int]:
    try:
        return [int(part) for part in text.split(",") if part.strip()]
    except ValueError as error:
        raise UsageError(f"{flag_of(name)} {text}: give whole numbers, such as 0,1,2") from error
