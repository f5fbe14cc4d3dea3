"""Everything that a command prints goes through this module, so that no name can contain terminal commands."""

import json
import sys
from typing import TYPE_CHECKING, Any

import click

from collapse.errors import shortened
from collapse.escaping import visible, without_signatures

if TYPE_CHECKING:
    from rich.text import Text

MESSAGE = 4_000
"""Largest number of characters of a message."""

_OWN = "\n\t"  # layout characters of our own messages


def say(text: str, *, err: bool = False) -> None:
    """Print a message with its layout, to stdout by default."""
    # named, because click may write past the stream that keeps lines above a progress bar
    stream = sys.stderr if err else None
    click.echo(visible(text, keep=_OWN), file=stream, err=err)  # noqa: TID251  # the one place


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


def cell(text: str, style: str = "") -> "Text":
    """Return one line of text for rich, without interpreting its markup, such as [red]."""
    from rich.text import Text

    return Text(visible(text), style=style)
