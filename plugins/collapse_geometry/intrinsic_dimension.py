"""Intrinsic dimension of the class means, from the distances of each mean to the two means nearest to it."""

import torch
from jaxtyping import Float
from torch import Tensor

from collapse import Noted, metric

COLLAPSE_OPT_IN = True

_BLOCK = 1 << 22  # distances that are computed at once
_CANDIDATES = 4  # number of nearest means found by matrix products; exact differences then give the two nearest
_DISCARDED = 0.1  # share of classes with the largest ratios, which the fit excludes, as in Facco et al.
_EQUAL = 1e-12  # log ratios up to this are rounding errors


@metric("geometry.means.intrinsic_dimension")
def two_nearest_neighbours(centred_means: Tensor) -> Tensor | Noted:
    """TwoNN dimension of the class means, no unit: near d for means that fill the space evenly, if C is large.

    The ratios r₂/r₁ of the distances to the two nearest means have the distribution F(r) = 1 − r^(−D) in D dimensions.
    D is the slope of a line through 0, fitted to all classes except the 10 % with the largest ratios. Classes with the
    same mean as another class are excluded. A simplex has no dimension, because all its distances are equal.

    Equation: slope of −log(1 − F_i) on log(r₂/r₁)_i, F_i = i/C, ratios ascending
    Source: Facco et al. 2017

    >>> line = torch.tensor([0.0, 1.0, 3.0, 7.0]).unsqueeze(1)
    >>> round(value(two_nearest_neighbours, statistics_of(line)), 5)
    1.67882
    """
    if len(centred_means) < 3:
        return Noted(None, "two nearest neighbours need at least three classes")
    first, second = _nearest(centred_means).unbind(dim=1)
    ratios = (second / first)[first > 0].log().sort().values
    kept = ratios[: int(len(ratios) * (1 - _DISCARDED))]
    if len(kept) < 2 or kept[-1] <= _EQUAL:
        return Noted(None, "too few classes have two nearest means at different distances")
    heights = -(1 - torch.arange(1, len(kept) + 1).to(kept) / len(ratios)).log()
    dimension, equal = kept @ heights / (kept @ kept), len(first) - len(ratios)
    return Noted(dimension, f"{equal:,} classes whose mean equals another mean are excluded") if equal else dimension


def _nearest(points_Cd: Float[Tensor, "C d"]) -> Float[Tensor, "C 2"]:
    """Return the distances of each point to its two nearest points."""
    sqnorms_C, found = points_Cd.square().sum(dim=1), []
    for rows in torch.arange(len(points_Cd), device=points_Cd.device).split(max(1, _BLOCK // len(points_Cd))):
        # without ‖a‖², which is the same for a whole row
        far = torch.addmm(sqnorms_C, points_Cd[rows], points_Cd.T, alpha=-2).scatter_(1, rows[:, None], torch.inf)
        near = far.topk(min(_CANDIDATES, len(points_Cd) - 1), largest=False).indices
        found.append((points_Cd[rows, None] - points_Cd[near]).norm(dim=2).sort().values[:, :2])
    return torch.cat(found)
