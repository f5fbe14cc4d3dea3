"""Print the output of all commands, with control characters escaped, so that no name can control the terminal."""

import sys
from typing import TYPE_CHECKING, Any

import click

from collapse.core.escaping import visible, without_signatures
from collapse.errors import shortened

if TYPE_CHECKING:
    from collapse.plugin.registry import Plugins

MESSAGE = 4_000
"""Maximum number of characters in a message."""


def say(text: str, *, err: bool = False) -> None:
    """Print a message to stdout or, with ``err``, to stderr; its line breaks and tabs are kept."""
    # pass sys.stderr explicitly: click may bypass the replaced stream that prints lines above a progress bar
    stream = sys.stderr if err else None
    click.echo(visible(text, keep="\n\t"), file=stream, err=err)  # noqa: TID251  # all output goes through say()


def say_aside(text: str) -> None:
    """Print a message to stderr. All lines but the first are indented, so that they cannot look like messages."""
    # a quoted text may be megabytes long
    first, *more = without_signatures(shortened(text, MESSAGE)).split("\n")
    say("\n".join([first, *(line if line.startswith("  ") else f"  {line}" for line in more)]), err=True)


def say_error(text: str) -> None:
    """Print an error message to stderr, with the prefix ``collapse:``."""
    say_aside(f"collapse: {text}")


def say_json(value: Any) -> None:
    """Print a value as JSON."""
    from collapse.measurement.output import as_json

    say(as_json(value))


def plugins_reporting_problems() -> "Plugins":
    """Print a line for each problem of a plugin, and return the plugins."""
    from collapse.plugin.plugin_manager import plugins

    for problem in plugins().problems:
        say_error(problem)
    return plugins()
