"""Call a plugin's code so that it changes nothing: no output on stdout, no exit, no settings, no tensor that it reads.

In-place writes are seen by the tensors' version counters, which all views of a tensor share. Writes through
``.numpy()`` or ``.data`` do not raise a counter; :func:`contents` finds those.

Nothing here imports torch, which plugins that only add commands do not need.
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

_SMALL = 1 << 16  # numbers; a smaller tensor is compared itself, a larger one by its sums
_AUTOCAST = ("cpu", "cuda")
_left_open: list[Any] = []
_lock = Lock()
_guests: list["Guest"] = []  # of all threads, which share the streams: the program has its own back after the last


class Wrote(PluginError):
    """A plugin wrote to what it may only read."""

    def __init__(self, names: list[str]) -> None:
        super().__init__(f"it wrote to {', '.join(names)}, which others read too: write to a copy (x.clone())")


class _Open:
    """A stream that stays open when what it is lent to closes it."""

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
    """Run a plugin's code: what it prints goes to stderr, and global settings of torch and NumPy are put back.

    They are put back to what they were when the guest was made; one guest may serve many calls, which saves reading
    them each time.

    Raises:
        PluginError: It called ``sys.exit``, or raised another exception that is no ``Exception``.
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
        if self._folder and _folder() != self._folder:  # or a relative --output would go elsewhere
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
        raise PluginError(f"it raised {type(error).__name__}, which is no Exception") from error


def _lent(own: tuple[Any, Any]) -> Any:
    """What a guest's output goes to: stderr, if the program has one."""
    return _Open(own[1]) if own[1] is not None else None


def _precision() -> "Precision":
    from collapse.precision import Precision

    return Precision.now()


def _folder() -> str | None:
    """The working directory, or None where it was deleted."""
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
    if before is None:  # the plugin's import was the first of torch
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
    """Run a function outside of its caller's ``torch.inference_mode``: tensors made in it have no version counters."""

    @wraps(function)
    def run(*arguments: P.args, **options: P.kwargs) -> R:
        import torch

        if not torch.is_inference_mode_enabled():
            return function(*arguments, **options)
        with torch.inference_mode(False), torch.no_grad():
            return function(*arguments, **options)

    return run


class Watch:
    """The version counters of tensors that plugins may read and not write.

    Args:
        tensors: By the names that an error shows.
    """

    def __init__(self, tensors: Mapping[str, "Tensor"]) -> None:
        # torch itself refuses writes to tensors made in inference mode, which have no counter
        self.tensors = {name: tensor for name, tensor in tensors.items() if not tensor.is_inference()}
        self._versions = self._now()

    def written(self) -> list[str]:
        """Names of the tensors that were written to since the watch began."""
        now = self._now()
        if now == self._versions:
            return []
        return [name for name, old, new in zip(self.tensors, self._versions, now, strict=True) if old != new]

    def _now(self) -> list[int]:
        return [tensor._version for tensor in self.tensors.values()]


@contextmanager
def reading(watch: Watch) -> Iterator[None]:
    """Run a plugin's code that may read the watched tensors.

    Raises:
        Wrote: It wrote to one, whatever else it raised.
        PluginError: As of :class:`Guest`.
    """
    try:
        with Guest():
            yield
    finally:
        written = watch.written()
        if written and not isinstance(sys.exception(), KeyboardInterrupt):
            raise Wrote(written)


def described(error: BaseException) -> str:
    """An error of a plugin in one line of bounded length; our own errors speak for themselves."""
    try:
        text = str(error).strip().split("\n")[0]
    except Exception:  # a plugin's exception may be anything
        text = ""
    return shortened(text if isinstance(error, CollapseError) else f"{type(error).__name__}: {text}".rstrip(": "))


def shortened(text: str, length: int = 400) -> str:
    """A text cut to some length, with an ellipsis where it was longer.

    >>> shortened("abcdef", 4)
    'abc…'
    """
    return text if len(text) <= length else text[: length - 1] + "…"


def contents(tensors: Mapping[str, "Tensor"]) -> dict[str, list["Tensor"]]:
    """What tensors hold, for :func:`differing`: small ones whole, large ones summed along both dimensions."""
    return {name: _content(tensor) for name, tensor in tensors.items()}


def differing(before: Mapping[str, list["Tensor"]], after: Mapping[str, list["Tensor"]]) -> list[str]:
    """Names under which two :func:`contents` differ."""
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
        # integers wrap around and add in any order to the same sum: any one number that changed changes both sums
        flat = bits.flatten(start_dim=1)
        return [flat.sum(dim=0), flat.sum(dim=1)]
