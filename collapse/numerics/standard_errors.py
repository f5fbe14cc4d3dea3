"""Standard errors of one number, from the influence of each validation chunk or from the values of disjoint parts.

A chunk's *influence* is its term in the first-order expansion of a measurement in the chunks' weights (the delta
method, also called the infinitesimal jackknife). For a ratio r = Σx/Σn of sums over chunks it is (x − r·n)/Σn. Tokens
of one chunk depend on each other; chunks count as independent.

Shapes: S validation chunks, K parts of a text.
"""

import math
from collections.abc import Sequence

from jaxtyping import Float
from torch import Tensor


def standard_error(influence_S: Float[Tensor, " S"]) -> float:
    """Return √(S/(S − 1) · Σ u²), of two chunks or more.

    The difference of two measurements of the same chunks has the difference of their influences, so that what the
    chunks have in common cancels. Source: Cochran 1977, Eq. 6.13, for a ratio; Efron & Tibshirani 1993, ch. 11.

    >>> import torch
    >>> round(standard_error(torch.tensor([1.0, -1.0, 0.5, -0.5]).double() / 4), 9)
    0.456435465
    """
    chunks = len(influence_S)
    return math.sqrt(chunks / (chunks - 1) * float(influence_S.square().sum()))


def error_of_parts(values: Sequence[float]) -> float:
    """Return the standard error of the mean of K values of disjoint parts: their standard deviation over √K.

    For halves this is half of their difference, |x₁ − x₂|/2. It has K − 1 degrees of freedom.

    >>> error_of_parts([1.0, 1.5])
    0.25
    """
    mean = sum(values) / len(values)
    variance = sum((each - mean) ** 2 for each in values) / (len(values) - 1)
    return math.sqrt(variance / len(values))
