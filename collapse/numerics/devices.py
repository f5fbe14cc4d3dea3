"""Choose the torch device and how much it computes at once, reuse freed memory, and explain out-of-memory errors."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import NamedTuple

import torch

from collapse.core import ranks
from collapse.errors import CollapseError, UsageError, first_line

_BLOCK = 31 << 20  # just below the largest block that GNU's allocator can keep


def pick_device(device: str) -> torch.device:
    """Return the torch device for ``--device``; ``auto`` means CUDA if it is available, otherwise the CPU.

    Raises:
        UsageError: This machine does not have the device.
    """
    if device == "auto":
        device = "cuda" if torch.cuda.is_available() else "cpu"
    if device == "cuda" and ranks.count() > 1 and torch.cuda.is_available():  # each rank has its own GPU
        torch.cuda.set_device(ranks.local_rank() % torch.cuda.device_count())
        device = f"cuda:{torch.cuda.current_device()}"
    try:
        target = torch.device(device)
        torch.zeros(1, device=target).item()  # fails for devices that cannot compute, such as "meta"
    except (RuntimeError, AssertionError) as error:
        raise UsageError(
            f"device {device!r} is not available: use auto, cpu, cuda, cuda:1 or mps ({first_line(error)[:80]})"
        ) from error
    return target


def float64_device(device: torch.device) -> torch.device:
    """Return the device, or the CPU if that device has no float64."""
    return torch.device("cpu") if device.type == "mps" else device


class WorkSizes(NamedTuple):
    """How much a device computes at a time in decisions.py and best_rows.py.

    Attributes:
        rows: A matrix is cut into blocks of at most this many rows.
        samples: Number of samples whose scores with one block are computed at once.
        batch: Number of samples in a search; all blocks are searched for these samples before the next search.
        gathered: How many numbers of the matrix are copied at once, to compute the scores of (sample, row) pairs.
    """

    rows: int
    samples: int
    batch: int
    gathered: int


def work_sizes(device: torch.device) -> WorkSizes:
    """Return the sizes for a device.

    On the CPU, each thread computes 1 MB of scores at a time, which stays in the cache of its core. On a GPU, the
    scores of a block take 0.5 GB: large blocks need few kernel launches. Smaller blocks took up to 8 times as long on
    an H100.
    """
    if device.type == "cpu":
        return WorkSizes(rows=1024, samples=256 * torch.get_num_threads(), batch=2048, gathered=1 << 15)
    return WorkSizes(rows=8192, samples=16384, batch=16384, gathered=1 << 24)


def cut(lengths: Sequence[int], rows: int) -> tuple[list[slice], list[slice]]:
    """Cut groups of the given lengths into blocks of similar length, each of at most ``rows`` rows.

    Returns:
        One slice of rows per block, and one slice of blocks per group that is not empty.

    >>> cut([8, 3, 0], 5)
    ([slice(0, 4, None), slice(4, 8, None), slice(8, 11, None)], [slice(0, 2, None), slice(2, 3, None)])
    """
    blocks, groups, first = list[slice](), list[slice](), 0
    for length in filter(None, lengths):
        count = -(-length // rows)
        step = -(-length // count)
        groups.append(slice(len(blocks), len(blocks) + count))
        blocks += [slice(at, min(at + step, first + length)) for at in range(first, first + length, step)]
        first += length
    return blocks, groups


def keep_freed_memory() -> None:
    """Make GNU's allocator keep up to 62 MB of freed memory for the next batch.

    By default, this allocator may return each freed block to the system. The system must then clear the pages of the
    next block, which takes up to a quarter of a collection's time. This function allocates and frees one large block:
    the allocator then raises the size up to which it keeps freed memory. Other allocators do not change.
    """
    torch.empty(_BLOCK, dtype=torch.uint8)


def is_out_of_memory(error: BaseException) -> bool:
    """Return whether an error says that a GPU or the machine ran out of memory."""
    said = str(error).lower()
    return isinstance(error, torch.OutOfMemoryError | MemoryError) or any(
        each in said for each in ("out of memory", "not enough memory", "allocate memory")
    )


@contextmanager
def explaining_out_of_memory(message: str) -> Iterator[None]:
    """Convert an out-of-memory error to a CollapseError with this message."""
    try:
        yield
    except Exception as error:  # libraries raise exceptions of many types when memory runs out
        if not is_out_of_memory(error):
            raise
        raise CollapseError(message) from error


def out_of_memory_message(doing: str, classes: int, dim: int, device: torch.device, *remedies: str) -> str:
    """Return the message for a computation on class means that ran out of memory.

    ``doing`` names the computation, and ``classes`` is an upper bound of C. ``remedies`` are added to those that always
    apply, such as a machine with more memory.
    """
    elsewhere = [] if device.type == "cpu" else ["--device cpu"]
    return (
        f"memory ran out in {doing}: up to C = {classes:,} classes × d = {dim:,} dimensions, "
        f"8·C·d = {8 * classes * dim / 1e6:,.1f} MB for each matrix of class means: "
        f"use {' or '.join([*elsewhere, 'a machine with more memory', *remedies])}"
    )
