"""Everything that a command prints goes through this module, so that no name can contain terminal commands."""

import json
import re
import shutil
import sys
from textwrap import wrap
from typing import TYPE_CHECKING, Any

import click

from collapse.core.escaping import visible, without_signatures
from collapse.errors import shortened

if TYPE_CHECKING:
    from rich.text import Text

MESSAGE = 4_000
"""Largest number of characters of a message."""

_OWN = "\n\t"  # layout characters of our own messages


_COMMAND = re.compile(r"(?<=:) (?P<command>(?:collapse|pip|iconv) [^;]*?)(?:; |$)")
"""A command to copy, after a colon to the end of a message or a semicolon."""


def say(text: str, *, err: bool = False) -> None:
    """Print a message with its layout, to stdout by default; on a terminal, wrapped between words."""
    stream = sys.stderr if err else sys.stdout
    if stream.isatty():
        text = wrapped(text, shutil.get_terminal_size().columns, "  " if err else "")
    say_whole(text, err=err)


def say_whole(text: str, *, err: bool = False) -> None:
    """Print a text with its layout whose lines are never broken, such as CSV."""
    # named, because click may write past the stream that keeps lines above a progress bar
    stream = sys.stderr if err else None
    click.echo(visible(text, keep=_OWN), file=stream, err=err)  # noqa: TID251  # the one place


_QUOTED = re.compile(r'"[^"\n]{1,40}"')
"""A text in quotes, such as a token's, in which spaces count: it stays on one line."""
_NO_BREAK = "\ufdd0"  # is no character, and stands for a space while lines are broken


def wrapped(text: str, width: int, indent: str = "") -> str:
    """Wrap a message between words and outside quotes, a command in it on an unbroken line of its own, to be copied.

    Args:
        text: The message.
        width: Longest line, of more than one word.
        indent: Stands before the lines that it adds, after a line's own indentation.

    >>> print(wrapped("12 models; more about one with: collapse zoo info TinyStories-01x0064_01L@0", 40))
    12 models; more about one with:
      collapse zoo info TinyStories-01x0064_01L@0
    """
    made = []
    text = _QUOTED.sub(lambda found: found[0].replace(" ", _NO_BREAK), text)
    for line in text.split("\n"):
        own = line[: len(line) - len(line.lstrip(" "))]
        if len(line) <= width or line.lstrip().startswith("collapse "):
            made.append(line)
            continue
        found = _COMMAND.search(line)
        prose = [line] if found is None else [line[: found.start()], own + indent + line[found.end() :]]
        breaks: dict[str, Any] = {"break_long_words": False, "break_on_hyphens": False, "replace_whitespace": False}
        parts = [wrap(each, width, subsequent_indent=own + indent, **breaks) for each in prose if each.strip()]
        made += parts[0]
        if found is not None:
            made.append(f"{own}  {found['command']}")
        made += [each for part in parts[1:] for each in part]
    return "\n".join(made).replace(_NO_BREAK, " ")


def say_aside(text: str) -> None:
    """Print a message to stderr, with further lines indented, so that they cannot look like other messages."""
    # a quoted text may be megabytes long
    first, *more = without_signatures(shortened(text, MESSAGE)).split("\n")
    say("\n".join([first, *(line if line.startswith("  ") else f"  {line}" for line in more)]), err=True)


def say_error(text: str) -> None:
    """Print an error message."""
    say_aside(f"collapse: {text}")


def say_json(value: Any) -> None:
    """Print a value as JSON."""
    click.echo(json_of(value))  # noqa: TID251  # as above


def json_of(value: Any) -> str:
    """Return a value as JSON, with JSON's escapes for characters that are not printable."""
    text = json.dumps(value, indent=1, ensure_ascii=False)
    return "".join(c if c.isprintable() or c == "\n" else json.dumps(c)[1:-1] for c in text)


def line(text: str, width: int, style: str = "", *, indent: str = "") -> "Text":
    """Return a text for rich without its markup, such as [red], wrapped between words; print it with ``soft_wrap``."""
    from rich.text import Text

    return Text(wrapped(visible(text), width, indent), style=style)
