"""Sweeps: train and measure the runs of a grid, one after the other or as jobs, into one results table.

A run's record says what is to be done: recipe, texts, arguments of training, checkpoints to measure. So a job needs
only the run's folder: ``python -m collapse_zoo.sweeping FOLDER``, which torchrun calls for several GPUs.
"""

import logging
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from collapse.core.progress import Report
from collapse.errors import CollapseError, UsageError, first_line
from collapse.measurement.results import Row, check_output
from collapse.stores.lock import locked
from collapse_zoo.grids import GridMember
from collapse_zoo.recipes import Recipe, name_of
from collapse_zoo.records import describe
from collapse_zoo.runs import Run, runs_in, write_rows
from collapse_zoo.sources import Source, find_source
from collapse_zoo.training import check_recipe, leave_group, numbered, train

log = logging.getLogger("collapse")

_TIMEOUTS = 20  # how often submitit queues a job again that ran out of its time


@dataclass(frozen=True)
class Resources:
    """The resources that a job requests.

    Attributes:
        partition, account, qos, constraint: Options of SLURM.
        hours: Wall time in hours.
        gpus: GPUs per job.
        cpus: CPU cores per job.
        memory_gb: Memory per job; None for the partition's default.
        parallel: Largest number of jobs at a time.
    """

    partition: str | None = None
    account: str | None = None
    qos: str | None = None
    constraint: str | None = None
    hours: float = 24.0
    gpus: int = 0
    cpus: int = 4
    memory_gb: int | None = None
    parallel: int = 1


@dataclass(frozen=True)
class Swept:
    """The result of a sweep.

    Attributes:
        members: Number of runs.
        rows: One row per measured checkpoint of this sweep, in the order of the members.
        results: The results table of all runs in the folder, .csv; there is also a .json file.
        problems: Error messages by member.
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
    launcher: str | None = None,
    resources: Resources | None = None,
    progress: Report | None = None,
) -> Swept:
    """Train, collect and measure every member; repeated after a kill, it resumes and skips finished work.

    Args:
        members: Members of a grid.
        source: Their text and tokenizer; the text is packed here, before anything is launched.
        folder: Folder of the run directories, the results table and the jobs' files.
        values: Values of the recipes that replace the paper's.
        training: Further arguments of :func:`collapse_zoo.training.train`.
        launcher: None to run in this process, one after the other; "local" for several processes on this machine, or
            "slurm" for jobs of SLURM.
        resources: Resources of each job; a member is trained on its ``gpus`` of one machine.
        progress: Called as progress(what, done, total[, note]).
    """
    folder, resources = Path(folder), resources or Resources()
    for table in ("results.csv", "results.json"):
        check_output(folder / table)
    planned = _planned(members, source, values or {}, progress)
    here = {"training": dict(training or {}), "processes": max(1, resources.gpus)}
    problems = dict[str, str]()

    def attempt(run: Run, work: Callable[[], object]) -> None:
        try:
            work()
        except CollapseError as error:
            problems[run.path.name] = str(error)
        except Exception as error:  # an unexpected error must not stop the other members' days of work
            log.exception("%s failed", run.path.name)
            problems[run.path.name] = f"{type(error).__name__}: {first_line(error)}"

    runs = [Run(folder / name) for name in planned]
    for run, (recipe, ks) in zip(runs, planned.values(), strict=True):
        attempt(run, lambda: _plan(run, recipe, source, ks, here))  # noqa: B023  # called at once
    left = [run for run in runs if run.path.name not in problems and not is_done(run)]
    if launcher == "slurm":
        problems |= _submit(left, folder / "jobs", resources)
    elif launcher == "local":
        with ThreadPoolExecutor(resources.parallel) as pool:
            list(pool.map(lambda run: attempt(run, lambda: _in_process(run, folder / "jobs")), left))
    else:
        for number, run in enumerate(left, 1):
            log.info("%d of %d: %s", number, len(left), run.name)
            attempt(run, lambda: work(run, source, numbered(progress, number, len(left))))  # noqa: B023  # as above
    with locked(folder, option="--output", wait=True):
        write_rows(folder, [row for run in runs_in(folder) for row in run.results()])
    rows = [row for run in runs if run.path.name not in problems for row in run.results()]
    return Swept(len(runs), rows, folder / "results.csv", problems)


def work(run: Run, source: Source | None = None, progress: Report | None = None) -> None:
    """Train, collect and measure a member, on as many processes as its record says; finished work is not repeated.

    Raises:
        InUseError: Another process trains or measures it.
        CollapseError: A step failed.
    """
    if run.record["here"]["processes"] > 1 and not run.finished:
        _in_process(run)
    else:
        _work(run, source or _source_of(run), progress)


def is_done(run: Run) -> bool:
    """Whether a member is trained, and every checkpoint that its sweep wants is measured."""
    return run.finished and run.measured().issuperset(run.record.get("measure", ()))


def _work(run: Run, source: Source, progress: Report | None = None) -> None:
    record = run.record
    options = record["here"]["training"]
    train(run.recipe, source, run.path, name=run.name, measure=record["measure"], progress=progress, **options)


def _source_of(run: Run) -> Source:
    here = run.record["here"]
    return find_source(**here["texts"], tokenizer=here["tokenizer"])


def _planned(
    members: Sequence[GridMember], source: Source, values: Mapping[str, Any], progress: Report | None
) -> dict[str, tuple[Recipe, list[int]]]:
    """Return the recipe of each run, by name, and the k of the checkpoints to measure."""
    made = dict[str, tuple[Recipe, list[int]]]()
    for member in members:
        recipe = source.recipe(member.name, **values)
        ks = list(member.checkpoints) if recipe.epochs == member.name.epochs else [recipe.epochs - 1]
        chunks = len(source.chunks(recipe.chunk_length, progress))  # packed once, before jobs begin
        if recipe.max_steps:
            ks = [-(-recipe.max_steps // -(-chunks // recipe.batch_size)) - 1]
        name = str(name_of(recipe, source.label))
        if name in made:  # --epochs or --weight-decay made two members equal
            ks = sorted({*ks, *made[name][1]})
        made[name] = recipe, ks
    for recipe, _ in list(made.values())[:1]:
        check_recipe(recipe, source)  # a wrong option is reported once, not by a hundred jobs
    return made


def _plan(run: Run, recipe: Recipe, source: Source, ks: Sequence[int], here: Mapping[str, Any]) -> None:
    """Write into a run's record what is to be done.

    Raises:
        UsageError: The folder holds another run.
        CollapseError: The finished run has lost its model.
        InUseError: Another process works on it.
    """
    run.check_same(recipe, source.identity())
    if run.finished:
        run.check_model()
    with locked(run.path, option="--output"):
        record = run.record
        if record.get("state", "waiting") == "waiting":
            record = describe(recipe, source, run.path.name) | {"state": "waiting"}
        measure = sorted({*record.get("measure", ()), *ks})
        run.update(**record | {"measure": measure, "problem": None, "here": record["here"] | here})


def _in_process(run: Run, logs: Path | None = None) -> None:
    """Do a run's work in a process of its own, or on several GPUs of this machine; its output may go to a log."""
    processes = run.record["here"]["processes"]
    torchrun = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(processes)]
    command = [sys.executable, *(torchrun if processes > 1 else []), "-m", "collapse_zoo.sweeping", str(run.path)]
    if logs is None:
        done = subprocess.run(command, check=False)
    else:
        logs.mkdir(exist_ok=True)
        with (logs / f"{run.path.name}.log").open("ab") as file:
            done = subprocess.run(command, check=False, stdout=file, stderr=file)
    if done.returncode:
        raise CollapseError(run.record.get("problem") or f"its process ended with exit code {done.returncode}")


def _submit(runs: Sequence[Run], folder: Path, resources: Resources) -> dict[str, str]:
    """Do the work of runs as an array of SLURM jobs, wait for them, and return the error messages by name.

    Raises:
        UsageError: SLURM is not available on this machine.
    """
    import submitit

    if shutil.which("sbatch") is None:
        raise UsageError(
            "there is no sbatch here: --launcher slurm runs on a SLURM login node. Without SLURM leave --launcher out "
            "(one after the other), or use --launcher local"
        )
    given = {
        "partition": resources.partition,
        "account": resources.account,
        "qos": resources.qos,
        "constraint": resources.constraint,
        "gpus_per_node": resources.gpus or None,
        "mem": f"{resources.memory_gb}GB" if resources.memory_gb else None,
    }
    executor = submitit.SlurmExecutor(folder, max_num_timeout=_TIMEOUTS)
    executor.update_parameters(
        job_name="collapse-zoo",
        time=max(1, round(resources.hours * 60)),
        nodes=1,
        ntasks_per_node=1,
        cpus_per_task=resources.cpus,
        array_parallelism=resources.parallel,
        srun_args=["--cpus-per-task", str(resources.cpus)],  # srun does not take it from sbatch
        **{key: value for key, value in given.items() if value is not None},
    )
    try:
        jobs = executor.map_array(Job(), runs)
    except Exception as error:  # a queue can raise anything
        raise CollapseError(f"the jobs could not be submitted: {str(error).strip()[-500:]}") from error
    return {
        run.name: run.record.get("problem") or f"its job failed: see {job.paths.stderr}"
        for run, job in zip(runs, jobs, strict=True)
        if job.exception() is not None
    }


class Job:
    """The callable that submitit runs; pre-empted or out of time, it is queued again and resumes."""

    def __call__(self, run: Run) -> None:
        """Do a run's work."""
        logging.basicConfig(level=logging.INFO, format="%(message)s")  # writes to the job's log
        work(run)

    def checkpoint(self, run: Run) -> Any:
        """Return what to queue again; submitit calls this before a job is pre-empted or times out."""
        from submitit.helpers import DelayedSubmission

        return DelayedSubmission(self, run)


def main(folder: str) -> None:
    """Do a run's work in this process, which may be one of several."""
    run = Run(Path(folder))
    try:
        _work(run, _source_of(run))
    except CollapseError as error:
        sys.exit(f"collapse: {error}")
    leave_group()


if __name__ == "__main__":
    main(sys.argv[1])
