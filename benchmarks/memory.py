"""Peak memory of a piece of work, in a process of its own.

In a process that has done other work, an earlier larger peak hides a later one, and memory that malloc has kept hides
all of it.
"""

import ctypes
import importlib
import json
import resource
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from benchmarks.machine import ROOT
from collapse.errors import CollapseError


def peak_growth(preparing: str, **sizes: object) -> int | None:
    """Return by how many bytes a process grows at most while a piece of work runs in it; None if that is not known.

    Args:
        preparing: ``module:function`` of a function that makes the data and returns the piece of work.
        sizes: Its arguments, which JSON can hold.

    Raises:
        CollapseError: The process failed.
    """
    command = [sys.executable, "-m", "benchmarks.memory", preparing, json.dumps(sizes)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode:
        said = done.stderr.strip().splitlines() or [f"exit status {done.returncode}"]
        raise CollapseError(f"the process that measures the memory of {preparing} failed: {said[-1]}")
    growth: int | None = json.loads(done.stdout.splitlines()[-1])
    return growth


def growth_of(work: Callable[[], object]) -> int | None:
    """Return by how many bytes this process grows at most while a piece of work runs, from what it holds before."""
    with suppress(OSError, AttributeError):  # not glibc
        ctypes.CDLL(None).malloc_trim(0)
    reset = _forget_peak()
    before, peak_before = _status("VmRSS"), peak()
    work()
    if before is None or (not reset and peak() <= peak_before):
        return None  # an earlier peak hides this one
    return max(0, peak() - before)


def peak() -> int:
    """Return the largest size of this process in bytes."""
    seen = _status("VmHWM")  # ru_maxrss would begin at the size of the process that started this one
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 if seen is None else seen


def _forget_peak() -> bool:
    """Make the kernel's record of the largest size begin anew, where it may be."""
    with suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5\n")
        return True
    return False


def _status(name: str) -> int | None:
    with suppress(OSError):
        for line in Path("/proc/self/status").read_text().splitlines():
            if line.startswith(f"{name}:"):
                return int(line.split()[1]) * 1024
    return None


def _main(preparing: str, sizes: str) -> None:
    module, _, function = preparing.partition(":")
    work = getattr(importlib.import_module(module), function)(**json.loads(sizes))
    print(json.dumps(growth_of(work)))  # noqa: T201  # read by the process that asked


if __name__ == "__main__":
    _main(*sys.argv[1:])
