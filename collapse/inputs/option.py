"""How an option is parsed, documented, checked and recorded."""

import json
import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from collapse.errors import UsageError

TextNames = str | os.PathLike[str] | Iterable[str | os.PathLike[str]]


MOST = 2**63 - 1


class Role(Enum):
    """What a collection's identity records of an option."""

    RECORDED = "its value"
    CHANGED = "its value, unless it is the default"
    RESOLVED = "hashes or versions of what it selects"
    RUNNING = "nothing: it changes numbers by rounding at most"


@dataclass(frozen=True, kw_only=True)
class Option:
    """How an option is parsed, documented, checked and recorded.

    Attributes:
        help: What it does, in one sentence.
        role: What the identity records of it.
        resolved: With the role RESOLVED, the identity's fields that record what it selects, separated by spaces.
        unset: What None means, if a value is then found elsewhere.
        flag: Name on the command line; None to derive it from the field's name.
        off: Help of the flag that turns off an option that is on by default.
        metavar: Placeholder for the value in help texts.
        many: Whether it may be given several times.
        read: Parses the words on the command line; None if they need no parsing.
        check: Raises UsageError for an invalid value.
        record: Returns what the identity records of the value.
    """

    help: str
    role: Role
    resolved: str = ""
    unset: str = ""
    flag: str | None = None
    off: str = ""
    metavar: str | None = None
    many: bool = False
    read: Callable[[Any], Any] = lambda words: words
    check: Callable[[Any], None] = lambda value: None
    record: Callable[[Any], Any] = lambda value: value

    def __post_init__(self) -> None:
        if (self.role is Role.RESOLVED) != bool(self.resolved):
            raise TypeError(f"{self.help!r}: resolved= names fields of the identity, with Role.RESOLVED and only then")


def option(help: str, role: Role, *, default: Any = None, **how: Any) -> Any:
    """Return a field of a :class:`CollectionSpec`; ``how`` are fields of :class:`Option`."""
    return field(default=default, metadata={"option": Option(help=help, role=role, **how)})


def at_least(least: int, flag: str, *, optional: bool = True) -> Callable[[Any], None]:
    """Return a check that a number is an integer and not too small."""

    def check(value: Any) -> None:
        if value is None and optional:
            return
        if isinstance(value, bool) or not isinstance(value, int):
            raise UsageError(f"{flag} must be a whole number, got {value}")
        if value < least:
            raise UsageError(f"{flag} must be at least {least}, got {value}")
        if value > MOST:
            raise UsageError(f"{flag} must be at most {MOST:,}, got {value}")

    return check


def key_value(text: str, flag: str = "--model-arg", example: str = "gguf_file=model.Q4_1.gguf") -> tuple[str, Any]:
    """Split ``key=value`` into (key, value), with the value parsed if it is JSON.

    Raises:
        UsageError: It is not key=value.
    """
    key, equals, value = text.partition("=")
    if not equals or not key.isidentifier():
        raise UsageError(f"{flag} must be key=value, such as {example}, got {text}")
    try:
        return key, json.loads(value)
    except ValueError:
        return key, value


def key_values(arguments: Mapping[str, Any]) -> list[str]:
    """Return arguments as :func:`key_value` reads them."""
    return [
        f"{key}={each if isinstance(each, str) and key_value(f'k={each}')[1] == each else json.dumps(each)}"
        for key, each in arguments.items()
    ]


def parse_part(text: str) -> tuple[int, int]:
    """Read ``k/n``, the k-th of n parts; raises UsageError."""
    k, _, n = text.partition("/")
    if not (is_number(k) and is_number(n)):
        raise UsageError(f"--part must be k/n with 1 ≤ k ≤ n, such as 2/4, got {text}")
    return int(k), int(n)


def check_part(part: Any) -> None:
    """Raise UsageError unless a part is None or (k, n) with 1 ≤ k ≤ n."""
    if part is None:
        return
    if not isinstance(part, tuple | list) or [type(each) for each in part] != [int, int]:
        raise UsageError(f"--part must be (k, n), such as (2, 4), got {part}")
    if not 1 <= part[0] <= part[1]:
        raise UsageError(f"--part must be k/n with 1 ≤ k ≤ n, such as 2/4, got {part[0]}/{part[1]}")


def is_number(text: str) -> bool:
    return text.isascii() and text.isdigit()


def text_names(value: Any) -> tuple[Any, ...]:
    """Convert one name, several names or None to a tuple, and paths to texts."""
    some = value if isinstance(value, Iterable) and not isinstance(value, str) else () if value is None else (value,)
    return tuple(os.fspath(each) if isinstance(each, os.PathLike) else each for each in some)
