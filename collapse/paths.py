"""Paths that users type."""

import os
from pathlib import Path

from collapse.errors import near_names


def expanded(path: str | Path) -> Path:
    """Replace ``~`` in a path by the home folder; unchanged if there is no such user."""
    return Path(os.path.expanduser(path))


def near_folders(name: str) -> str | None:
    """Suggest folders of similar names beside a path that does not exist; None if there are none."""
    folder = expanded(name)
    if folder.exists() or not folder.parent.is_dir():
        return None
    close = near_names(folder.name, [each.name for each in folder.parent.iterdir() if each.is_dir()])
    return close if close.startswith("did you mean") else None


def mistyped(name: str) -> str | None:
    """Suggest folders for a name that is rather a path of this machine than a name on the Hub; else None.

    That is so if its parent folder exists, and holds folders of similar names. ``@`` is of the Hub alone.
    """
    return near_folders(name) if "/" in name and "@" not in name else None
