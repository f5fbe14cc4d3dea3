"""How work that takes a while tells how far it is."""

from typing import Any, Protocol, runtime_checkable


@runtime_checkable
class Report(Protocol):
    """Called as report(what, done, total[, note]); total is None where it is not known, note stands for the rate."""

    def __call__(self, what: str, done: int, total: int | None, note: str = "", /) -> Any: ...
