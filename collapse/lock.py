"""The lock of a folder: one writer at a time, and a writer that is gone is recognized."""

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from collapse.errors import CollapseError
from collapse.files import write_error

# A marker that names no process after this time is its maker's who was killed; the library then needs two seconds more.
_UNNAMED_SECONDS, _TAKE_OVER_SECONDS = 1.0, 5.0


@contextmanager
def locked(folder: Path, *, option: str = "--store") -> Iterator[None]:
    """Hold a folder's lock: process id, host and start time in ``.lock``, recognized when its holder is gone.

    A marker without these is left where its maker was killed as it wrote it: that is waited for, some seconds.

    Raises:
        CollapseError: Another live process holds it.
    """
    from filelock import SoftFileLock, Timeout

    lock = folder / ".lock"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        holder = SoftFileLock(lock)
        try:
            holder.acquire(timeout=0)
        except Timeout:
            if _named(lock):
                raise
            time.sleep(_UNNAMED_SECONDS)
            _mark_abandoned(lock)
            holder.acquire(timeout=_TAKE_OVER_SECONDS)
    except Timeout as error:
        pid, host = _named(lock) or ("?", "?")
        raise CollapseError(
            f"{folder} is in use by process {pid} on {host}: wait for it, or use another {option} "
            f"(if that process is surely gone, delete {lock})"
        ) from error
    except OSError as error:
        raise write_error(folder, error, other=f"choose another {option}") from error
    try:
        yield
    finally:
        holder.release()


def _named(lock: Path) -> tuple[str, str] | None:
    """Process id and host in a marker, or None where it says neither."""
    try:
        lines = lock.read_text(encoding="utf-8").split("\n")
    except (OSError, ValueError):
        return None
    return (lines[0], lines[1]) if len(lines) > 2 and lines[0].isdigit() else None


def _mark_abandoned(lock: Path) -> None:
    """Write into an empty marker: the library takes over what it cannot read, and never what is empty."""
    with suppress(OSError):
        if lock.stat().st_size == 0:
            handle = os.open(lock, os.O_WRONLY | os.O_APPEND)
            try:
                os.write(handle, b"abandoned\n")
            finally:
                os.close(handle)
