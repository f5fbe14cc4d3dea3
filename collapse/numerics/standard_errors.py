"""Compute standard errors: from the influence of each validation block, or by leaving out one part of a text at a time.

A block's *influence* is its term in the first-order expansion of a measurement in the blocks' weights (the delta
method, also called the infinitesimal jackknife). For a ratio r = Σx/Σn of sums over blocks it is (x − r·n)/Σn. Tokens
of one text depend on each other. A block consists of adjacent whole texts, so blocks count as independent.

Shapes: S validation blocks, K parts of a text.
"""

import math
from collections.abc import Sequence

import torch
from jaxtyping import Float
from torch import Tensor

from collapse.numerics.values import Values, plain
from collapse.plugin.guarding import Failed
from collapse.plugin.metrics import Metric


def influence_of(values: Values, metric: Metric) -> Float[Tensor, " S"]:
    """Return the influence of each validation block, or group of blocks, on a metric's number.

    The influence of a block with n of N samples is the derivative of the number with respect to the block's weight,
    times N/(N − n) · (1 − 1/S). For a ratio it is (S − 1)/S · (the number − the number without the block), as in the
    jackknife. If ``metric.standard_error`` is a function, it computes the influences instead.

    Raises:
        Failed: A function failed, or the derivative cannot be computed.
    """
    if callable(metric.standard_error):
        found = values.value(metric.standard_error)
        if not isinstance(found, Tensor) or found.dim() != 1:
            raise Failed(metric.standard_error, f"it must return a tensor of shape (S,), got {type(found).__name__}")
        return found.detach().to("cpu", torch.float64, copy=True)
    assert values.s.validation is not None  # because the metric reads chunks
    blocks_S4 = values.s.validation.block_totals[:, :4]
    totals = blocks_S4.sum(dim=0).requires_grad_()
    # evaluate the metric again with these totals as its parameter chunks, to differentiate it
    with torch.enable_grad():
        number = plain(Values(values.s, totals).value(metric.function))
    if not isinstance(number, Tensor) or not number.requires_grad:
        raise Failed(
            metric.function,
            "standard_error=True needs the derivative with respect to the function's parameter `chunks`: compute the "
            "value from it with torch operations only, not as a Python number, or remove standard_error=True",
        )
    (slope,) = torch.autograd.grad(number, totals)
    n_S, blocks = blocks_S4[:, 0], len(blocks_S4)
    change_S = blocks_S4 @ slope
    if blocks < 2:
        return change_S
    return change_S * n_S.sum() / (n_S.sum() - n_S) * (1 - 1 / blocks)


def standard_error(influence_S: Float[Tensor, " S"]) -> float:
    """Return √(S/(S − 1) · Σ u²) of the influences u of two or more blocks.

    For the difference of two measurements on the same blocks, subtract their influences: variation that both share
    cancels. Source: Cochran 1977, Eq. 6.13, for a ratio; Efron & Tibshirani 1993, ch. 11.

    >>> import torch
    >>> round(standard_error(torch.tensor([1.0, -1.0, 0.5, -0.5]).double() / 4), 9)
    0.456435465
    """
    blocks = len(influence_S)
    return math.sqrt(blocks / (blocks - 1) * float(influence_S.square().sum()))


def jackknife_error(values: Sequence[float]) -> float:
    """Return the delete-one jackknife error √((K − 1)/K · Σ (x − x̄)²) of K values x.

    Each value is computed from all but one of K parts. For two parts, the error is |x₁ − x₂|/2. The error has K − 1
    degrees of freedom.

    >>> jackknife_error([1.0, 1.5])
    0.25
    """
    parts, mean = len(values), sum(values) / len(values)
    return math.sqrt((parts - 1) / parts * sum((each - mean) ** 2 for each in values))
