"""Run the members of a sweep as jobs with submitit: job arrays of SLURM, or processes on this machine."""

import logging
import os
import shlex
import shutil
import signal
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from collapse.errors import CollapseError, UsageError
from collapse_zoo.runs import Run

log = logging.getLogger("collapse")

_POLL_SECONDS = 1.0
_TIMEOUTS = 20
"""How often submitit queues a job again that ran out of its time."""


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
    gpus: int = 1
    cpus: int = 4
    memory_gb: int | None = None
    parallel: int = 16


@dataclass(frozen=True)
class Job:
    """The callable that submitit runs; pre-empted or out of time, it is queued again and resumes."""

    work: Callable[[Run], None]

    def __call__(self, run: Run) -> str | None:
        """Do a run's work; return the error message, if any."""
        logging.basicConfig(level=logging.INFO, format="%(message)s")  # writes to the job's log
        # Ctrl-C on a terminal reaches local jobs too: end without a traceback, as if killed
        signal.signal(signal.SIGINT, lambda *_: os._exit(128 + signal.SIGINT))
        try:
            self.work(run)
        except CollapseError as error:
            return str(error)
        return None

    def checkpoint(self, run: Run) -> Any:
        """Return what to queue again; submitit calls this before a job is pre-empted or times out."""
        from submitit.helpers import DelayedSubmission

        return DelayedSubmission(self, run)


def launch(
    runs: Sequence[Run], work: Callable[[Run], None], launcher: str, folder: Path, resources: Resources
) -> dict[str, str]:
    """Run jobs and wait for them.

    Args:
        runs: A job does the work of one.
        work: What a job does.
        launcher: "slurm", or "local" for processes on this machine.
        folder: Folder of submitit's files and logs.
        resources: Resources of each job.

    Returns:
        Error messages by the run's name.

    Raises:
        UsageError: SLURM is not available on this machine.
    """
    executor = _local(folder, resources) if launcher == "local" else _slurm(folder, resources)
    at_once = resources.parallel if launcher == "local" else len(runs)  # SLURM itself limits those of an array
    waiting, jobs = list(runs), list[tuple[Run, Any]]()
    while True:
        running = [job for _, job in jobs if not job.done()]
        if not waiting and not running:
            break
        free = at_once - len(running)
        if waiting and free:
            some, waiting = waiting[:free], waiting[free:]
            for run, job in zip(some, _submit(executor, Job(work), some), strict=True):
                log.info("%s is job %s, its log %s", run.name, job.job_id, job.paths.stdout)
                jobs.append((run, job))
        time.sleep(_POLL_SECONDS)
    problems = {run.name: _problem(job) for run, job in jobs}
    return {name: problem for name, problem in problems.items() if problem}


def _submit(executor: Any, job: Job, runs: Sequence[Run]) -> list[Any]:
    try:
        return list(executor.map_array(job, runs))
    except Exception as error:  # a queue can raise anything
        raise CollapseError(f"the jobs could not be submitted: {str(error).strip()[-500:]}") from error


def _problem(job: Any) -> str | None:
    """Return the error message of a job that has ended, or None."""
    error = job.exception()
    if error is None:
        said = job.result()
        return None if said is None else str(said)
    lines = [line for line in str(error).splitlines() if "Error" in line] or [type(error).__name__]
    return f"{lines[-1].strip()}; see {job.paths.stderr}"


def _local(folder: Path, resources: Resources) -> Any:
    import submitit

    executor = submitit.LocalExecutor(folder)
    # submitit's controller of a job prints a traceback when it is interrupted
    errors = f"exec 2>>{shlex.quote(str(folder.resolve() / 'controllers.log'))}"
    executor.update_parameters(timeout_min=int(resources.hours * 60), setup=[errors, *_same_gpus()])
    return executor


def _same_gpus() -> list[str]:
    """Return the shell commands that give a local job this process's GPUs; submitit hides all of them by default."""
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    same = "unset CUDA_VISIBLE_DEVICES" if visible is None else f"export CUDA_VISIBLE_DEVICES={shlex.quote(visible)}"
    # a trap keeps bash from replacing itself by the job, whose files submitit names after the shell's process id
    return ["trap : EXIT", same]


def _slurm(folder: Path, resources: Resources) -> Any:
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
    return executor
