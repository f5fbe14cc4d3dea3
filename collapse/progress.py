"""The progress callback of long operations."""

from typing import Any, Protocol, runtime_checkable


@runtime_checkable
class Report(Protocol):
    """Progress callback, called as report(what, done, total[, note]); total may be None, note replaces the rate."""

    def __call__(self, what: str, done: int, total: int | None, note: str = "", /) -> Any: ...
