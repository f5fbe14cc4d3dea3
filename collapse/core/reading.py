"""Read files that are named by users: regular files only, since reading a FIFO or a device may never end."""

import errno
import json
import os
import stat
from pathlib import Path
from typing import Any, BinaryIO

_FLAGS = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_BINARY", 0)


def is_utf8(path: str | Path) -> bool:
    """Whether a path is valid UTF-8: libraries written in Rust and C++ cannot open others."""
    try:
        str(path).encode()
    except UnicodeEncodeError:
        return False
    return True


def open_regular(path: str | Path) -> BinaryIO:
    """Open a regular file for reading, without ever blocking.

    Raises:
        OSError: It cannot be opened, or it is a folder, a FIFO, a socket or a device.
    """
    handle = os.open(path, _FLAGS)
    try:
        mode = os.fstat(handle).st_mode
        if stat.S_ISDIR(mode):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
        if not stat.S_ISREG(mode):
            raise OSError(errno.EINVAL, "not a regular file (a FIFO, a socket or a device)", str(path))
        return os.fdopen(handle, "rb")
    except BaseException:
        os.close(handle)
        raise


def read_bytes(path: str | Path) -> bytes:
    """Read a regular file; raises as :func:`open_regular`."""
    with open_regular(path) as file:
        return file.read()


def read_json(path: str | Path) -> Any:
    """Read a JSON file; raises as :func:`open_regular`, and ValueError if it is not JSON."""
    return parse_json(read_bytes(path))


def parse_json(data: bytes) -> Any:
    """Parse JSON; raises ValueError if it is not JSON, or nested too deeply for its parser.

    >>> parse_json(b'{"a": [1, 2]}')
    {'a': [1, 2]}
    """
    try:
        return json.loads(data)
    except RecursionError as error:
        raise ValueError("it is nested too deeply") from error
