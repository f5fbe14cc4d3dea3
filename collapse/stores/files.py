"""The user's cache, hashes of files, and canonical JSON."""

import hashlib
import json
import os
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from secrets import token_hex
from typing import Any

from collapse.core.paths import home as home
from collapse.core.reading import open_regular, read_json
from collapse.errors import CollapseError
from collapse.stores.writing import replacing

Examine = Callable[[bytes], None]

# The hash of a file that changed more recently is not cached: a second change could fall within the same clock tick.
_SETTLED_SECONDS = 2.0
_REMEMBER_BYTES = 1 << 20
_BLOCK = 1 << 20


def canonical(value: Any) -> bytes:
    """Encode a value as JSON with sorted keys and no spaces: equal values give equal bytes.

    >>> canonical({"b": 1, "a": [None, "µ"]})
    b'{"a":[null,"\\\\u00b5"],"b":1}'
    """
    return json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False).encode()


def sha256_of(value: Any) -> str:
    """sha256 of a value's canonical JSON."""
    return hashlib.sha256(canonical(value)).hexdigest()


def sha256_file(path: Path, *, remember: bool = True, examine: Examine | None = None) -> str:
    """Return the sha256 of all bytes of a regular file, cached in the user's cache by size, times and inode.

    The comparison includes the change time, which no program can set back. So a changed byte is detected even if the
    modification time was restored. Only writes through a memory map during and after the hashing may be missed.

    Args:
        path: The file.
        remember: Use the cached hash, and cache a new one. False always reads the file.
        examine: Called with each block that is hashed, and with b"" at the end; it raises to reject the file. A cached
            hash is used only if the same function accepted the file before.

    Raises:
        OSError: The file cannot be read, or is not a regular file.
    """
    with open_regular(path) as file:
        status = os.fstat(file.fileno())
        before = stamp(file.fileno())
        remember = remember and status.st_size >= _REMEMBER_BYTES and os.name == "posix"
        about = "" if examine is None else examine.__qualname__
        if remember:
            with suppress(OSError, ValueError, LookupError, TypeError, CollapseError):
                known = read_json(_memory(path, about))
                if known["stamp"] == before:
                    return str(known["sha256"])
        hashed = hashlib.sha256()
        while block := file.read(_BLOCK):
            hashed.update(block)
            if examine is not None:
                examine(block)
        if examine is not None:
            examine(b"")
        unchanged = stamp(file.fileno()) == before
    if remember and unchanged and time.time() - status.st_ctime > _SETTLED_SECONDS:
        with suppress(OSError, CollapseError):  # an unwritable cache is not an error
            _remember(_memory(path, about), {"stamp": before, "sha256": hashed.hexdigest()})
    return hashed.hexdigest()


def stamp(file: Path | int) -> list[int]:
    """Return a file's size, times, inode and device, which change with its content; [] if it cannot be examined."""
    try:
        status = os.stat(file)
    except OSError:
        return []
    return [status.st_size, status.st_mtime_ns, status.st_ctime_ns, status.st_ino, status.st_dev]


def _memory(path: Path, examined: str) -> Path:
    place = os.fsencode(path.resolve()) + (f"\0{examined}".encode() if examined else b"")
    return home() / "hashes" / f"{hashlib.sha256(place).hexdigest()}.json"


def _remember(memory: Path, known: Mapping[str, Any]) -> None:
    with replacing(memory, name=f".{token_hex(8)}.partial") as partial:
        partial.write_bytes(canonical(known))
