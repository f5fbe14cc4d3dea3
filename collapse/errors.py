"""What can go wrong, as a small tree: one kind an exit code or a remedy.

Every message says what was found, what was expected, and the option or command that mends it.
"""

from collections.abc import Iterable
from difflib import get_close_matches

_FIRST_LINE = 500


class CollapseError(Exception):
    """Something a user can mend. The command line prints it as one line and exits 1."""


class UsageError(CollapseError):
    """The request itself is wrong (an unknown name, a missing option). Exits 2."""


class InUseError(CollapseError):
    """Another process holds the lock of the folder that is to be written."""


class StoreError(CollapseError):
    """A store that is absent, altered, truncated, of a newer version, or of another identity."""


class PluginError(CollapseError):
    """A plugin that does not keep the contract. Costs its own rows, never the run."""


def first_line(error: BaseException) -> str:
    """The first line of an error's message, of 500 characters at most, or its kind where it says nothing."""
    return shortened(str(error).strip().split("\n")[0], _FIRST_LINE) or type(error).__name__


def shortened(text: str, most: int) -> str:
    """Text of at most ``most`` characters: of a longer one the beginning and the end.

    >>> shortened("0123456789", 7)
    '012 … 9'
    """
    if len(text) <= most:
        return text
    end = (most - 3) // 4
    return f"{text[: most - 3 - end]} … {text[len(text) - end :]}"


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
