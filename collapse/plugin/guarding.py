"""Run a plugin's functions: an exception or a write to a shared tensor costs only what the function computes.

This module does not import torch, because plugins that only add commands do not need it.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import fields, is_dataclass
from functools import wraps
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

from collapse.errors import CollapseError, PluginError

if TYPE_CHECKING:
    from torch import Tensor

P = ParamSpec("P")
R = TypeVar("R")


class Failed(PluginError):
    """A plugin's function failed.

    Attributes:
        text: What happened.
        module: The function's module.
        wrote: Whether it wrote to a tensor that others read.
    """

    def __init__(self, function: Callable[..., Any], text: str, *, wrote: bool = False) -> None:
        super().__init__(f"{called(function)} failed: {text}")
        self.text, self.module, self.wrote = text, str(getattr(function, "__module__", "?")), wrote


class Shared:
    """Tensors that several functions read; each tensor's version counter, which its views share, reveals a write."""

    def __init__(self) -> None:
        self._held: dict[str, tuple[Tensor, int]] = {}

    def add(self, name: str, value: Any) -> None:
        """Watch the tensors of a value from now on."""
        for key, tensor in tensors_in(name, value):
            if key not in self._held and not tensor.is_inference():  # torch refuses writes to inference tensors
                self._held[key] = tensor, tensor._version

    def written(self) -> list[str]:
        """Return the names of the tensors that were written to."""
        return [name for name, (tensor, version) in self._held.items() if tensor._version != version]


def tensors_in(name: str, value: Any) -> Iterator[tuple[str, "Tensor"]]:
    """Yield a tensor, or those of a dictionary or a record, with their names."""
    if hasattr(value, "_version"):
        yield name, value
    elif isinstance(value, Mapping):
        for key, each in value.items():
            yield from tensors_in(f"{name}[{key!r}]", each)
    elif is_dataclass(value) and not isinstance(value, type):
        for field in fields(value):
            yield from tensors_in(f"{name}.{field.name}", getattr(value, field.name))


def call(
    function: Callable[..., Any],
    named: Mapping[str, Any] = {},  # only read
    shared: Shared | None = None,
    arguments: Iterable[Any] = (),
) -> Any:
    """Call a plugin's function and return its result.

    Args:
        function: The function.
        named: Its arguments by name.
        shared: Tensors that it may only read.
        arguments: Its positional arguments.

    Raises:
        Failed: It raised an exception, or wrote to one of the shared tensors.
    """
    shared = shared or Shared()
    try:
        result = function(*arguments, **named)
    except Failed:
        raise
    except Exception as error:  # a plugin can raise anything
        raise Failed(function, described(error), wrote=bool(shared.written())) from error
    if written := shared.written():
        text = f"it wrote to {', '.join(written)}, which others read too: write to a copy (x.clone())"
        raise Failed(function, text, wrote=True)
    return result


def outside_inference_mode(function: Callable[P, R]) -> Callable[P, R]:
    """Run a function outside its caller's ``torch.inference_mode``, in which tensors have no version counters."""

    @wraps(function)
    def run(*arguments: P.args, **options: P.kwargs) -> R:
        import torch

        gradients = torch.is_grad_enabled()  # not in inference mode
        with torch.inference_mode(False), torch.set_grad_enabled(gradients):
            return function(*arguments, **options)

    return run


def called(function: Any) -> str:
    """Return a function's module and name, for messages."""
    return f"{getattr(function, '__module__', '?')}.{getattr(function, '__name__', type(function).__name__)}"


def described(error: BaseException) -> str:
    """Describe an exception of a plugin in one line of limited length; our own errors only by their message."""
    text = str(error).strip().split("\n")[0]
    return truncated(text if isinstance(error, CollapseError) else f"{type(error).__name__}: {text}".rstrip(": "))


def truncated(text: str, length: int = 400) -> str:
    """Truncate a text to some length, with an ellipsis if it was longer.

    >>> truncated("abcdef", 4)
    'abc…'
    """
    return text if len(text) <= length else text[: length - 1] + "…"
