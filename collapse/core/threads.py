"""Set how many threads torch uses, and how long they wait before they sleep.

OpenMP reads its environment variables when torch is loaded, so the variables must be set before that. By default,
OpenMP uses all CPUs that the process may run on.
"""

import os
import sys

SPINS = "3000"
"""How many times a waiting thread of GNU OpenMP checks for work before it sleeps. With OpenMP's own default, the checks
last several milliseconds, and take CPU time from threads that still work."""

_NUMBER = ("OMP_NUM_THREADS", "MKL_NUM_THREADS")
_GRANTED = "SLURM_CPUS_PER_TASK"


def prepare(threads: int | None = None) -> None:
    """Set the environment of OpenMP, before torch is loaded; keep variables that the user has set.

    If torch is already loaded, only set torch's number of threads to ``threads``.

    Args:
        threads: Number of threads, which overrides the user's variables. With None, the number in these variables is
            used; if no variable is set, all CPUs that Slurm grants; without Slurm, all available CPUs.
    """
    if "torch" in sys.modules:
        if threads is not None:
            sys.modules["torch"].set_num_threads(threads)
        return
    if "OMP_WAIT_POLICY" not in os.environ:
        os.environ.setdefault("GOMP_SPINCOUNT", SPINS)
    if threads is not None:
        os.environ.update(dict.fromkeys(_NUMBER, str(threads)))
        os.environ.setdefault("MKL_DYNAMIC", "FALSE")  # otherwise MKL limits torch to the number of cores
    elif _GRANTED in os.environ and not any(name in os.environ for name in _NUMBER):
        os.environ["OMP_NUM_THREADS"] = os.environ[_GRANTED]
