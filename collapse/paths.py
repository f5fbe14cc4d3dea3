"""Paths that users type, and the folder of the cache."""

import errno
import os
from contextlib import suppress
from pathlib import Path

from collapse.errors import CollapseError, UsageError, near_names, shortened


def expanded(path: str | Path) -> Path:
    """Replace ``~`` in a path by the home folder; unchanged if there is no such user.

    Raises:
        UsageError: It is longer than the name of a file may be.
    """
    found = Path(os.path.expanduser(path))
    try:
        found.exists()
    except OSError as error:
        if error.errno == errno.ENAMETOOLONG:
            name = shortened(str(path), 60)
            raise UsageError(
                f"{name!r} is too long for the name of a file: give the file's name, not its text"
            ) from error
    except ValueError:  # a null byte, which is refused where the path is used
        pass
    return found


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


def home() -> Path:
    """Return the folder of cached stores, packed texts and hashes: ``$COLLAPSE_HOME`` or the user's cache."""
    from platformdirs import user_cache_path

    given = os.environ.get("COLLAPSE_HOME")
    if given:
        return expanded(given)
    with suppress(RuntimeError):
        folder = user_cache_path("collapse")
        if folder.is_absolute():
            return folder
    raise CollapseError(
        "no home folder is known (HOME is not set): set COLLAPSE_HOME to a folder for the cache, "
        "and HF_HOME to one for what comes from the Hub"
    )
