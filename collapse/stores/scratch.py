"""A temporary folder that is removed at the end; if its process is killed, another process removes it a day later."""

import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryDirectory

_PREFIX = "new-"
_ABANDONED_SECONDS = 24 * 3600.0
"""A folder without writes for this long was left by a killed process."""


@contextmanager
def scratch(parent: Path) -> Iterator[Path]:
    """Create a folder in ``parent`` that is removed at the end; also remove folders that killed processes left.

    Raises:
        OSError: The folder cannot be created.
    """
    parent.mkdir(parents=True, exist_ok=True)
    for other in parent.glob(f"{_PREFIX}*"):
        with suppress(OSError):
            newest = max(each.stat().st_mtime for each in (other, *other.iterdir()))
            if time.time() - newest > _ABANDONED_SECONDS:
                shutil.rmtree(other, ignore_errors=True)
    with TemporaryDirectory(prefix=_PREFIX, dir=parent, ignore_cleanup_errors=True) as folder:
        yield Path(folder)
