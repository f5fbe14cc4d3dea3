"""How many threads torch takes, and how long they wait before they sleep.

OpenMP reads its environment when torch is loaded, so this is set before. It counts the CPUs that the process may run on
itself.
"""

import os
import sys

SPINS = "3000"
"""Turns of a waiting thread of GNU OpenMP before it sleeps. Its own default waits for milliseconds, and takes the CPU
from the very process for which the others wait."""

_NUMBER = ("OMP_NUM_THREADS", "MKL_NUM_THREADS")
_GRANTED = "SLURM_CPUS_PER_TASK"


def prepare(threads: int | None = None) -> None:
    """Set the environment of OpenMP, before torch is loaded; variables that the user has set stay.

    Args:
        threads: Their number, which overrides the variables; None for what Slurm grants the task, or for all CPUs.
    """
    if "torch" in sys.modules:
        if threads is not None:
            sys.modules["torch"].set_num_threads(threads)
        return
    if "OMP_WAIT_POLICY" not in os.environ:
        os.environ.setdefault("GOMP_SPINCOUNT", SPINS)
    if threads is not None:
        os.environ.update(dict.fromkeys(_NUMBER, str(threads)))
        os.environ.setdefault("MKL_DYNAMIC", "FALSE")  # else MKL, and torch with it, takes no more than there are cores
    elif _GRANTED in os.environ and not any(name in os.environ for name in _NUMBER):
        os.environ["OMP_NUM_THREADS"] = os.environ[_GRANTED]
