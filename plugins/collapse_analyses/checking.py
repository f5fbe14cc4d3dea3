"""Checks of options that several analyses have."""

from collapse.errors import UsageError


def check_numbers(*, level: float | None = None, **counts: tuple[int, int]) -> None:
    """Check the numbers of an analysis's options.

    Args:
        level: Of intervals.
        **counts: By option, its value and the least that it may be.

    Raises:
        UsageError: One is too small, or the level is not between 0 and 1; the message names the option.

    >>> check_numbers(n=(0, 1), seed=(0, 0))
    Traceback (most recent call last):
    collapse.errors.UsageError: --n must be at least 1, not 0
    """
    for option, (value, least) in counts.items():
        if value < least:
            raise UsageError(f"--{option} must be at least {least}, not {value}")
    if level is not None and not 0 < level < 1:
        raise UsageError(f"--level must be between 0 and 1, not {level:g}")
