"""Measure the times of functions in turn, and the peak memory of one function in its own process.

Functions run in turn so that a change of the machine's speed affects all equally. Peak memory is measured in a new
process, because an earlier, larger peak would hide a later one.
"""

import ctypes
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ProcessPoolExecutor
from contextlib import suppress
from multiprocessing import get_context
from pathlib import Path
from statistics import median

import torch


def in_turn(
    works: Mapping[str, Callable[[], object]], rounds: int, clock: Callable[[], float] = time.perf_counter
) -> dict[str, float]:
    """Return the median time of each piece of work in seconds, over several rounds after a warm-up round."""
    times: dict[str, list[float]] = {name: [] for name in works}
    for _ in range(rounds + 1):
        for name, work in works.items():
            start = clock()
            work()
            if torch.cuda.is_initialized():
                torch.cuda.synchronize()
            times[name].append(clock() - start)
    return {name: median(each[1:]) for name, each in times.items()}


def peak_growth(preparing: Callable[..., Callable[[], object]], **sizes: object) -> int | None:
    """Return the peak growth of memory during a piece of work, in bytes; None if the system does not report it.

    The work runs in a new process. After CUDA was initialized, it runs in this process, and GPU memory is measured.

    Args:
        preparing: A module-level function that makes the data and returns the piece of work.
        sizes: Arguments of ``preparing``.
    """
    if torch.cuda.is_initialized():  # torch can reset its peak, so no new process is needed
        return _growth_of_prepared(preparing, sizes)
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as process:
        return process.submit(_growth_of_prepared, preparing, sizes).result()


def _growth_of_prepared(preparing: Callable[..., Callable[[], object]], sizes: dict[str, object]) -> int | None:
    return growth_of(preparing(**sizes))


def growth_of(work: Callable[[], object]) -> int | None:
    """Return the peak growth of this process's memory during a piece of work, in bytes; None if it is not reported.

    After CUDA was initialized, measure GPU memory instead.
    """
    if torch.cuda.is_initialized():
        torch.cuda.reset_peak_memory_stats()
        held = torch.cuda.memory_allocated()
        work()
        return torch.cuda.max_memory_allocated() - held
    with suppress(OSError, AttributeError):  # not glibc
        ctypes.CDLL(None).malloc_trim(0)  # free memory that malloc keeps would hide the growth
    with suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5\n")  # reset the peak, VmHWM
        before = _status("VmRSS")
        work()
        return max(0, _status("VmHWM") - before)
    return None


def _status(name: str) -> int:
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(f"{name}:"))
