"""collapse zoo sweep and status: train and measure many models, and show their progress."""

from typing import TYPE_CHECKING, Any

import click

from collapse.cli.formats import prints_a_table
from collapse.cli.terminal import say, say_aside
from collapse.errors import counted
from collapse_zoo.commands._options import given_source, recipe_values, training_arguments, training_options

if TYPE_CHECKING:
    from collapse_zoo.sweeping import Swept


@click.command()
@click.argument("grid")
@click.option("--output", default="runs", show_default=True, metavar="DIR", help="Folder of the run directories.")
@click.option("--vary", help="What the repeats of `seeds` vary: data, init or both.  [default: data]")
@click.option("--seeds", metavar="N,N", help="Each member once with each seed of the initialization.")
@click.option("--data-seeds", metavar="N,N", help="Each member once with each seed of the order.")
@click.option("--launcher", type=click.Choice(["local", "slurm"]), help="As jobs: processes here, or SLURM's.")
@click.option("--parallel", type=click.IntRange(min=1), help="Jobs at a time.  [default: 1 local, 16 on SLURM]")
@click.option("--partition", help="SLURM partition.")
@click.option("--account", help="SLURM account.")
@click.option("--qos", help="SLURM quality of service.")
@click.option("--constraint", help="SLURM constraint, such as a kind of GPU.")
@click.option("--gpus", type=click.IntRange(min=0), help="GPUs per job.  [default: 1 on SLURM]")
@click.option("--cpus", type=click.IntRange(min=1), default=4, show_default=True, help="CPU cores per job.")
@click.option("--memory", type=click.IntRange(min=1), metavar="GB", help="Memory per job.")
@click.option("--hours", type=click.FloatRange(min=0.02), default=24.0, show_default=True, help="Wall time per job.")
@click.option("--dry-run", is_flag=True, help="Only list the members.")
@training_options
def sweep_command(grid: str, output: str, dry_run: bool, **options: Any) -> None:
    """Train, collect and measure many models, into one results table.

    GRID is `paper` (30 architectures, 150 runs, 210 measurements), `seeds` (02x0768_01d and 20 repeats; the paper says
    that they vary the order of the data, in one place also the initialization: --vary), or a product of depths, widths
    and recipes such as 1,2x64,128 or 2x768_01d,10L. Run it again and finished work is not done again.

    \b
    collapse zoo sweep 1,2x64,128 --data-seeds 0,1 --generated --chunk-length 256
    collapse zoo sweep paper --launcher slurm --partition gpu \\
        --account mine --gpus 1 --hours 48
    """
    from collapse_zoo.grids import grid as members_of

    members = members_of(
        grid, vary=options["vary"], seeds=_numbers(options, "seeds"), data_seeds=_numbers(options, "data_seeds")
    )
    for member in members:
        member.name.recipe(heads=options["heads"])  # report heads that do not divide a width before reading any text
    if dry_run:
        for member in members:
            say(" ".join(f"{member.name.short}@{k}" for k in member.checkpoints))
        measurements = counted(sum(len(member.checkpoints) for member in members), "measurement")
        say_aside(f"{counted(len(members), 'run')}, {measurements}")
        return
    from collapse.cli.progress_bar import progress
    from collapse_zoo.launching import Resources
    from collapse_zoo.sweeping import sweep

    slurm = options["launcher"] == "slurm"
    gpus = options["gpus"] if options["gpus"] is not None else int(slurm)
    resources = Resources(
        **{name: options[name] for name in ("partition", "account", "qos", "constraint", "hours", "cpus")},
        gpus=gpus,
        memory_gb=options["memory"],
        parallel=options["parallel"] or (16 if slurm else 1),
    )
    say_aside(f"{counted(len(members), 'member')} into {output}/")
    with progress() as report:
        made = sweep(
            members,
            given_source(options),
            output,
            values=recipe_values(options, cuda=gpus > 0 if slurm else None),
            training=training_arguments(options),
            launcher=options["launcher"],
            resources=resources,
            progress=report,
        )
    _report(made, output)


def _report(made: "Swept", output: str) -> None:
    """Say how a sweep ended; raises CollapseError where members failed."""
    from collapse.errors import CollapseError

    members = counted(made.members, "member")
    if made.rows:
        say(
            f"{counted(len(made.rows), 'measurement')} of {members} in {made.results}; next: "
            f"collapse analyze permutation {made.results}, or: collapse zoo list --local --runs {output}"
        )
    if made.elsewhere:
        say_aside(
            f"{len(made.elsewhere)} of {members} in progress elsewhere, and not in the table: "
            f"{', '.join(made.elsewhere)}; run the same command again for their rows"
        )
    if made.problems:
        lines = "\n".join(f"  {name}: {problem}" for name, problem in made.problems.items())
        raise CollapseError(
            f"{len(made.problems)} of {members} failed; correct this, and run the same command again:\n{lines}"
        )


@click.command()
@click.argument("folder", default="runs", metavar="[DIR]")
@prints_a_table
def status_command(folder: str, format_: str | None, output: str | None) -> None:
    """Show the progress of each member of a sweep, or why it failed."""
    from collapse import Results, Table
    from collapse.cli.formats import deliver
    from collapse.errors import UsageError
    from collapse_zoo.catalogue import status

    members = status(folder)
    if not members and format_ != "json":
        raise UsageError(
            f"there is no run in {folder}: give the folder of --output, or start with: collapse zoo sweep GRID"
        )
    columns = ["member", "epochs", "measured", "published", "state"]
    rows = [_shown(member) for member in members]
    deliver(format_, output, Table("", columns, rows, source=Results.from_records(members)))


def _shown(member: dict[str, Any]) -> list[str]:
    """Return a member's row in the table for people, which has done and planned in one column."""

    def of(name: str) -> str:
        planned = member[f"{name}_planned"]
        return f"{member[name]:,}" if planned is None else f"{member[name]:,} of {planned:,}"

    return [member["member"], of("epochs"), of("measured"), member["published"], member["state"]]


def _numbers(options: dict[str, Any], name: str) -> list[int]:
    from collapse.errors import UsageError

    text = options[name] or ""
    parts = [each.strip() for each in text.split(",") if each.strip()]
    if not all(part.isdigit() for part in parts):
        raise UsageError(f"--{name.replace('_', '-')} must be whole numbers, such as 0,1,2, got {text}")
    return [int(part) for part in parts]
