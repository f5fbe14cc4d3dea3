"""Define options as fields of a dataclass.

Each field describes how its option is documented, named on the command line, checked and recorded.
"""

from collections.abc import Callable
from dataclasses import Field, dataclass, field
from difflib import get_close_matches
from typing import Any

from collapse.errors import UsageError, at_least

ROLES = {
    "recorded": "its value",
    "changed": "its value, unless it is the default",
    "running": "nothing: it changes numbers by rounding at most",
    "statistics": "nothing: the manifest lists the statistics in `statistics`, outside the identity",
    "layers": "nothing: the manifest lists the files of each layer in `files`, outside the identity",
}
"""For each role of an option, what a collection's identity records of the option."""


@dataclass(frozen=True, kw_only=True)
class Option:
    """How an option is documented, checked and recorded.

    Attributes:
        help: What the option does, in one sentence.
        role: One of :data:`ROLES`; or names of fields of the identity, separated by spaces. These fields hold hashes or
            versions of the content that the option selects.
        unset: What the default None means, for help texts.
        flag: Name on the command line; None to derive it from the field's name.
        off: Help of the flag that turns the option off, if the option is on by default; otherwise "".
        metavar: Placeholder for the value in help texts.
        many: Whether the option may be given several times on the command line.
        read: Function that converts a given value to the value of the field, before the value is checked.
        least: Smallest valid value, if the option is an integer.
        choices: All valid values, if they can be listed.
        valid: Function that returns whether a value is valid; ignored if there are ``choices`` or ``least``.
        wanted: Description of the values that ``valid`` accepts, for messages.
    """

    help: str
    role: str
    unset: str = ""
    flag: str | None = None
    off: str = ""
    metavar: str | None = None
    many: bool = False
    read: Callable[[Any], Any] | None = None
    least: int | None = None
    choices: tuple[str, ...] = ()
    valid: Callable[[Any], Any] | None = None
    wanted: str = ""

    def flag_for(self, name: str) -> str:
        """Return the option's name on the command line, such as ``--chunk-length``; ``name`` is the field's name."""
        return self.flag or f"--{name.replace('_', '-')}"


def option(help: str, role: str = "recorded", *, default: Any = None, **how: Any) -> Any:
    """Return a dataclass field with an :class:`Option` in its metadata.

    ``default`` is the default of the field; ``help``, ``role`` and ``how`` are the arguments of the :class:`Option`.
    """
    return field(default=default, metadata={"option": Option(help=help, role=role, **how)})


def checked(each: Field[Any], value: Any) -> Any:
    """Check a value of a field that has an :class:`Option`, and return it; raise UsageError if it is invalid."""
    about: Option = each.metadata["option"]
    if about.least is not None:
        return at_least(about.least, about.flag_for(each.name), value)
    valid, wanted = about.valid is None or about.valid(value), about.wanted
    if about.choices:
        valid, wanted = value in about.choices, " or ".join(about.choices)
    if not valid:
        close = get_close_matches(str(value), about.choices, n=1)
        hint = f"; did you mean {close[0]}?" if close else ""
        raise UsageError(f"{about.flag_for(each.name)} must be {wanted}, got {value!r:.40}{hint}")
    return value
