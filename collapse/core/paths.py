"""Paths given by users, and the folder of the cache."""

import os
from collections.abc import Iterable
from difflib import get_close_matches
from pathlib import Path


def expanded(path: str | Path) -> Path:
    """Replace ``~`` or ``~user`` at the start of a path by the home folder. Without such a user, change nothing."""
    return Path(os.path.expanduser(path))


def near_folders(name: str) -> str | None:
    """Return "did you mean …?" with folders similar to ``name``; None if ``name`` exists or no folder is similar."""
    folder = expanded(name)
    if folder.exists() or not folder.parent.is_dir():
        return None
    return near_paths(name, [each.name for each in folder.parent.iterdir() if each.is_dir()])


def near_paths(name: str, beside: Iterable[str]) -> str | None:
    """Return "did you mean …?" with the names in ``beside`` that are similar to the last part of ``name``.

    Return None if no name is similar.

    >>> near_paths("runs/smal", ["small", "large"]), near_paths("nothere.jsonl", ["r.jsonl"])
    ('did you mean runs/small?', None)
    """
    near = get_close_matches(Path(name).name, sorted(beside), cutoff=0.75)
    return f"did you mean {' or '.join(os.path.join(os.path.dirname(name), each) for each in near)}?" if near else None


def home() -> Path:
    """Return the folder of cached stores, packed texts and hashes: ``$COLLAPSE_HOME`` or the user's cache."""
    from platformdirs import user_cache_path

    given = os.environ.get("COLLAPSE_HOME")
    return expanded(given) if given else user_cache_path("collapse")
