"""Read untrusted files safely: only regular files, of limited size, and JSON of limited depth.

Reading a FIFO or a device may never end, and a JSON file of 100,000 brackets crashes some parsers.
"""

import errno
import json
import os
import re
import stat
from pathlib import Path
from typing import Any, BinaryIO

JSON_LIMIT = 1 << 26
"""Largest size of a JSON file, in bytes."""

DEPTH_LIMIT = 100
"""Largest depth of nested lists and objects in JSON; the files that we read have fewer than ten levels."""

_DIGITS = 400
_OTHER_BYTES = bytes(set(range(256)) - set(b'"[]{}\n'))
_STRING = re.compile(rb'"[^"\n]*(?:"|(?=\n))')  # also ends at a line break, which a JSON string cannot contain
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


def read_bounded(path: str | Path, limit: int = JSON_LIMIT) -> bytes:
    """Read a regular file of at most ``limit`` bytes.

    Raises:
        OSError: As :func:`open_regular`.
        ValueError: It is larger.
    """
    with open_regular(path) as file:
        data = file.read(limit + 1)
        if len(data) > limit:
            raise ValueError(f"it is too large ({os.fstat(file.fileno()).st_size:,} bytes)")
    return data


def read_json(path: str | Path, limit: int = JSON_LIMIT) -> Any:
    """Read a JSON file of at most ``limit`` bytes; raises as :func:`read_bounded` and :func:`parse_json`."""
    return parse_json(read_bounded(path, limit))


def parse_json(data: bytes) -> Any:
    """Parse JSON, with limits on its depth and on the length of integers.

    >>> parse_json(b'{"a": [1, 2]}')
    {'a': [1, 2]}
    >>> parse_json(b"[" * 200 + b"]" * 200)
    Traceback (most recent call last):
    ValueError: it is nested more than 100 levels deep

    Raises:
        ValueError: It is not JSON, is nested deeper than 100 levels, or has an integer of more than 400 digits.
    """
    Nesting().add(data)
    return json.loads(data, parse_int=_integer)


class Nesting:
    """Checks the depth of JSON, block by block, before a parser reads it. Brackets in strings do not count."""

    def __init__(self) -> None:
        self._depth = 0
        self._in_string = False
        self._held = b""

    def add(self, block: bytes) -> None:
        """Read the next block.

        Raises:
            ValueError: It is nested more than 100 levels deep.
        """
        block = (self._held + block).replace(rb"\\", b"")
        self._held = b"\\" if block.endswith(b"\\") else b""
        marks = block.removesuffix(b"\\").replace(rb"\"", b"").translate(None, _OTHER_BYTES)
        outside = _STRING.sub(b"", b'"' + marks if self._in_string else marks)
        outside, quote, _ = outside.partition(b'"')
        self._in_string = bool(quote)
        for mark in outside.translate(None, b"\n"):
            if mark in b"[{":
                self._depth += 1
                if self._depth > DEPTH_LIMIT:
                    raise ValueError(f"it is nested more than {DEPTH_LIMIT} levels deep")
            elif self._depth:
                self._depth -= 1


def _integer(digits: str) -> int:
    if len(digits) > _DIGITS:
        raise ValueError(f"it holds an integer of {len(digits):,} digits")
    return int(digits)
