"""torch's settings of float32 multiplication, set for a collection and restored afterwards.

torch has newer settings, one per library and operation, and older ones. It refuses to read the older ones if they
contradict the newer ones. Both are restored, with one exception: cuDNN's initial TF32 is torch's own default, which a
later ``torch.backends.fp32_precision`` would change; afterwards it is a setting of its own.
"""

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cache
from threading import Lock
from typing import Any

import torch

_DEVICES = ("cpu", "cuda", "mps")
_lock = Lock()
_within: list[tuple["Precision", torch.dtype]] = []  # what was before, and once more for each that is within


@dataclass(frozen=True)
class Precision:
    """The settings at one time.

    Attributes:
        newer: The settings of :func:`newer_settings`.
        matmul: The older setting of products, or None where it cannot be read.
        cudnn: The older setting of convolutions on a GPU, or None where it cannot be read.
    """

    newer: tuple[str, ...]
    matmul: str | None = None
    cudnn: bool | None = None

    @classmethod
    def now(cls) -> "Precision":
        """Read the settings."""
        matmul = cudnn = None
        with suppress(RuntimeError):
            matmul = torch.get_float32_matmul_precision()
        with suppress(RuntimeError):
            cudnn = torch.backends.cudnn.allow_tf32
        return cls(newer_settings(), matmul, cudnn)

    def restore(self) -> None:
        """Restore the settings, if they changed."""
        if newer_settings() == self.newer:
            return
        if self.matmul is not None:
            torch.set_float32_matmul_precision(self.matmul)
        if self.cudnn is not None:
            torch.backends.cudnn.allow_tf32 = self.cudnn
        for backend, before in zip(_backends(), self.newer, strict=True):
            if backend.fp32_precision != before:
                backend.fp32_precision = "none"  # follow its library, or the general setting
                if backend.fp32_precision != before:
                    backend.fp32_precision = before


def newer_settings() -> tuple[str, ...]:
    """The precision of each library and operation."""
    return tuple(backend.fp32_precision for backend in _backends())


@contextmanager
def exact_arithmetic() -> Iterator[None]:
    """Multiply float32 numbers in full precision, whatever the caller set: no TF32, no bfloat16, no autocast.

    The default dtype is float32 within. Threads share all of this but autocast: the first to come sets it, the last to
    go restores it.
    """
    autocast = [(each, torch.is_autocast_enabled(each)) for each in _DEVICES]
    with _lock:
        if not _within:
            _within.append((Precision.now(), torch.get_default_dtype()))
        _within.append(_within[0])
    try:
        set_exact()
        yield
    finally:
        for device, enabled in autocast:
            torch.set_autocast_enabled(device, enabled)
        with _lock:
            _within.pop()
            if len(_within) == 1:
                before, dtype = _within.pop()
                before.restore()
                torch.set_default_dtype(dtype)


def is_exact() -> bool:
    """Whether the settings are still those of :func:`exact_arithmetic`, which other threads and models can change."""
    autocast = any(torch.is_autocast_enabled(device) for device in _DEVICES)
    return not _within or (set(newer_settings()) == {"ieee"} and not autocast)


def set_exact() -> None:
    """Set what :func:`exact_arithmetic` sets, once more where code of a model has run; nothing outside of it."""
    with _lock:
        if not _within:
            return
        before, _ = _within[0]
        torch.set_default_dtype(torch.float32)
        if before.matmul is not None:
            torch.set_float32_matmul_precision("highest")
        if before.cudnn is not None:
            torch.backends.cudnn.allow_tf32 = False
        for backend in _backends():
            backend.fp32_precision = "ieee"
        for device in _DEVICES:
            torch.set_autocast_enabled(device, False)


@cache
def _backends() -> tuple[Any, ...]:
    backends: Any = torch.backends
    libraries = (backends, backends.cudnn, backends.mkldnn)
    operations = (backends.cuda.matmul, backends.cudnn.conv, backends.cudnn.rnn)
    return *libraries, *operations, backends.mkldnn.matmul, backends.mkldnn.conv, backends.mkldnn.rnn
