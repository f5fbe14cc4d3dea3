"""Effective dimension of the class means: the dimension in which uniform points have the same mean squared cosine.

Cosines over pairs with mean m and standard deviation s have the mean square m² + s². For uniform points in D dimensions
this mean square is 1/D, so d_eff = 1/(m² + s²). The participation ratio PR = (tr M)²/tr M² = C²/‖G‖_F² of
M = Σ_c u_c u_cᵀ also counts the diagonal of the Gram matrix G of all u_c. So 1/PR = 1/C + (1 − 1/C)/d_eff, and the two
dimensions agree if C is much larger than d_eff.
"""

from typing import Any

from torch import Tensor

from collapse import Mean, Noted, metric


def simplex_dimension(C: int) -> float:
    """Effective dimension of a simplex: (C−1)², since every cosine is −1/(C−1). Its participation ratio is C−1."""
    return float(C - 1) ** 2


def uniform_dimension(C: int, d: int) -> float:
    """Effective dimension of uniform points: d, as the mean squared cosine is 1/d. If C ≤ d+1, that of a simplex."""
    return simplex_dimension(C) if d + 1 >= C else float(d)


def uniform_participation(C: int, d: int) -> float:
    """Participation ratio of uniform points on the sphere, C·d/(C+d−1); if C ≤ d+1, that of a simplex, C−1."""
    return C - 1.0 if d + 1 >= C else C * d / (C + d - 1)


class InverseMeanSquare(Mean):
    """1/(mean² + std²) with the population std: the inverse of the mean square over classes or pairs."""

    def scale_of(self, scale: Any) -> float | None:
        """Return the exponent e if h → s·h multiplies the result by s^e, otherwise None.

        If ``scale`` is a number, it is the exponent of the values of classes or pairs, and e is −2·``scale``.
        """
        return None if scale is None or isinstance(scale, str) else -2 * scale + 0.0

    def result(self, state: Tensor) -> Tensor:
        n, mean, squares = state
        return (mean.square() + squares / n).reciprocal()


@metric(
    "nc2.participation_ratio",
    towards=lambda C: C - 1,
    reachable=uniform_participation,
    reached_by="uniform random points",
)
def participation_ratio(unit_means: Tensor) -> Noted | float:
    """Participation ratio of the directions of the centred class means, no unit; C−1 at full collapse.

    Classes whose centred mean is zero have no unit vector and are excluded.

    Equation: (tr M)² / tr M², M = Σ_c u_c u_cᵀ
    Source: participation ratio of the spectrum (Gao et al. 2017), of centred unit means

    >>> s = statistics_of([[1.0, 0.0], [-1.0, 0.0], [0.0, 2.0], [0.0, -2.0]])
    >>> round(value(participation_ratio, s), 12)  # two orthogonal lines
    2.0
    """
    units_Kd = unit_means[unit_means[:, 0].isfinite()]
    if not len(units_Kd):
        return Noted(None, "every centred class mean is zero")
    return len(units_Kd) ** 2 / float((units_Kd.T @ units_Kd).square().sum())
