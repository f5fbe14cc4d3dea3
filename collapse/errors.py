"""What can go wrong, as a small tree: one kind an exit code or a remedy.

Every message says what was found, what was expected, and the option or command that mends it.
"""

from collections.abc import Iterable
from difflib import get_close_matches


class CollapseError(Exception):
    """Something a user can mend. The command line prints it as one line and exits 1."""


class UsageError(CollapseError):
    """The request itself is wrong (an unknown name, a missing option). Exits 2."""


class StoreError(CollapseError):
    """A store that is absent, altered, truncated, of a newer version, or of another identity."""


class PluginError(CollapseError):
    """A plugin that does not keep the contract. Costs its own rows, never the run."""


def first_line(error: BaseException) -> str:
    """The first line of an error's message, or its kind where it says nothing."""
    return str(error).strip().split("\n")[0] or type(error).__name__


def near_names(name: str, known: Iterable[str]) -> str:
    """A ready-made ending for "unknown name" messages: the near names, else all of them.

    >>> near_names("nc1.cdvn", ["nc1.cdnv", "nc2.norm"])
    'did you mean nc1.cdnv?'
    >>> near_names("zzz", ["b", "a"])
    'known: a, b'
    """
    names = sorted(known)
    close = get_close_matches(name, names, n=3, cutoff=0.6)
    if close:
        return f"did you mean {' or '.join(close)}?"
    return f"known: {', '.join(names)}" if names else "none are known"
