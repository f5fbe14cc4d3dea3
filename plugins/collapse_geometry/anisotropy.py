"""Anisotropy of the class means: how much they share one direction, and which coordinate of h contributes most."""

from jaxtyping import Float
from torch import Tensor

from collapse import Noted, derived, metric
from collapse.numerics.statistics import unit_rows

COLLAPSE_OPT_IN = True


@derived
def contributions(means: Tensor) -> Float[Tensor, " d"] | Noted:
    """Return the mean of û_ci û_c′i over pairs of classes, for each coordinate i; û_c = μ_c/‖μ_c‖.

    The sum of these means over i is the mean cosine.
    """
    units = unit_rows(means)
    units = units[units.isfinite().all(dim=1)]
    if len(units) < 2:
        return Noted(None, "fewer than two class means have a direction")
    return (units.sum(dim=0).square() - units.square().sum(dim=0)) / (len(units) * (len(units) - 1))


@metric("geometry.anisotropy", translation=False)
def anisotropy(contributions: Tensor) -> Tensor:
    """Mean cosine of two class means, not centred: near 1 in a narrow cone, −1/(C−1) for a simplex around 0.

    Equation: mean cos(μ_c, μ_c′)
    Source: Ethayarajh 2019; Timkey & van Schijndel 2021, of the class means

    >>> round(value(anisotropy, statistics_of([[1.0, 0.0], [1.0, 1.0]])), 6)
    0.707107
    """
    return contributions.sum()


@metric("geometry.rogue_share", translation=False)
def rogue_share(contributions: Tensor) -> Noted:
    """Largest share of one coordinate of h in the anisotropy; a note gives the coordinate. Rotations change the share.

    The share can exceed 1, because the contributions of other coordinates can have the opposite sign.

    Equation: max_i mean û_ci û_c′i / mean cos(μ_c, μ_c′), û_c = μ_c/‖μ_c‖
    Source: Timkey & van Schijndel 2021, of the class means

    >>> round(value(rogue_share, statistics_of([[3.0, 0.1], [2.0, 0.2]])), 6)
    0.996678
    """
    total = contributions.sum()
    if total == 0:
        return Noted(None, "the mean cosine of the class means is 0")
    share, coordinate = (contributions / total).max(dim=0)
    return Noted(share, f"coordinate {int(coordinate)} of h (the first is 0)")
