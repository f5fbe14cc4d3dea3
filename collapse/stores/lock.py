"""Lock a folder for one writer at a time; readers need no lock. filelock releases the lock of a process that dies.

Processes may collect the parts of a store into one folder. Each process holds the lock of its part; it holds the
folder's lock only while it checks which slices are saved and while it folds shards. Any other writer must wait until
no process collects a part, or gets an InUseError.
"""

import logging
import re
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from filelock import BaseFileLock, FileLock, Timeout

from collapse.errors import InUseError
from collapse.stores.writing import write_error

log = logging.getLogger("collapse")

LOCK = ".lock"

_PATIENCE_SECONDS = 0.5  # a killed process keeps its lock until the kernel has freed its memory


@contextmanager
def locked(
    folder: Path,
    *,
    wait: bool = False,
    part: tuple[int, int] | None = None,
    beside_parts: bool = False,
) -> Iterator[None]:
    """Hold the lock of a folder, creating the folder if it is missing; the lock file is removed at the end.

    Created folders are removed again if the ``with`` block raises before anything is written into them.

    Args:
        folder: The folder to lock.
        wait: Log a warning and wait, instead of raising InUseError.
        part: Hold only the lock of the k-th of n parts, so that other processes can hold the locks of other parts.
        beside_parts: Lock the folder even while other processes collect parts into it.

    Raises:
        InUseError: ``wait`` is false, and another process or thread holds the lock. If neither ``part`` nor
            ``beside_parts`` is given, a process that collects a part also counts as a holder of the lock.
        CollapseError: The folder cannot be written.
    """
    made = [each for each in (folder, *folder.parents) if not each.exists()]
    lock = FileLock(folder / _name(part))
    try:
        try:
            _acquire(lock, folder, wait, without_parts=part is None and not beside_parts)
        except OSError as error:
            raise write_error(folder, error) from error
        try:
            yield
        finally:
            _release(lock)
    except BaseException:
        for each in made:
            with suppress(OSError):
                each.rmdir()
        raise


def _name(part: tuple[int, int] | None) -> str:
    return LOCK if part is None else "{}-{}-of-{}".format(LOCK, *part)


def _acquire(lock: BaseFileLock, folder: Path, wait: bool, *, without_parts: bool) -> None:
    """Acquire a lock. If the lock is not available: wait if ``wait`` is true, otherwise raise InUseError.

    With ``without_parts``, the lock is also not available while a process collects a part into the folder.
    """
    timeout = _PATIENCE_SECONDS
    while True:
        folder.mkdir(parents=True, exist_ok=True)
        with suppress(Timeout):
            try:
                lock.acquire(timeout=timeout)
            except FileNotFoundError:  # another process removed the empty folder
                continue
            if not (without_parts and running_parts(folder)):
                return
            _release(lock)  # a running part needs this lock to finish
            time.sleep(_PATIENCE_SECONDS)
        said = f"{folder} is in use by another process"
        if not wait:
            raise InUseError(f"{said}: wait until it ends, or use another folder")
        if timeout > 0:
            log.warning("%s: waiting until it ends", said)
        timeout = -1  # of filelock: wait without a limit


def _release(lock: BaseFileLock) -> None:
    with suppress(OSError):  # before the release, so that a waiting process makes a new file
        Path(lock.lock_file).unlink()
    lock.release()


def running_parts(folder: Path) -> list[tuple[int, int]]:
    """Return the parts that processes are collecting into a folder; part k of n is the pair (k, n)."""
    names = (re.fullmatch(rf"{re.escape(LOCK)}-(\d+)-of-(\d+)", each.name) for each in folder.glob(f"{LOCK}-*"))
    parts = sorted((int(name[1]), int(name[2])) for name in names if name)
    return [part for part in parts if is_locked(folder, part)]


def is_locked(folder: Path, part: tuple[int, int] | None = None) -> bool:
    """Whether a process holds the lock of a folder or, with ``part``, the lock of this part.

    This never waits, creates no file, and does not disturb other processes.
    """
    try:
        with (folder / _name(part)).open() as file:
            import fcntl  # only Unix has it

            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
            return False
    except BlockingIOError:
        return True
    except OSError:  # there is no such file
        return False
