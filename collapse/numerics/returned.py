"""Convert what a plugin returned to numbers, or raise a PluginError that says what it should return."""

from typing import Any

import torch
from torch import Tensor

from collapse.errors import PluginError


def as_number(value: Any) -> int | float:
    """Convert a value to a number; a Python integer stays an int."""
    if isinstance(value, Tensor):
        value = value.detach().item()
    elif isinstance(value, int) and not isinstance(value, bool) and abs(value) < 1 << 63:
        return int(value)
    if isinstance(value, str | bytes | complex):
        raise PluginError(f"it must return a number, not {value!r:.40}")
    return float(value)


def as_class_values(values: object, like: Tensor) -> Tensor:
    """Convert values per class to float64, in their own memory.

    Args:
        values: What the plugin returned.
        like: Any tensor of shape (C, …) on the device of the values.
    """
    shape = tuple(values.shape) if isinstance(values, Tensor) else type(values).__name__
    if not isinstance(values, Tensor) or values.shape != like.shape[:1]:
        raise PluginError(f"a class metric must return shape ({len(like)},), not {shape}")
    _check_kind(values)
    return values.detach().to(like.device, torch.float64, copy=True)


def as_influence(values: object) -> Tensor:
    """Convert the influence of each validation block, or group of blocks, to float64, in its own memory."""
    shape = tuple(values.shape) if isinstance(values, Tensor) else type(values).__name__
    if not isinstance(values, Tensor) or values.dim() != 1:
        raise PluginError(f"influence must give shape (S,), a number a block or group of blocks, not {shape}")
    _check_kind(values)
    if not bool(values.isfinite().all()):
        raise PluginError("influence must give finite numbers")
    return values.detach().to("cpu", torch.float64, copy=True)


def as_tile(values: object, like: Tensor) -> Tensor:
    """Convert values per pair to a contiguous tensor of a tile's shape and dtype."""
    shape = tuple(values.shape) if isinstance(values, Tensor) else type(values).__name__
    if not isinstance(values, Tensor) or values.shape != like.shape:
        raise PluginError(f"a pair metric must return a tile of shape {tuple(like.shape)}, not {shape}")
    _check_kind(values)
    return values.detach().to(like).contiguous()


def as_mask(values: object, like: Tensor) -> Tensor:
    """Check the result of ``over``: bool, of the shape of ``like``."""
    if not isinstance(values, Tensor) or values.dtype != torch.bool or values.shape != like.shape:
        found = f"{values.dtype} {tuple(values.shape)}" if isinstance(values, Tensor) else type(values).__name__
        raise PluginError(f"over must give a mask, torch.bool of shape {tuple(like.shape)}, not {found}")
    return values.detach().to(like.device)


def _check_kind(values: Tensor) -> None:
    if values.is_complex() or values.layout != torch.strided:
        raise PluginError(f"it must return real, dense numbers, not {values.dtype} in {values.layout}")
