"""How many threads torch takes, and how long they spin: what the machine grants, and fair to others on it.

OpenMP reads its environment when torch is loaded, so this is decided before.
"""

import math
import os
import re
import sys
from contextlib import suppress
from pathlib import Path

from collapse.errors import UsageError

SPINS = "3000"
"""Turns of a waiting thread of GNU OpenMP before it sleeps. Its own default waits for milliseconds, and takes the CPU
from the very process for which the others wait."""

_NUMBER = ("OMP_NUM_THREADS", "MKL_NUM_THREADS")
_ONE = r"[ \t\n\v\f\r]*0*[1-9]\d{0,3}[ \t\n\v\f\r]*"  # as C reads a number; more digits may overflow in OpenMP
_WAITING = ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT")


def prepare(threads: int | None = None) -> None:
    """Set the environment of OpenMP, before torch is loaded; what the user has set stays.

    Args:
        threads: Their number, which goes before what is set; None takes no more than the quota of a container.

    Raises:
        UsageError: A number that is set is none; OpenMP would take all CPUs.
    """
    if "torch" in sys.modules:  # it has read its environment; what is set later would be recorded, and not be true
        if threads is not None:
            sys.modules["torch"].set_num_threads(threads)
        return
    if not any(name in os.environ for name in _WAITING):
        os.environ["GOMP_SPINCOUNT"] = SPINS
    if threads is not None:
        os.environ.update(dict.fromkeys(_NUMBER, str(threads)))
        os.environ.setdefault("MKL_DYNAMIC", "FALSE")  # else MKL, and torch with it, takes no more than there are cores
        return
    for name in _NUMBER:
        _check(name)
    if not any(name in os.environ for name in _NUMBER):
        quota = cpu_quota()
        if quota is not None and quota < _cpus():
            os.environ["OMP_NUM_THREADS"] = str(quota)


def _check(name: str) -> None:
    """Refuse what is no number of threads, nor a list of them for nested levels; drop an empty one."""
    value = os.environ.get(name)
    if value is not None and not value.strip():
        del os.environ[name]
    elif value is not None and not re.fullmatch(rf"{_ONE}(,{_ONE})*", value, re.ASCII):
        raise UsageError(f"{name} must be a whole number of at least 1, got {value}: set it so, or unset it")


def waiting() -> str:
    """Return what decides how OpenMP's threads wait, for the record: "" where nothing is set.

    >>> from unittest.mock import patch
    >>> with patch.dict(os.environ, {"OMP_WAIT_POLICY": "passive"}, clear=True):
    ...     waiting()
    'OMP_WAIT_POLICY=passive'
    """
    return " ".join(f"{name}={os.environ[name]}" for name in _WAITING if name in os.environ)


def cpu_quota(root: Path = Path("/")) -> int | None:
    """Return how many CPUs the process's control groups let it use at a time, rounded up; None for no limit.

    Only version 2 of control groups is read. A container may see its own group at the mount, under a path that is the
    host's: groups that are not there count for nothing.

    Args:
        root: Where proc and sys are.
    """
    try:
        lines = (root / "proc/self/cgroup").read_text().splitlines()
    except OSError:  # not Linux
        return None
    own = next((line.removeprefix("0::/") for line in lines if line.startswith("0::/")), "")
    mount, quotas = root / "sys/fs/cgroup", []
    for folder in (mount / own, *(mount / own).parents):
        with suppress(OSError, ValueError, ZeroDivisionError):  # no such group, or "max", which is no limit
            quota, period = (folder / "cpu.max").read_text().split()
            quotas.append(int(quota) / int(period))
    return max(1, math.ceil(min(quotas))) if quotas else None


def _cpus() -> int:
    """Return the CPUs that the process may run on."""
    try:
        return len(os.sched_getaffinity(0))
    except AttributeError:  # not Linux
        return os.cpu_count() or 1
