"""Standard errors of one number, from the influence of each validation block, or without each part of a text.

A block's *influence* is its term in the first-order expansion of a measurement in the blocks' weights (the delta
method, also called the infinitesimal jackknife). For a ratio r = Σx/Σn of sums over blocks it is (x − r·n)/Σn. Tokens
of one text depend on each other; blocks, which are runs of whole texts, count as independent.

Shapes: S validation blocks, K parts of a text.
"""

import math
from collections.abc import Sequence

from jaxtyping import Float
from torch import Tensor


def standard_error(influence_S: Float[Tensor, " S"]) -> float:
    """Return √(S/(S − 1) · Σ u²), of two blocks or more.

    The difference of two measurements of the same blocks has the difference of their influences, so that what the
    blocks have in common cancels. Source: Cochran 1977, Eq. 6.13, for a ratio; Efron & Tibshirani 1993, ch. 11.

    >>> import torch
    >>> round(standard_error(torch.tensor([1.0, -1.0, 0.5, -0.5]).double() / 4), 9)
    0.456435465
    """
    blocks = len(influence_S)
    return math.sqrt(blocks / (blocks - 1) * float(influence_S.square().sum()))


def jackknife_error(values: Sequence[float]) -> float:
    """Return the delete-one jackknife error √((K − 1)/K · Σ (x − x̄)²) of values without each of K parts in turn.

    Of halves it is half of their difference, |x₁ − x₂|/2. It has K − 1 degrees of freedom.

    >>> jackknife_error([1.0, 1.5])
    0.25
    """
    parts, mean = len(values), sum(values) / len(values)
    return math.sqrt((parts - 1) / parts * sum((each - mean) ** 2 for each in values))
