"""Paths that users type."""

import os
from pathlib import Path


def expanded(path: str | Path) -> Path:
    """Replace ``~`` in a path by the home folder; unchanged if there is no such user."""
    return Path(os.path.expanduser(path))
