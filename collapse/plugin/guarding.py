"""Plugins are trusted code, but one that writes to what it should only read would spoil the numbers of others.

The version counter of a tensor, which all its views share, reveals in-place writes.

This module does not import torch, because plugins that only add commands do not need it.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import wraps
from typing import TYPE_CHECKING, ParamSpec, TypeVar

from collapse.errors import CollapseError, PluginError

if TYPE_CHECKING:
    from torch import Tensor

P = ParamSpec("P")
R = TypeVar("R")


class Wrote(PluginError):
    """A plugin wrote to tensors that it may only read."""

    def __init__(self, names: list[str]) -> None:
        super().__init__(f"it wrote to {', '.join(names)}, which others read too: write to a copy (x.clone())")


def outside_inference_mode(function: Callable[P, R]) -> Callable[P, R]:
    """Run a function outside its caller's ``torch.inference_mode``, in which tensors have no version counters."""

    @wraps(function)
    def run(*arguments: P.args, **options: P.kwargs) -> R:
        import torch

        if not torch.is_inference_mode_enabled():
            return function(*arguments, **options)
        with torch.inference_mode(False), torch.no_grad():
            return function(*arguments, **options)

    return run


class Watch:
    """The version counters of tensors that plugins may only read.

    Args:
        tensors: The tensors, by their names in error messages.
    """

    def __init__(self, tensors: Mapping[str, "Tensor"]) -> None:
        # torch itself refuses writes to tensors made in inference mode, which have no counter
        self.tensors = {name: tensor for name, tensor in tensors.items() if not tensor.is_inference()}
        self._versions = self._now()

    def written(self) -> list[str]:
        """Return the names of the tensors that were written to since the watch began."""
        now = self._now()
        if now == self._versions:
            return []
        return [name for name, old, new in zip(self.tensors, self._versions, now, strict=True) if old != new]

    def _now(self) -> list[int]:
        return [tensor._version for tensor in self.tensors.values()]


@contextmanager
def reading(watch: Watch) -> Iterator[None]:
    """Run a plugin's code that may only read the watched tensors.

    Raises:
        Wrote: It wrote to one of them, even if it also raised an exception.
    """
    try:
        yield
    except Exception:
        if written := watch.written():
            raise Wrote(written) from None
        raise
    if written := watch.written():
        raise Wrote(written)


def described(error: BaseException) -> str:
    """Describe an exception of a plugin in one line of limited length; our own errors only by their message."""
    try:
        text = str(error).strip().split("\n")[0]
    except Exception:  # str() of a plugin's exception can raise anything
        text = ""
    return truncated(text if isinstance(error, CollapseError) else f"{type(error).__name__}: {text}".rstrip(": "))


def truncated(text: str, length: int = 400) -> str:
    """Truncate a text to some length, with an ellipsis if it was longer.

    >>> truncated("abcdef", 4)
    'abc…'
    """
    return text if len(text) <= length else text[: length - 1] + "…"
