"""Call a plugin's function, and convert its exception, or its write to a shared tensor, to a PluginError.

If a metric fails, numerics/reducing.py omits only its results. If a statistic fails, plugin_statistics.py stops the
run. numerics/values.py checks the type and shape of what a metric's functions return.
Hooks (registry.py), limits (measures.py) and imports (plugin_manager.py) have their own handlers.

This module does not import torch, because plugins that only add commands do not need it.
"""

from collections.abc import Callable, Mapping
from dataclasses import fields, is_dataclass
from functools import wraps
from pathlib import Path
from traceback import extract_tb
from typing import Any, ParamSpec, TypeVar

from collapse.errors import CollapseError, PluginError, first_line

P = ParamSpec("P")
R = TypeVar("R")

_WROTE = "it wrote to a tensor that other functions also read: write to a copy (x.clone())"
_REFUSED = "Inplace update to inference tensor"
"""Start of torch's message after a write to a tensor that a plugin made in inference mode."""


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
        Wrote: The function wrote to a tensor of its arguments, or replaced one.
    """
    before = _tensors((arguments, named))
    try:
        made = function(*arguments, **named)
    except Exception as error:  # a plugin can raise anything
        if _changed(before, (arguments, named)) or _REFUSED in str(error):
            raise Wrote(function, _WROTE) from error
        raise Failed(function, error_line(error) + _place(function, error)) from error
    if _changed(before, (arguments, named)):
        raise Wrote(function, _WROTE)
    return made


def _tensors(value: Any, path: str = "", depth: int = 5) -> dict[str, tuple[Any, int]]:
    """Return the tensors in a value, by their place in it, each with torch's count of the writes to it.

    A view and its base share this count, which also includes writes in inference mode.
    """
    if hasattr(value, "is_inference"):
        return {path: (value, -1 if value.is_inference() else value._version)}
    inside: dict[Any, Any] = {}
    if isinstance(value, Mapping):
        inside = dict(value)
    elif isinstance(value, list | tuple):
        inside = dict(enumerate(value))
    elif is_dataclass(value) and not isinstance(value, type):
        # with cached properties, except for slots
        inside = {each.name: getattr(value, each.name) for each in fields(value)} | getattr(value, "__dict__", {})
    found = dict[str, tuple[Any, int]]()
    for name, each in inside.items() if depth else ():
        found |= _tensors(each, f"{path}/{name}", depth - 1)
    return found


def _changed(before: Mapping[str, tuple[Any, int]], value: Any) -> bool:
    """Whether a tensor in a value was written to or replaced; a new one, such as of a cached property, is no change."""
    after = _tensors(value)
    return any(
        path not in after or after[path][0] is not tensor or after[path][1] != count
        for path, (tensor, count) in before.items()
    )


def _place(function: Callable[..., Any], error: BaseException) -> str:
    """Return the file and line of a plugin's function that raised an exception, such as " (mine.py:12)", or ""."""
    file = getattr(getattr(function, "__code__", None), "co_filename", None)
    lines = [frame.lineno for frame in extract_tb(error.__traceback__) if frame.filename == file]
    return f" ({Path(str(file)).name}:{lines[-1]})" if lines else ""


def outside_inference_mode(function: Callable[P, R]) -> Callable[P, R]:
    """Make a function run outside ``torch.inference_mode``, whose tensors do not count the writes to them."""

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
    """Return a plugin's exception as one short line: its class and message; of a CollapseError, only the message."""
    name, text = type(error).__name__, first_line(error)
    return text if isinstance(error, CollapseError) or text == name else f"{name}: {text}"
