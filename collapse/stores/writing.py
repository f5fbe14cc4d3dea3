"""Write files atomically, and report a full disk in one line that says what to do."""

import errno
import os
import re
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from secrets import token_hex

from collapse.errors import CollapseError, UsageError, first_line

_OS_ERROR = re.compile(r"\(os error (\d+)\)")
_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
"""A full disk, an exhausted quota, a limit on the file size."""

_ELSEWHERE = "another folder (--store, --output, --out, COLLAPSE_HOME or HF_HOME)"


@contextmanager
def replacing(path: Path, *, shared: bool = False) -> Iterator[Path]:
    """Yield the path of a temporary file in the same folder; it replaces ``path`` at the end of the ``with`` block.

    Args:
        path: The file to replace. After an error it is unchanged, and the temporary file is removed.
        shared: Whether other processes could write the file at the same time, because no lock prevents this. The
            temporary file then has a random name.
    """
    partial = path.with_name(f".{token_hex(8) if shared else path.name}.partial")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        yield partial
        partial.replace(path)
    except BaseException:
        with suppress(OSError):  # the folder may not exist
            partial.unlink(missing_ok=True)
        raise


def write_atomic(path: Path, data: bytes, *, shared: bool = False) -> None:
    """Write a file atomically and durably: a temporary file in the same folder, fsync, rename.

    The permissions of a replaced file are kept.

    Args:
        path: The file.
        data: Its content.
        shared: As in :func:`replacing`.

    Raises:
        CollapseError: There is no space, no permission, or another failure of the file system.
    """
    try:
        with replacing(path, shared=shared) as partial:
            with partial.open("wb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            if path.exists():
                shutil.copymode(path, partial)
        sync_folder(path.parent)
    except OSError as error:
        raise write_error(path, error, len(data)) from error


def check_output_place(path: str | Path) -> None:
    """Check that an output file can be written, before any work is done for it.

    Raises:
        UsageError: The path is a folder, or no file can be created there.
    """
    target = Path(os.path.realpath(path))
    try:
        above = next(each for each in target.parents if each.exists())
        if target.is_dir():
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
        with tempfile.TemporaryFile(dir=above):  # os.access() is wrong for root, and for file systems such as /proc
            pass
    except OSError as error:
        reason = os.strerror(error.errno or errno.EIO)
        raise UsageError(f"cannot write {path}: {reason}. Choose another file or folder") from error


def write_output(path: str | Path, data: bytes) -> None:
    """Write an output file, or its target if it is a link; raises the exceptions of :func:`write_atomic`."""
    write_atomic(Path(os.path.realpath(path)), data, shared=True)


def write_error(path: str | Path, error: BaseException, size: int = 0) -> CollapseError:
    """Return the error for a failed write; ``size`` is the number of bytes to write, or 0 if it is not known."""
    need = f" ({size / 1e6:,.1f} MB)" if size >= 50_000 else ""
    number = _number(error)
    reason = os.strerror(number) if number else first_line(error)
    advice = "Free space or choose" if number in _FULL else "Choose"
    return CollapseError(
        f"cannot write {path}{need}: {reason}. {advice} {_ELSEWHERE}, then run the command again: finished work is kept"
    )


def _number(error: BaseException) -> int:
    """Return the errno of an error, from the exception or else from its message; 0 if neither has an errno."""
    if isinstance(error, OSError) and error.errno:
        return error.errno
    said = str(error)
    if found := _OS_ERROR.search(said):
        return int(found[1])
    # when the disk is full, torch's writer reports an unexpected file position
    return errno.ENOSPC if "inline_container" in said and "Reader" not in said else 0


def raise_if_full(error: BaseException, folder: str | Path) -> None:
    """If a full disk caused an error, directly or through other exceptions, raise the error of :func:`write_error`.

    The message names the file in the exception or, if there is none, ``folder``.
    """
    cause: BaseException | None = error
    while cause is not None:
        if _number(cause) in _FULL:
            raise write_error(getattr(cause, "filename", None) or folder, cause) from error
        cause = cause.__cause__ or cause.__context__


def sync_folder(folder: Path) -> None:
    """Make renames in a folder durable, if the system allows opening a folder."""
    with suppress(OSError):
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
