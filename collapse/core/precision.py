"""torch's settings during computations: full float32 products, no autocast, and determinism on request."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import torch

from collapse.core.settings import environment

_DEVICES = ("cpu", "cuda", "mps")


@contextmanager
def exact_arithmetic(*, deterministic: bool = False) -> Iterator[None]:
    """Multiply float32 numbers in full precision: no TF32, no bfloat16, no autocast; the default dtype is float32.

    The caller's settings are restored at the end. Until then, all changes except that of autocast also affect other
    threads.

    Args:
        deterministic: Also make torch use only deterministic algorithms.
    """
    operations = _operations()
    precisions = [each.fp32_precision for each in operations]
    dtype = torch.get_default_dtype()
    with ExitStack() as stack:
        for device in _DEVICES:
            stack.callback(torch.set_autocast_enabled, device, torch.is_autocast_enabled(device))
            torch.set_autocast_enabled(device, False)
        stack.callback(torch.set_default_dtype, dtype)
        torch.set_default_dtype(torch.float32)
        for operation, before in zip(operations, precisions, strict=True):
            stack.callback(setattr, operation, "fp32_precision", before)
            operation.fp32_precision = "ieee"
        if deterministic:
            stack.enter_context(_deterministic_algorithms())
        yield


@contextmanager
def _deterministic_algorithms() -> Iterator[None]:
    before = torch.are_deterministic_algorithms_enabled()
    warn_only = torch.is_deterministic_algorithms_warn_only_enabled()
    with environment(CUBLAS_WORKSPACE_CONFIG=":4096:8"):  # torch requires it for deterministic cuBLAS
        torch.use_deterministic_algorithms(True)
        try:
            yield
        finally:
            torch.use_deterministic_algorithms(before, warn_only=warn_only)


def _operations() -> tuple[Any, ...]:
    """Return the operations that have a precision setting of their own; it overrides the setting of their library."""
    libraries: tuple[Any, ...] = (torch.backends.cuda, torch.backends.cudnn, torch.backends.mkldnn)
    names = ("matmul", "conv", "rnn")
    return tuple(getattr(each, name) for each in libraries for name in names if hasattr(each, name))
