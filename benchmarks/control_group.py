"""A control group of Linux with a share of the CPU, where this process may make one (version 2)."""

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

_PERIOD = 100_000  # microseconds, the kernel's default
_ROOT = Path("/sys/fs/cgroup")


@contextmanager
def group(cpus: float) -> Iterator[Path | None]:
    """Give the folder of a new group that grants so many CPUs, or None; a process joins by ``cgroup.procs`` in it."""
    made = next((folder for parent in _parents() if (folder := _made(parent, cpus)) is not None), None)
    try:
        yield made
    finally:
        if made is not None:
            with suppress(OSError):  # a process in it has not ended yet
                made.rmdir()


def _parents() -> Iterator[Path]:
    """Yield the groups of this process, and the mounts, which is where a container sees its own."""
    with suppress(OSError):
        for line in Path("/proc/self/cgroup").read_text().splitlines():
            if line.startswith("0::/"):
                yield _ROOT / line.removeprefix("0::/")
                yield _ROOT


def _made(parent: Path, cpus: float) -> Path | None:
    folder, quota = parent / f"collapse-benchmark-{os.getpid()}", round(cpus * _PERIOD)
    if not (parent / "cgroup.procs").exists():
        return None
    try:
        folder.mkdir()
    except OSError:
        return None
    try:
        with (folder / "cpu.max").open("r+") as file:
            file.write(f"{quota} {_PERIOD}")
    except OSError:
        with suppress(OSError):
            folder.rmdir()
        return None
    return folder
