"""Read files that users name: regular files only, since reading a FIFO or a device may never end."""

import errno
import json
from io import BufferedReader
from pathlib import Path
from typing import Any


def open_regular(path: str | Path) -> BufferedReader:
    """Open a regular file for reading.

    Raises:
        OSError: It cannot be opened, or it is a folder, a FIFO, a socket or a device.
    """
    if Path(path).exists() and not (Path(path).is_file() or Path(path).is_dir()):
        raise OSError(errno.EINVAL, "not a regular file (a FIFO, a socket or a device)", str(path))
    return open(path, "rb")


def read_bytes(path: str | Path) -> bytes:
    """Read a regular file; raises as :func:`open_regular`."""
    with open_regular(path) as file:
        return file.read()


def read_json(path: str | Path) -> Any:
    """Read a JSON file; raises as :func:`open_regular`, and ValueError if it is not JSON."""
    return json.loads(read_bytes(path))
