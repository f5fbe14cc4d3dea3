"""GNC2, hyperspherical uniformity: with more classes than dimensions the means spread evenly over a sphere."""

import math

import torch
from jaxtyping import Float
from torch import Tensor

from collapse import CoV, LogMeanExp, Mean, Std, pair_metric

UNIFORM = "uniform random points"
"""The points that define the reachable values.

These values are not bounds: some frames, such as an orthoplex, have a CoV closer to 0.
"""


def uniform_log_kernel(C: int, d: int | float) -> float | None:
    """Reachable mean of log‖u − u′‖⁻¹; None if d < 2 and C > d+1.

    If C ≤ d+1, it is the value of a simplex, ½ ln((C−1)/(2C)), which is the minimum. Otherwise, it is the value of
    points uniform on the sphere: −ln 2 − ½(ψ(a) − ψ(2a)) with a = (d−1)/2. For two such points, (1 − cos)/2 has a
    Beta(a, a) distribution.

    >>> round(uniform_log_kernel(1000, 3), 6)  # on S², −ln 2 + ½
    -0.193147
    """
    if d + 1 >= C:
        return math.log((C - 1) / (2 * C)) / 2
    if d == 2:
        return 0.0  # exactly, because on a circle far and near pairs cancel
    if d < 2:
        return None
    at_a, at_2a = torch.special.digamma(_a_and_2a(d)).tolist()
    return -math.log(2) - (at_a - at_2a) / 2


def uniform_log_kernel_std(C: int, d: int | float) -> float | None:
    """Std of log‖u − u′‖⁻¹ for points uniform on the sphere: ½√(ψ₁(a) − ψ₁(2a)) with a = (d−1)/2.

    If C ≤ d+1, it is 0, the value of a simplex. If C > d+1 and d < 2, it is None.

    >>> round(uniform_log_kernel_std(1000, 3), 6)
    0.5
    """
    if d + 1 >= C:
        return 0.0
    if d < 2:
        return None
    at_a, at_2a = torch.special.zeta(2.0, _a_and_2a(d)).tolist()  # ψ₁(x) = ζ(2, x)
    return math.sqrt(at_a - at_2a) / 2


def _a_and_2a(dim: int | float) -> Float[Tensor, "2"]:
    return torch.tensor([(dim - 1) / 2, dim - 1], dtype=torch.float64)


def uniform_cov(C: int, d: int | float) -> float | None:
    """CoV of log‖u − u′‖⁻¹ for points uniform on the sphere, or for a simplex if C ≤ d+1; d may be fractional.

    If C > d+1, it is None for d < 2, and also for a circle (d = 2), because the mean is 0 there.
    """
    mean, std = uniform_log_kernel(C, d), uniform_log_kernel_std(C, d)
    return std / mean + 0.0 if mean and std is not None else None  # + 0.0: not the −0 of a simplex


@pair_metric(
    CoV("gnc2.hyperspherical_uniformity", towards=0, reachable=uniform_cov, reached_by=UNIFORM, headline=True),
    Mean("gnc2.log_kernel", reachable=uniform_log_kernel, reached_by=UNIFORM),
    Std("gnc2.log_kernel_std", towards=0, reachable=uniform_log_kernel_std, reached_by=UNIFORM),
    LogMeanExp("gnc2.log_riesz", exponent=lambda d: d - 2),
    LogMeanExp("gnc2.log_riesz_square", exponent=lambda d: 2 * (d - 2)),
)
def log_kernel(unit_sqdist: Tensor) -> Tensor:
    """Log of the inverse distance between two unit centred class means; pairs of equal unit vectors are excluded.

    ``gnc2.log_riesz`` is (1/s)·log mean‖u_c − u_c′‖^(−s) with s = d−2, computed by log-sum-exp.
    ``gnc2.log_riesz_square`` is the same with s = 2(d−2); the two together give the variance of the Riesz kernel.

    Equation: log‖u_c − u_c′‖⁻¹
    Source: Wu & Papyan 2024, Eq. 7, after Liu et al. 2023; Riesz: Liu et al. 2023

    >>> round(float(value(log_kernel, statistics_of([[1.0, 0.0], [0.0, 1.0]]))[0, 1]), 9)  # opposite: −ln 2
    -0.693147181
    """
    return unit_sqdist.log().mul_(-0.5)


@pair_metric(
    CoV("gnc2.uncentred_uniformity", reachable=uniform_cov, reached_by=UNIFORM),
    Mean("gnc2.uncentred_log_kernel", reachable=uniform_log_kernel, reached_by=UNIFORM),
    Std("gnc2.uncentred_log_kernel_std", reachable=uniform_log_kernel_std, reached_by=UNIFORM),
    translation=False,
)
def uncentred_log_kernel(uncentred_unit_sqdist: Tensor) -> Tensor:
    """The logarithmic kernel without centring, as in the published Table 1 and Figure 1, but not as in Eq. 7.

    It has no fixed value at full collapse, because its value for a simplex depends on the global mean.

    Equation: log‖μ_c/‖μ_c‖ − μ_c′/‖μ_c′‖‖⁻¹
    Source: Wu & Papyan 2024, Table 1 and Figure 1 as published

    >>> round(float(value(uncentred_log_kernel, statistics_of(torch.eye(3)))[0, 1]), 9)  # at right angles: −½ ln 2
    -0.34657359
    """
    return uncentred_unit_sqdist.log().mul_(-0.5)


@pair_metric(Mean("gnc2.distance"), Std("gnc2.distance_std"))
def unit_distance(unit_sqdist: Tensor) -> Tensor:
    """Distance between the directions of two centred class means, no unit.

    Equation: ‖u_c − u_c′‖
    Source: Liu et al. 2023

    >>> round(float(value(unit_distance, statistics_of([[1.0, 0.0], [0.0, 1.0]]))[0, 1]), 9)
    2.0
    """
    return unit_sqdist.sqrt()
