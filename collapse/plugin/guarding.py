"""Isolate a plugin's code: it cannot print to stdout, exit, or change settings or the tensors that it reads.

The version counter of a tensor, which all its views share, reveals in-place writes. Writes through ``.numpy()`` or
``.data`` do not increase the counter; :func:`contents` finds those.

This module does not import torch, because plugins that only add commands do not need it.
"""

import os
import sys
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import wraps
from threading import Lock
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

from collapse.errors import CollapseError, PluginError

if TYPE_CHECKING:
    from torch import Tensor

    from collapse.precision import Precision

P = ParamSpec("P")
R = TypeVar("R")

_SMALL = 1 << 16  # numbers; smaller tensors are compared directly, larger ones by their sums
_AUTOCAST = ("cpu", "cuda")
_left_open: list[Any] = []
_lock = Lock()
_guests: list["Guest"] = []  # of all threads, which share the streams: the program has its own back after the last


class Wrote(PluginError):
    """A plugin wrote to tensors that it may only read."""

    def __init__(self, names: list[str]) -> None:
        super().__init__(f"it wrote to {', '.join(names)}, which others read too: write to a copy (x.clone())")


class _Open:
    """A stream that a plugin cannot close."""

    def __init__(self, stream: Any) -> None:
        self._stream = stream

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def __enter__(self) -> "_Open":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self._stream.flush()


class Guest:
    """Run a plugin's code with stdout redirected to stderr, then restore the global settings of torch and NumPy.

    The settings are restored to their values at the creation of the guest. A guest can be reused for many calls, which
    saves reading the settings each time.

    Raises:
        PluginError: It called ``sys.exit``, or raised an exception that is not an ``Exception``.
    """

    _own: tuple[Any, Any]  # the program's streams

    def __init__(self) -> None:
        torch, numpy = sys.modules.get("torch"), sys.modules.get("numpy")
        self._before = _settings(torch) if torch else None
        self._precision = _precision() if torch else None
        self._errors = numpy.geterr() if numpy else {}
        self._folder = _folder()
        self._filters = list(warnings.filters)

    def __enter__(self) -> None:
        with _lock:
            self._own = _guests[0]._own if _guests else (sys.stdout, sys.stderr)
            _guests.append(self)
            sys.stdout = sys.stderr = _lent(self._own)

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        with _lock:
            _guests.remove(self)
            sys.stdout, sys.stderr = (_lent(self._own), _lent(self._own)) if _guests else self._own
        if warnings.filters != self._filters:
            warnings.filters[:] = self._filters  # type: ignore[index]  # typeshed has a Sequence; it is a list
        if self._folder and _folder() != self._folder:  # else a relative --output would be written elsewhere
            os.chdir(self._folder)
        _restore(self._before)
        if self._precision is not None:
            self._precision.restore()
        if self._errors:
            sys.modules["numpy"].seterr(**self._errors)
        if error is None or isinstance(error, Exception | KeyboardInterrupt):
            return
        if isinstance(error, SystemExit):
            raise PluginError(f"it called sys.exit({'' if error.code is None else repr(error.code)[:60]})") from error
        raise PluginError(f"it raised {type(error).__name__}, which is not an Exception") from error


def _lent(own: tuple[Any, Any]) -> Any:
    """What a guest's output goes to: stderr, if the program has one."""
    return _Open(own[1]) if own[1] is not None else None


def _precision() -> "Precision":
    from collapse.precision import Precision

    return Precision.now()


def _folder() -> str | None:
    """Return the working directory, or None if it was deleted."""
    try:
        return os.getcwd()
    except OSError:
        return None


def _settings(torch: Any) -> tuple[Any, ...]:
    return (
        torch.get_default_dtype(),
        torch.get_num_threads(),
        torch.is_grad_enabled(),
        torch.are_deterministic_algorithms_enabled(),
        torch.empty(0).device,  # the default one; torch.get_default_device takes four times as long
        tuple((torch.is_autocast_enabled(each), torch.get_autocast_dtype(each)) for each in _AUTOCAST),
        torch.is_autocast_cache_enabled(),
        torch.is_inference_mode_enabled(),
        _modes(torch),
    )


def _modes(torch: Any) -> tuple[int, int]:
    """How many modes are entered, which change what torch's functions do: ``with torch.device(…)`` is one."""
    return torch._C._len_torch_function_stack(), torch._C._len_torch_dispatch_stack()


def _restore(before: tuple[Any, ...] | None) -> None:
    torch: Any = sys.modules.get("torch")
    if torch is None:
        return
    if before is None:  # the plugin was the first to import torch
        torch.set_default_dtype(torch.float32)
        return
    after = _settings(torch)
    if after == before:
        return
    dtype, threads, grad, deterministic, device, autocast, cached, inference, (functions, dispatches) = before
    torch.set_default_device(None if device.type == "cpu" else device)
    for _ in range(_modes(torch)[0] - functions):
        torch._C._pop_torch_function_stack()
    for _ in range(_modes(torch)[1] - dispatches):
        torch._C._pop_torch_dispatch_stack(None)
    torch.set_default_dtype(dtype)
    torch.set_num_threads(threads)
    torch.use_deterministic_algorithms(deterministic)
    for each, (enabled, lower) in zip(_AUTOCAST, autocast, strict=True):
        torch.set_autocast_enabled(each, enabled)
        torch.set_autocast_dtype(each, lower)
    torch.set_autocast_cache_enabled(cached)
    if torch.is_inference_mode_enabled() != inference:
        _left_open.append(torch.inference_mode(inference))
        _left_open[-1].__enter__()
    torch.set_grad_enabled(grad)


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
        Wrote: It wrote to one of them, even if it also raised another exception.
        PluginError: As for :class:`Guest`.
    """
    try:
        with Guest():
            yield
    finally:
        written = watch.written()
        if written and not isinstance(sys.exception(), KeyboardInterrupt):
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


def contents(tensors: Mapping[str, "Tensor"]) -> dict[str, list["Tensor"]]:
    """Return the content of tensors for :func:`differing`: small ones as they are, large ones summed along two axes."""
    return {name: _content(tensor) for name, tensor in tensors.items()}


def differing(before: Mapping[str, list["Tensor"]], after: Mapping[str, list["Tensor"]]) -> list[str]:
    """Return the names under which two :func:`contents` differ."""
    return [
        name
        for name, old in before.items()
        if not all(a.shape == b.shape and bool((a == b).all()) for a, b in zip(old, after[name], strict=True))
    ]


def _content(tensor: "Tensor") -> list["Tensor"]:
    import torch

    with torch.no_grad():
        plain = tensor.detach().contiguous()
        plain = plain if plain.dim() else plain.reshape(1)
        bits = plain.view({1: torch.uint8, 2: torch.int16, 4: torch.int32}.get(plain.element_size(), torch.int64))
        if bits.numel() <= _SMALL or bits.dim() < 2:
            return [bits.clone()]
        # Integer sums wrap around, so they do not depend on the order. Changing any one number changes both sums.
        flat = bits.flatten(start_dim=1)
        return [flat.sum(dim=0), flat.sum(dim=1)]
