"""Run members as jobs with submitit, on SLURM or as local processes; pre-empted jobs are submitted again."""

import logging
import os
import shlex
import shutil
import signal
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from collapse.errors import CollapseError, UsageError
from collapse_zoo.members import Member, work

log = logging.getLogger("collapse")

_GONE = ("PREEMPTED", "NODE_FAIL", "BOOT_FAIL", "TIMEOUT", "INTERRUPTED", "REVOKED")
"""States of a job that was ended from outside; it can resume from its last checkpoint."""

_ENDED = (*_GONE, "COMPLETED", "FAILED", "CANCELLED", "OUT_OF_MEMORY", "DEADLINE", "FINISHED")


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


class Job:
    """The callable that submitit runs; if it is pre-empted, it requests to be queued again and resumes."""

    def __call__(self, member: Member) -> str | None:
        """Do a member's work; return the error message, if any."""
        logging.basicConfig(level=logging.INFO, format="%(message)s")  # writes to the job's log
        # Ctrl-C on a terminal reaches local jobs too: end without a traceback, as if killed
        signal.signal(signal.SIGINT, lambda *_: os._exit(128 + signal.SIGINT))
        try:
            work(member)
        except CollapseError as error:
            return str(error)
        return None

    def checkpoint(self, member: Member) -> Any:
        """Requeue the member; submitit calls this before a job is pre-empted or times out."""
        from submitit.helpers import DelayedSubmission

        return DelayedSubmission(self, member)


def launch(
    members: Sequence[Member],
    launcher: str,
    folder: Path,
    resources: Resources,
    *,
    resubmissions: int = 5,
    poll_seconds: float = 30.0,
) -> dict[str, str]:
    """Run members as jobs and wait for them.

    Args:
        members: The members to run.
        launcher: "slurm", or "local" for processes on this machine.
        folder: Folder of submitit's files and logs.
        resources: Resources of each job.
        resubmissions: How often a pre-empted member is submitted again.
        poll_seconds: Seconds between two queries of the jobs' states.

    Returns:
        Error messages by member.

    Raises:
        UsageError: SLURM is not available on this machine.
    """
    executor = _executor(launcher, folder, resources)
    waiting, jobs = list(members), dict[str, tuple[Member, Any]]()
    sent, problems = dict[str, int](), dict[str, str]()
    slots = resources.parallel if launcher == "local" else len(members)
    while waiting or jobs:
        fresh, waiting = waiting[: slots - len(jobs)], waiting[slots - len(jobs) :]
        if fresh:
            for member, job in zip(fresh, _submit(executor, fresh), strict=True):
                jobs[member.name] = (member, job)
                sent[member.name] = sent.get(member.name, 0) + 1
                log.info("%s is job %s, its log %s", member.name, job.job_id, job.paths.stdout)
        time.sleep(poll_seconds)
        for name, (member, job) in list(jobs.items()):
            state = _state(job)
            if state not in _ENDED:
                continue
            del jobs[name]
            if _is_done(member):
                continue
            if state in _GONE and sent[name] <= resubmissions:
                log.info(
                    "%s was lost (%s): it is submitted again and resumes from its last checkpoint", name, state.lower()
                )
                waiting.append(member)
            else:
                problems[name] = _problem(job, state)
    return problems


def _executor(launcher: str, folder: Path, resources: Resources) -> Any:
    import submitit

    if launcher == "local":
        executor = submitit.LocalExecutor(folder)
        # submitit's controller of a job prints a traceback when it is interrupted
        errors = f"exec 2>>{shlex.quote(str(folder.resolve() / 'controllers.log'))}"
        executor.update_parameters(timeout_min=int(resources.hours * 60), setup=[errors, *_same_gpus()])
        return executor
    if shutil.which("sbatch") is None:
        raise UsageError(
            "there is no sbatch here: --launcher slurm runs on a SLURM login node. Without SLURM leave --launcher out "
            "(one after the other), or use --launcher local"
        )

    # submitit requires srun and uses it by default. A member is one task, so without srun only sbatch must be
    # installed, and torchrun sees all GPUs.
    submitit.SlurmExecutor.affinity = classmethod(lambda cls: 2)
    made = submitit.SlurmExecutor(folder)
    given = {
        "partition": resources.partition,
        "account": resources.account,
        "qos": resources.qos,
        "constraint": resources.constraint,
        "gpus_per_node": resources.gpus or None,
        "mem": f"{resources.memory_gb}GB" if resources.memory_gb else None,
    }
    made.update_parameters(
        job_name="collapse-zoo",
        time=max(1, round(resources.hours * 60)),
        nodes=1,
        ntasks_per_node=1,
        cpus_per_task=resources.cpus,
        array_parallelism=resources.parallel,
        use_srun=False,
        **{key: value for key, value in given.items() if value is not None},
    )
    return made


def _same_gpus() -> list[str]:
    """Return the shell commands that give a local job this process's GPUs; submitit hides all of them by default."""
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    same = "unset CUDA_VISIBLE_DEVICES" if visible is None else f"export CUDA_VISIBLE_DEVICES={shlex.quote(visible)}"
    # a trap keeps bash from replacing itself by the job, whose files submitit names after the shell's process id
    return ["trap : EXIT", same]


def _is_done(member: Member) -> bool:
    try:
        return member.done
    except CollapseError:  # its files are damaged, which its job has reported
        return False


def _submit(executor: Any, members: Sequence[Member]) -> list[Any]:
    try:
        return list(executor.map_array(Job(), members))
    except Exception as error:  # a queue can raise anything
        raise CollapseError(f"the jobs could not be submitted: {str(error).strip()[-500:]}") from error


def _state(job: Any) -> str:
    """Return SLURM's state of a job (``CANCELLED by 1000``: CANCELLED); a local job without a result is INTERRUPTED."""
    if job.paths.result_pickle.exists():
        return "FINISHED"
    info = job.get_info(mode="force")
    state = str((info or {}).get("State") or job.state).split()
    if not state:
        return "UNKNOWN"
    return "INTERRUPTED" if state[0] == "FINISHED" else state[0].rstrip("+")


def _problem(job: Any, state: str) -> str:
    if state == "FINISHED":
        error = job.exception()
        if error is None:
            return str(job.result())
        said = [line for line in str(error).splitlines() if "Error" in line] or [str(error)]
        return f"{said[-1].strip()}; see {job.paths.stderr}"
    return f"its job {job.job_id} ended ({state.lower()}); see {job.paths.stderr}"
