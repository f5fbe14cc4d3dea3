"""Exceptions raised by collapse. The command line maps each class to an exit code.

Every message says what was found, what was expected, and which option or command fixes it.
"""

from collections.abc import Iterable
from difflib import get_close_matches
from operator import index
from typing import Any, SupportsIndex

_FIRST_LINE = 500
_MOST_NAMES = 12


class CollapseError(Exception):
    """An error that the user can fix. The command line prints only its message and exits with 1."""


class UsageError(CollapseError):
    """The request itself is invalid (an unknown name, a missing option). The command line exits with 2."""


class InUseError(CollapseError):
    """Another process holds the lock of the folder to write to."""


class StoreError(CollapseError):
    """A store is missing, altered or truncated, or has an unexpected format version or identity."""


class PluginError(CollapseError):
    """A plugin violates the plugin interface. A failing metric has no value; a failing statistic stops the run."""


def at_least(least: int, name: str, value: Any) -> int:
    """Return the value of an integer option; raise UsageError if it is not an integer, or is less than ``least``."""
    if not isinstance(value, SupportsIndex):
        raise UsageError(f"{name} must be an integer, got {value!r:.40}")
    if index(value) < least:
        raise UsageError(f"{name} must be at least {least}, got {value}")
    return index(value)


def first_line(error: BaseException) -> str:
    """Return the first line of an error's message, without its final period, shortened to 500 characters.

    If the error has no message, return the name of its class.
    """
    return shortened(str(error).strip().split("\n")[0].rstrip(". "), _FIRST_LINE) or type(error).__name__


def shortened(text: str, most: int = 60) -> str:
    """Shorten a text to at most ``most`` characters by cutting out its middle.

    >>> shortened("0123456789", 7)
    '012 … 9'
    """
    if len(text) <= most:
        return text
    end = (most - 3) // 4
    return f"{text[: most - 3 - end]} … {text[len(text) - end :]}"


def counted(number: int, noun: str) -> str:
    """Format a number with its noun in the singular or plural.

    >>> counted(1, "pair"), counted(2000, "class")
    ('1 pair', '2,000 classes')
    """
    plural = "es" if noun.endswith("s") else "s"
    return f"{number:,} {noun}{'' if number == 1 else plural}"


def some(names: list[str], most: int = 3) -> str:
    """Join the first few names for a message, and count the others. Names with commas are separated by semicolons.

    >>> some(["a", "b", "c", "d"]), some(["a, layer 1", "a, layer 2", "b, layer 1"], 2)
    ('a, b, c and 1 more', 'a, layer 1; a, layer 2; and 1 more')
    """
    mark = ";" if any(", " in name for name in names) else ","
    more = f"{mark.strip(',')} and {len(names) - most:,} more" if len(names) > most else ""
    return f"{mark} ".join(names[:most]) + more


def near_names(name: str, known: Iterable[str]) -> str:
    """Return the end of an "unknown name" message: similar names, or up to twelve known names, or "none are known".

    >>> near_names("nc1.cdvn", ["nc1.cdnv", "nc2.norm"])
    'did you mean nc1.cdnv?'
    >>> near_names("zzz", ["b", "a"])
    'known: a, b'
    >>> near_names("zzz", map(str, range(10, 40)))
    'known: 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21 and 18 more'
    """
    names = sorted(known)
    close = get_close_matches(name, names, n=3, cutoff=0.6)
    if close:
        return f"did you mean {' or '.join(close)}?"
    return f"known: {some(names, _MOST_NAMES)}" if names else "none are known"
