"""Hashes of files, and canonical JSON."""

import hashlib
import json
import os
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

from collapse.core.paths import home
from collapse.core.reading import read_json
from collapse.errors import CollapseError
from collapse.stores.writing import write_atomic

# A hash is cached only if the file has not changed for this long: two changes could fall within one clock tick.
_SETTLED_SECONDS = 2.0
_REMEMBER_BYTES = 1 << 20


def canonical(value: Any) -> bytes:
    """Encode a value as JSON with sorted keys and no spaces: equal values give equal bytes.

    Raises:
        ValueError: A number is NaN or infinite.

    >>> canonical({"b": 1, "a": [None, "µ"]})
    b'{"a":[null,"\\\\u00b5"],"b":1}'
    """
    return json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False).encode()


def sha256_of(value: Any) -> str:
    """Return the sha256 of a value's canonical JSON."""
    return hashlib.sha256(canonical(value)).hexdigest()


def sha256_file(path: Path, *, remember: bool = True) -> str:
    """Return the sha256 of a regular file; a cached hash is used while the file's size, times and inode are unchanged.

    The times include the change time, which no program can set back. So a changed byte is detected even if the
    modification time was restored. Only writes through a memory map during and after the hashing can be missed.

    Args:
        path: The file.
        remember: Whether to use the cached hash and, if there is none, to cache the new hash. If False, the file is
            always read and no hash is cached. The same applies to files smaller than 1 MiB, and on Windows.

    Raises:
        OSError: The file cannot be read.
    """
    with path.open("rb") as file:
        status = os.fstat(file.fileno())
        before = _stamp(status)
        remember = remember and status.st_size >= _REMEMBER_BYTES and os.name == "posix"
        memory = home() / "hashes" / f"{hashlib.sha256(os.fsencode(path.resolve())).hexdigest()}.json"
        if remember:
            with suppress(OSError, ValueError, LookupError, TypeError):
                known = read_json(memory)
                if known["stamp"] == before:
                    return str(known["sha256"])
        digest = hashlib.file_digest(file, "sha256").hexdigest()
        unchanged = _stamp(os.fstat(file.fileno())) == before
    if remember and unchanged and time.time() - status.st_ctime > _SETTLED_SECONDS:
        with suppress(CollapseError):  # an unwritable cache is not an error
            write_atomic(memory, canonical({"stamp": before, "sha256": digest}), shared=True)
    return digest


def _stamp(status: os.stat_result) -> list[int]:
    """Return a file's size, times, inode and device; one of them changes when the content does."""
    return [status.st_size, status.st_mtime_ns, status.st_ctime_ns, status.st_ino, status.st_dev]
