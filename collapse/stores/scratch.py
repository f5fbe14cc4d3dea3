"""A temporary folder that is removed at the end, or by a later run if its process was killed."""

import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from collapse.errors import CollapseError
from collapse.stores.lock import is_locked, locked

_PREFIX = "new-"
_YOUNG_SECONDS = 60.0  # a younger folder may not be locked yet: its process may be paused


@contextmanager
def scratch(parent: Path, *, option: str) -> Iterator[Path]:
    """Create a folder in ``parent``, locked until it is removed; also remove folders that killed processes left.

    Abandoned folders are recognized by their lock, not by a process id: two containers that share a cache may have
    equal process ids.

    Args:
        parent: The parent folder.
        option: The option that changes this place, for messages.

    Raises:
        OSError, CollapseError: The folder cannot be created.
    """
    parent.mkdir(parents=True, exist_ok=True)
    _remove_abandoned(parent)
    folder = Path(tempfile.mkdtemp(prefix=_PREFIX, dir=parent))
    try:
        with locked(folder, option=option):
            yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _remove_abandoned(parent: Path) -> None:
    with suppress(OSError):
        for folder in parent.iterdir():
            with suppress(OSError, CollapseError):
                age = time.time() - max(each.stat().st_mtime for each in (folder, *folder.glob("tokens.bin")))
                if folder.name.startswith(_PREFIX) and age > _YOUNG_SECONDS and not is_locked(folder):
                    shutil.rmtree(folder, ignore_errors=True)
