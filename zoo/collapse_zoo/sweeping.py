"""Sweeps: train and measure the runs of a grid, one after the other or as an array of SLURM jobs, into one table.

A run's record describes its work: recipe, texts, arguments of training, checkpoints to measure. So a job needs only the
run's folder. For several GPUs, torchrun runs ``python -m collapse_zoo.sweeping FOLDER`` in each process.
"""

import logging
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from submitit.helpers import Checkpointable

from collapse.core.progress import Report, numbered
from collapse.core.submitting import submit
from collapse.errors import CollapseError
from collapse.measurement.results import Row
from collapse.stores.lock import locked
from collapse_zoo.grids import GridMember
from collapse_zoo.recipes import Name, Recipe
from collapse_zoo.runs import Run, runs_in, write_rows
from collapse_zoo.sources import Source, find_source
from collapse_zoo.training import check_recipe, described, leave_group, train

log = logging.getLogger("collapse")


@dataclass(frozen=True)
class Swept:
    """The result of a sweep.

    Attributes:
        members: Number of runs.
        rows: One row per measured checkpoint of this sweep, in the order of the members.
        results: The .csv results table of all runs in the folder; there is also a .json file.
        problems: Error messages by the name of the run directory.
    """

    members: int
    rows: list[Row]
    results: Path
    problems: dict[str, str] = field(default_factory=dict)


def sweep(
    members: Sequence[GridMember],
    source: Source,
    folder: str | Path,
    *,
    values: Mapping[str, Any] | None = None,
    training: Mapping[str, Any] | None = None,
    gpus: int = 1,
    slurm: Mapping[str, Any] | None = None,
    progress: Report | None = None,
) -> Swept:
    """Train, collect and measure every member; after an interruption, call it again to resume.

    Args:
        members: Members of a grid.
        source: Text and tokenizer; the text is packed before any job is launched.
        folder: Folder of the run directories, the results table and the jobs' files.
        values: Values of the recipes that replace the paper's.
        training: Further arguments of :func:`collapse_zoo.training.train`.
        gpus: Number of GPUs, on one machine, for each member.
        slurm: Parameters of submitit for SLURM jobs; None to run the members in this process, one after the other.
        progress: Called as progress(what, done, total[, note]).

    Raises:
        UsageError: A recipe is invalid, or SLURM is not available. Errors of single members are returned instead.
        CollapseError: The text cannot be packed, or SLURM rejects the jobs.
    """
    folder = Path(folder)
    planned = _planned(members, source, values or {}, progress)
    here = {"training": dict(training or {}), "processes": max(1, gpus)}
    runs = [Run(folder / name) for name in planned]
    left: list[Run] = []
    problems: dict[str, str] = {}
    for run, (recipe, ks) in zip(runs, planned.values(), strict=True):
        try:
            if _plan(run, recipe, source, ks, here):
                left.append(run)
        except CollapseError as error:
            problems[run.path.name] = str(error)
    if slurm is not None:
        problems |= _submit(left, folder / "jobs", slurm)
    else:
        for number, run in enumerate(left, 1):
            log.info("%d of %d: %s", number, len(left), run.name)
            try:
                work(run, source, progress and numbered(progress, number, len(left)))
            except Exception as error:  # an unexpected error must not stop the other members
                if not isinstance(error, CollapseError):
                    log.exception("%s failed", run.name)
                problems[run.path.name] = described(error)
    with locked(folder, wait=True):
        write_rows(folder, [row for run in runs_in(folder) for row in run.results()])
    rows = [row for run in runs if run.path.name not in problems for row in run.results()]
    return Swept(len(runs), rows, folder / "results.csv", problems)


def work(run: Run, source: Source | None = None, progress: Report | None = None) -> None:
    """Train, collect and measure a run with the number of processes in its record; skip finished work.

    Raises:
        InUseError: Another process trains or measures the run.
        CollapseError: A step failed.
    """
    record, here = run.record, run.record["here"]
    processes = here["processes"]
    if processes > 1 and not (run.finished or torch.distributed.is_torchelastic_launched()):
        torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(processes)]
        done = subprocess.run([*torchrun, "-m", "collapse_zoo.sweeping", str(run.path)], check=False)
        if done.returncode:
            ended = f"torchrun ended with exit code {done.returncode}: see its output above"
            raise CollapseError(run.record.get("problem") or ended)
        return
    source = source or find_source(**here["texts"], tokenizer=here["tokenizer"])
    train(run.recipe, source, run.path, measure=record["measure"], progress=progress, **here["training"])


def _planned(
    members: Sequence[GridMember], source: Source, values: Mapping[str, Any], progress: Report | None
) -> dict[str, tuple[Recipe, set[int]]]:
    """Return the recipe of each run and the numbers k of the checkpoints to measure, by the run's name."""
    made = dict[str, tuple[Recipe, set[int]]]()
    for member in members:
        recipe = source.recipe(member.name, **values)
        ks = set(member.checkpoints) if recipe.epochs == member.name.recipe.epochs else {recipe.epochs - 1}
        chunks = len(source.chunks(recipe.chunk_length, progress))  # packed once, before jobs begin
        if recipe.max_steps:
            ks = {-(-recipe.max_steps // -(-chunks // recipe.batch_size)) - 1}
        if not made:
            check_recipe(recipe, source)  # report an invalid option once, not in a hundred jobs
        name = str(Name(recipe, source.label))
        made[name] = recipe, ks | made.get(name, (recipe, set()))[1]  # --epochs can make members equal
    return made


def _plan(run: Run, recipe: Recipe, source: Source, ks: set[int], here: Mapping[str, Any]) -> bool:
    """Add the work of a run to the run's record; return whether any work is left.

    The work is to train, and to measure the checkpoints @k for k in ``ks``. ``here`` has facts about this machine.

    Raises:
        UsageError: The folder holds another run.
        InUseError: Another process works on the run.
    """
    with locked(run.path):
        run.check_same(recipe, source)
        if run.record.get("state", "waiting") == "waiting":
            run.describe(recipe, source, name=run.path.name, state="waiting")
        record = run.record
        measure = sorted(ks.union(record.get("measure", ())))
        run.update(measure=measure, problem=None, here=record["here"] | here)
    return not (run.finished and run.measured().issuperset(measure))


def _submit(runs: Sequence[Run], folder: Path, slurm: Mapping[str, Any]) -> dict[str, str]:
    """Submit a SLURM array with a job per run, wait until all jobs end, and return the errors by the run's name.

    Raises:
        UsageError: SLURM is not available.
        CollapseError: SLURM rejects the jobs.
    """
    srun = ["--cpus-per-task", str(slurm["cpus_per_task"])]  # srun does not inherit it from sbatch
    jobs = submit(Job(), runs, folder, name="collapse-zoo", slurm_srun_args=srun, **slurm)
    return {
        run.name: run.record.get("problem") or f"its job failed: see {job.paths.stderr}"
        for run, job in zip(runs, jobs, strict=True)
        if job.exception() is not None
    }


class Job(Checkpointable):
    """The callable that submitit runs; a job that is pre-empted or runs out of time is queued again and resumes."""

    def __call__(self, run: Run) -> None:
        """Train and measure a run."""
        logging.basicConfig(level=logging.INFO, format="%(message)s")  # writes to the job's log
        work(run)


if __name__ == "__main__":
    try:
        work(Run(Path(sys.argv[1])))
    except CollapseError as error:
        sys.exit(f"collapse: {error}")
    leave_group()
