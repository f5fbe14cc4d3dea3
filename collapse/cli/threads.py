"""``--threads``: a number of threads, as every command takes it."""

from typing import Any

import click

from collapse.errors import UsageError

MOST = 1024
"""More are refused: OpenMP would end the process when it cannot start them."""


class Threads(click.ParamType):
    """A number of threads, with one line for anything else."""

    name = "threads"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        try:
            number = int(value)
        except ValueError:
            number = 0
        if number < 1:
            raise UsageError(f"--threads must be followed by a whole number of at least 1, got {value}")
        if number > MOST:
            raise UsageError(f"--threads must be at most {MOST:,}, got {value}")
        return number
