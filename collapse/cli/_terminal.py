"""The one way out: everything that a command prints goes through here, so that no name can command a terminal."""

import json
from typing import TYPE_CHECKING, Any

import click

from collapse.errors import shortened
from collapse.escaping import visible, without_signatures

if TYPE_CHECKING:
    from rich.text import Text

MESSAGE = 4_000
"""Characters of a message, at most."""

_OWN = "\n\t"  # what our messages are laid out with


def say(text: str, *, err: bool = False) -> None:
    """Print a message as it is laid out, to stdout unless told otherwise."""
    click.echo(visible(text, keep=_OWN), err=err)  # noqa: TID251  # the one place


def tell(text: str) -> None:
    """Print a message to stderr, its further lines indented, so that none of them can pass for another message."""
    # what it quotes may be anything, and megabytes long
    first, *more = without_signatures(shortened(text, MESSAGE)).split("\n")
    say("\n".join([first, *(line if line.startswith("  ") else f"  {line}" for line in more)]), err=True)


def complain(text: str) -> None:
    """Tell what is wrong."""
    tell(f"collapse: {text}")


def say_json(value: Any) -> None:
    """Print JSON that reads back as the value; characters that are not printable stand in it as JSON's own escapes."""
    text = json.dumps(value, indent=1, ensure_ascii=False)
    click.echo("".join(c if c.isprintable() or c == "\n" else json.dumps(c)[1:-1] for c in text))  # noqa: TID251  # as above


def cell(text: str, style: str = "") -> "Text":
    """One line of text for rich: its markup, such as [red], is shown and not obeyed."""
    from rich.text import Text

    return Text(visible(text), style=style)
