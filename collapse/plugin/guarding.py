"""Call a plugin's function, and raise a PluginError if the function fails or writes to a shared tensor.

If a metric fails, numerics/reducing.py omits only its results. If a statistic fails, plugin_statistics.py stops the
run. numerics/values.py checks the type and shape of what a metric's functions return.
Exceptions in hooks, limits and imports are handled in registry.py, measures.py and plugin_manager.py.

This module does not import torch, because plugins that only add commands do not need it.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import fields, is_dataclass
from functools import wraps
from pathlib import Path
from traceback import extract_tb
from typing import Any, ParamSpec, TypeVar

from collapse.errors import CollapseError, PluginError, first_line

P = ParamSpec("P")
R = TypeVar("R")

_WROTE = "it wrote to a tensor that other functions also read: write to a copy (x.clone())"


class Failed(PluginError):
    """A plugin's function failed.

    Attributes:
        module: The function's module.
    """

    def __init__(self, function: Callable[..., Any], text: str) -> None:
        super().__init__(f"{called(function)} failed: {text}")
        self.module = str(getattr(function, "__module__", "?"))

    def __reduce__(self) -> tuple[Any, ...]:  # ranks send errors; a function of a plugin file cannot be pickled
        return type(self).__new__, (type(self), *self.args), vars(self)


class Wrote(Failed):
    """A plugin's function wrote to a tensor that other functions also read."""


def call(function: Callable[..., Any], /, *arguments: Any, **named: Any) -> Any:
    """Call a plugin's function and return its result.

    Raises:
        Failed: The function raised an exception.
        Wrote: The function wrote to a tensor of its arguments.
    """
    before = [(tensor, tensor._version) for tensor in _tensors((arguments, named))]
    try:
        made = function(*arguments, **named)
    except Exception as error:  # a plugin can raise anything
        if _written(before):
            raise Wrote(function, _WROTE) from error
        raise Failed(function, error_line(error) + _place(function, error)) from error
    if _written(before):
        raise Wrote(function, _WROTE)
    # torch does not count writes to an inference tensor
    return made.clone() if hasattr(made, "is_inference") and made.is_inference() else made


def _written(before: Iterable[tuple[Any, int]]) -> bool:
    """Return whether any of the tensors was written to since its version was read.

    A tensor's version is torch's count of writes to the tensor. A view and its base share this count.
    """
    return any(tensor._version != version for tensor, version in before)


def _tensors(value: Any, depth: int = 5) -> Iterator[Any]:
    """Yield the tensors in a value, except inference tensors, because torch does not count the writes to them."""
    inside: Iterable[Any] = ()
    if hasattr(value, "is_inference"):
        if not value.is_inference():
            yield value
    elif isinstance(value, Mapping):
        inside = value.values()
    elif isinstance(value, list | tuple):
        inside = value
    elif is_dataclass(value) and not isinstance(value, type):
        # __dict__ also holds cached properties; an object with slots has no __dict__
        named = {each.name: getattr(value, each.name) for each in fields(value)} | getattr(value, "__dict__", {})
        inside = named.values()
    for each in inside if depth else ():
        yield from _tensors(each, depth - 1)


def _place(function: Callable[..., Any], error: BaseException) -> str:
    """Return the file and line where a plugin's function raised an exception, such as " (mine.py:12)".

    Return "" if the traceback has no line of the function's file.
    """
    file = getattr(getattr(function, "__code__", None), "co_filename", None)
    lines = [frame.lineno for frame in extract_tb(error.__traceback__) if frame.filename == file]
    return f" ({Path(str(file)).name}:{lines[-1]})" if lines else ""


def outside_inference_mode(function: Callable[P, R]) -> Callable[P, R]:
    """Make a function run outside ``torch.inference_mode``, in which torch does not count the writes to new tensors."""

    @wraps(function)
    def run(*arguments: P.args, **options: P.kwargs) -> R:
        import torch

        gradients = torch.is_grad_enabled()  # False in inference mode
        with torch.inference_mode(False), torch.set_grad_enabled(gradients):
            return function(*arguments, **options)

    return run


def called(function: Any) -> str:
    """Return a function's module and name, for messages."""
    name = getattr(function, "__qualname__", type(function).__qualname__).rpartition("<locals>.")[2]
    return f"{getattr(function, '__module__', '?')}.{name}"


def error_line(error: BaseException) -> str:
    """Return an exception as one short line with its class and message; for a CollapseError, only with its message."""
    name, text = type(error).__name__, first_line(error)
    return text if isinstance(error, CollapseError) or text == name else f"{name}: {text}"
