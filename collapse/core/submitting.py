"""Submit arrays of SLURM jobs with submitit. A job that is pre-empted or runs out of time is queued again."""

import getpass
import io
import shutil
import subprocess
from collections.abc import Callable, Collection, Sequence
from contextlib import redirect_stderr
from pathlib import Path
from typing import Any

from collapse.errors import CollapseError, UsageError

_REQUEUED = 20  # how often a job that runs out of time is queued again


def submit(job: Callable[[Any], Any], arguments: Sequence[Any], folder: Path, *, name: str, **parameters: Any) -> Any:
    """Submit one SLURM job for each argument, all in one array, and return submitit's jobs.

    Each SLURM job calls ``job`` with its argument; ``job`` has the methods of a
    :class:`submitit.helpers.Checkpointable`. The files and logs of the jobs are written to ``folder``. ``parameters``
    are passed to ``submitit.AutoExecutor.update_parameters``.

    Raises:
        UsageError: SLURM is not available on this machine.
        ImportError: submitit is not installed.
        CollapseError: SLURM rejects the jobs.
    """
    if shutil.which("sbatch") is None:
        raise UsageError(
            "the command sbatch is not available: run this command on a SLURM login node, or remove --launcher slurm"
        )
    import submitit

    try:
        executor = submitit.AutoExecutor(folder, cluster="slurm", slurm_max_num_timeout=_REQUEUED)
        executor.update_parameters(name=name, nodes=1, tasks_per_node=1, **parameters)
        with redirect_stderr(io.StringIO()):  # submitit prints the error of sbatch, and raises it
            return executor.map_array(job, arguments)
    except Exception as error:  # submitit can raise any exception
        raise CollapseError(
            f"the jobs could not be submitted: {str(error).strip()[-500:]}. Check the options for SLURM, and run "
            "the same command again"
        ) from error


def queued(jobs: Collection[str]) -> dict[str, str]:
    """Return the states of the given jobs that wait or run, by job id, such as ``{"123_4": "RUNNING"}``.

    Raises:
        CollapseError: The queue cannot be read.
    """
    command = ["squeue", "--noheader", "--array", "--format=%i %T", "--user", getpass.getuser()]
    try:
        lines = subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()
    except (OSError, subprocess.CalledProcessError) as error:
        said = getattr(error, "stderr", None) or error
        raise CollapseError(
            f"the queue of SLURM jobs cannot be read ({str(said).strip()}): check that squeue works on this machine, "
            "then run the command again"
        ) from error
    states = dict(line.split(maxsplit=1) for line in lines if line.strip())
    return {job: states[job] for job in jobs if job in states}
