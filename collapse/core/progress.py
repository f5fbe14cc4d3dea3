"""The progress callback of long operations."""

from typing import Any, Protocol, runtime_checkable


@runtime_checkable
class Report(Protocol):
    """Progress callback, called as report(what, done, total[, note]); total may be None, note replaces the rate."""

    def __call__(self, what: str, done: int, total: int | None, note: str = "", /) -> Any: ...


def lasting(seconds: float) -> str:
    """Return a duration in words, to two digits at most.

    >>> [lasting(seconds) for seconds in (20.0, 80.0, 3000.0, 2e4, 3e5)]
    ['under a minute', '1 min', '50 min', '5.6 h', '3.5 days']
    """
    if seconds < 60:
        return "under a minute"
    if seconds < 3600:
        return f"{seconds / 60:.0f} min"
    number, unit = (seconds / 3600, "h") if seconds < 48 * 3600 else (seconds / 86_400, "days")
    return f"{number:.1f} {unit}" if number < 10 else f"{number:.0f} {unit}"
