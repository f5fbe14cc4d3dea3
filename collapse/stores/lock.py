"""Lock a folder for one writer at a time; readers need no lock. filelock releases the lock of a process that dies."""

import logging
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
def locked(folder: Path, *, option: str = "--store", wait: bool = False) -> Iterator[None]:
    """Hold the lock of a folder, creating the folder if it is missing; ``.lock`` is removed at the end.

    Created folders are removed again if the block raises before anything is written into them.

    Args:
        folder: The folder to lock.
        option: The option that names the folder, for messages.
        wait: Wait until another holder releases the lock, with a warning.

    Raises:
        InUseError: Another process, or another thread of this process, holds the lock, and ``wait`` is false.
        CollapseError: The folder cannot be written.
    """
    made = [each for each in (folder, *folder.parents) if not each.exists()]
    lock = FileLock(folder / LOCK)
    try:
        try:
            _acquire(lock, folder, option, wait)
        except OSError as error:
            raise write_error(folder, error, other=f"choose another {option}") from error
        try:
            yield
        finally:
            with suppress(OSError):  # before the release: a waiting process then notices this and makes a new file
                (folder / LOCK).unlink()
            lock.release()
    except BaseException:
        for each in made:
            with suppress(OSError):
                each.rmdir()
        raise


def _acquire(lock: BaseFileLock, folder: Path, option: str, wait: bool) -> None:
    timeout = _PATIENCE_SECONDS
    while not lock.is_locked:
        folder.mkdir(parents=True, exist_ok=True)
        try:
            lock.acquire(timeout=timeout)
        except FileNotFoundError:  # another process removed its empty folder
            continue
        except Timeout as error:
            if not wait:
                said = f"{folder} is in use by another process: wait for it, or use another {option}"
                raise InUseError(said) from error
            log.warning("%s is in use by another process: waiting until it ends", folder)
            timeout = -1


def is_locked(folder: Path) -> bool:
    """Whether a process holds the lock of a folder; this tries to lock it, but creates no file."""
    if not (folder / LOCK).is_file():
        return False
    try:
        with FileLock(folder / LOCK, timeout=0):
            return False
    except Timeout:
        return True
    except OSError:  # for example, only the folder's owner may write there
        return False
