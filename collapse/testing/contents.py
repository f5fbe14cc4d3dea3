"""What a plugin wrote without a version counter, as through NumPy: the kit compares contents before and after."""

from collections.abc import Mapping

import torch
from torch import Tensor


def contents(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return copies of tensors for :func:`differing`."""
    return {name: tensor.detach().clone() for name, tensor in tensors.items()}


def differing(before: Mapping[str, Tensor], after: Mapping[str, Tensor]) -> list[str]:
    """Return the names under which tensors differ; NaN equals NaN."""
    return [
        name for name, old in before.items() if not torch.equal(old.nan_to_num(0.123), after[name].nan_to_num(0.123))
    ]
