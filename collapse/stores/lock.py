"""The lock of a folder: one writer at a time, released by the kernel when its holder dies.

``.lock`` is locked with ``flock``. To find out whether a folder is locked, the code tries to lock it. The process id
and host in the file are used only in messages. On a file system without kernel locks, a marker file (filelock's
``SoftFileLock``) is used instead.
"""

import errno
import logging
import math
import os
import socket
import stat
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path

from collapse.errors import CollapseError, InUseError
from collapse.stores.writing import write_error

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]

log = logging.getLogger("collapse")

LOCK = ".lock"

_NO_KERNEL_LOCKS = (errno.ENOSYS, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOLCK)
_HELD_ELSEWHERE = (errno.EAGAIN, errno.EACCES)
# A killed process keeps its lock until the kernel has freed its memory, and is_locked() takes the lock for an instant.
_PATIENCE_SECONDS, _POLL_SECONDS, _LONG_POLL_SECONDS = 0.5, 0.02, 0.5
_MESSAGE_BYTES = 4096

# Open lock files of this process. A forked child closes its copies: otherwise they keep the lock after the parent dies.
_handles: set[int] = set()


@contextmanager
def locked(folder: Path, *, option: str = "--store", wait: bool = False) -> Iterator[None]:
    """Hold the lock of a folder, creating the folder if it is missing; ``.lock`` is removed at the end.

    Folders that this creates are removed again if the block raises before anything is written into them.

    Args:
        folder: The folder to lock.
        option: The option that names the folder, for messages.
        wait: Wait until another holder releases the lock, with a warning that names it.

    Raises:
        InUseError: Another process, or another thread of this process, holds the lock, and ``wait`` is false.
        CollapseError: The folder cannot be written, or ``.lock`` is not a regular file.
    """
    lock = folder / LOCK
    made = [each for each in (folder, *folder.parents) if not each.exists()]
    try:
        try:
            release = _acquire(lock, option, wait)
        except OSError as error:
            _refuse_irregular(lock, f"delete it, or use another {option}")
            raise write_error(folder, error, other=f"choose another {option}") from error
        try:
            yield
        finally:
            release()
    except BaseException:
        for each in made:
            with suppress(OSError):
                each.rmdir()
        raise


def is_locked(folder: Path) -> bool:
    """Whether a process holds the lock of a folder; tries to lock it, and creates no file."""
    lock = folder / LOCK
    try:
        handle = _open(lock, os.O_RDONLY)
    except OSError:  # no lock file, or something that cannot be locked
        return False
    try:
        _flock(handle, exclusive=False)
    except OSError as error:
        return error.errno in _HELD_ELSEWHERE or (error.errno in _NO_KERNEL_LOCKS and _is_marked(lock))
    finally:
        _close(handle)
    return False


def _acquire(lock: Path, option: str, wait: bool) -> Callable[[], None]:
    """Lock a file and return a function that releases it."""
    deadline = time.monotonic() + _PATIENCE_SECONDS
    while True:
        made = False
        try:
            handle = _open(lock, os.O_RDWR)
        except FileNotFoundError:
            lock.parent.mkdir(parents=True, exist_ok=True)
            try:
                handle, made = _open(lock, os.O_RDWR | os.O_CREAT | os.O_EXCL), True
            except (FileExistsError, FileNotFoundError):  # another process made the file, or removed its empty folder
                continue
        try:
            _flock(handle, exclusive=True)
            if _is_at(handle, lock):
                _sign(handle)
                return partial(_release, handle, lock, os.getpid())
            _close(handle)  # the previous holder has removed this file: lock the one that replaced it
        except OSError as error:
            _close(handle)
            if error.errno in _NO_KERNEL_LOCKS:
                if made:  # and empty, which filelock never replaces
                    lock.unlink(missing_ok=True)
                return _acquire_marker(lock, option, wait)
            if error.errno not in (*_HELD_ELSEWHERE, errno.ESTALE):
                raise
            if time.monotonic() > deadline:
                if not wait:
                    raise _in_use(lock, option) from error
                log.warning("%s: waiting until it ends", _holder(lock))
                deadline = math.inf
            time.sleep(_LONG_POLL_SECONDS if deadline == math.inf else _POLL_SECONDS)


def _release(handle: int, lock: Path, process: int) -> None:
    if os.getpid() != process:  # in a forked child: the parent holds the lock
        return
    with suppress(OSError):
        if _is_at(handle, lock):
            lock.unlink()  # before unlocking, so that a waiting process sees that the path no longer has this file
    _close(handle)


def _open(lock: Path, flags: int) -> int:
    """Open a regular file without following a link or waiting for a FIFO."""
    handle = os.open(lock, flags | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0), 0o666)
    _handles.add(handle)
    if not stat.S_ISREG(os.fstat(handle).st_mode):
        _close(handle)
        raise OSError(errno.EINVAL, os.strerror(errno.EINVAL), str(lock))
    return handle


def _close(handle: int) -> None:
    _handles.discard(handle)
    with suppress(OSError):
        os.close(handle)


def _flock(handle: int, *, exclusive: bool) -> None:
    if fcntl is None:
        raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS))
    fcntl.flock(handle, (fcntl.LOCK_EX if exclusive else fcntl.LOCK_SH) | fcntl.LOCK_NB)


def _is_at(handle: int, lock: Path) -> bool:
    """Whether the path still refers to an open file."""
    try:
        return os.path.samestat(os.fstat(handle), lock.lstat())
    except FileNotFoundError:
        return False


def _sign(handle: int) -> None:
    with suppress(OSError):  # such as a full disk; only messages use this content
        os.ftruncate(handle, 0)
        os.write(handle, f"{os.getpid()}\n{socket.gethostname()}\n".encode())


def _close_in_child() -> None:
    for handle in list(_handles):
        _close(handle)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_close_in_child)


def _acquire_marker(lock: Path, option: str, wait: bool) -> Callable[[], None]:
    """Lock with a marker file. filelock detects a holder on this host that has died."""
    from filelock import SoftFileLock, Timeout

    marker = SoftFileLock(lock)
    try:
        marker.acquire(timeout=_PATIENCE_SECONDS)
    except Timeout as error:
        hint = f" (if that process is surely gone, delete {lock})"
        if not wait:
            raise _in_use(lock, option, hint) from error
        log.warning("%s: waiting until it ends%s", _holder(lock), hint)
        marker.acquire()
    return marker.release


def _is_marked(lock: Path) -> bool:
    from filelock import SoftFileLock, Timeout

    try:
        with SoftFileLock(lock, timeout=0):
            return False
    except (Timeout, OSError):
        return True


def _in_use(lock: Path, option: str, hint: str = "") -> InUseError:
    return InUseError(f"{_holder(lock)}: wait for it, or use another {option}{hint}")


def _holder(lock: Path) -> str:
    process, host = _named(lock) or ("?", "?")
    return f"{lock.parent} is in use by process {process} on {host}"


def _named(lock: Path) -> tuple[str, str] | None:
    """Return the process id and host in a lock file, or None if it does not name them."""
    try:
        handle = _open(lock, os.O_RDONLY)
    except OSError:
        return None
    try:
        lines = os.read(handle, _MESSAGE_BYTES).decode(errors="replace").split("\n")
    finally:
        _close(handle)
    return (lines[0], lines[1]) if len(lines) > 2 and lines[0].isdigit() else None


def _refuse_irregular(lock: Path, remedy: str) -> None:
    with suppress(OSError):
        if not stat.S_ISREG(lock.lstat().st_mode):
            raise CollapseError(f"{lock} is not a regular file, so the folder cannot be locked: {remedy}")
