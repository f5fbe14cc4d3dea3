"""NC2, convergence to a simplex equiangular tight frame: class means of equal length, as far apart as possible.

Debiased metrics use unbiased estimates (see debiasing.py): ñ_c² of the squared norm of a centred class mean, and
g̃_cc′ of the inner product of two centred class means.
"""

import math
from collections.abc import Mapping
from types import MappingProxyType

import torch
from jaxtyping import Float
from torch import Tensor

from collapse import CoV, Mean, Noted, Std, class_metric, metric, pair_metric
from collapse_metrics.debiasing import Estimates
from collapse_metrics.debiasing import debiased as debiased  # the name of a parameter below
from collapse_metrics.effective_dimension import InverseMeanSquare, simplex_dimension, uniform_dimension

_CANCELLED = 1e-12  # a float64 sum smaller than this, relative to its terms, has lost most of its digits
_RESOLVED = 0.25  # a squared norm must exceed this share of its noise, because cosines are divided by norms
_WEAK = 0.05  # if a larger share of classes has no such norm, the remaining classes are a biased sample


def simplex_interference(C: int) -> float:
    """Cosine between any two vertices of a simplex centred on 0: −1/(C−1)."""
    return -1 / (C - 1)


def least_interference_std(C: int, d: int, measured: Mapping[str, float | None] = MappingProxyType({})) -> float | None:
    """Least std of the cosines of C directions in d dimensions, given the mean m of these cosines.

    m is ``measured["nc2.interference"]``, or −1/(C−1) if this is missing or None.

    The Gram matrix K of the directions has trace C, rank ≤ r = min(d, C), and 1ᵀK1/C = λ = 1 + (C−1)m. Its squared norm
    C + C(C−1)(std² + m²) is the sum of its squared eigenvalues, which is at least C²/r. One eigenvalue is at least λ,
    so if λ > C/r, the sum is at least λ² + (C−λ)²/(r−1).

    >>> round(least_interference_std(4, 2), 6)  # two orthogonal lines: cosines −1, −1, 0, 0, 0, 0
    0.471405
    >>> round(least_interference_std(4, 1, {"nc2.interference": 0.0}), 6)  # 3 and 1 on a line: 1, 1, 1, −1, −1, −1
    1.0
    """
    mean = measured.get("nc2.interference")
    mean = simplex_interference(C) if mean is None else mean
    rank, top = min(d, C), 1 + (C - 1) * mean
    squares = C**2 / rank
    if top > C / rank and rank > 1:
        squares = top**2 + (C - top) ** 2 / (rank - 1)
    variance = (squares - C) / (C * (C - 1)) - mean**2
    return math.sqrt(variance) if variance > 1e-15 else 0.0


def least_etf_error(C: int, d: int) -> float:
    """Least ETF error: √(2 − 2√(d/(C−1))), because the Gram matrix has rank d at most; 0 for C ≤ d+1."""
    return math.sqrt(2 - 2 * math.sqrt(min(1.0, d / (C - 1))))


@class_metric(
    CoV("nc2.equinormness", towards=0, headline=True),
    Mean("nc2.log_norm"),
    Std("nc2.log_norm_std", towards=0),
    scale="log",
)
def log_norms(norms: Tensor) -> Tensor:
    """Log norms of the centred class means. Their CoV, the paper's measure, depends on the unit of h.

    Classes whose centred mean is zero are excluded.

    Equation: log‖μ_c − μ̄‖
    Source: Wu & Papyan 2024, Eq. 5

    >>> value(log_norms, statistics_of([[-1.0], [1.0]])).tolist()
    [0.0, 0.0]
    """
    return norms.log()


@class_metric(Mean("nc2.norm"), Std("nc2.norm_std", towards=0), CoV("nc2.norm_cov", towards=0), scale=1)
def plain_norms(norms: Tensor) -> Tensor:
    """Norms of the centred class means, in units of h.

    Equation: ‖μ_c − μ̄‖
    Source: Papyan, Han & Donoho 2020

    >>> value(plain_norms, statistics_of([[-3.0], [1.0]])).tolist()
    [2.0, 2.0]
    """
    return norms


@class_metric(Mean("nc2.scaled_norm"), scale=2)
def scaled_norms(norms: Tensor, d: int) -> Tensor:
    """The paper's scaled norm of each class, squared units of h.

    Equation: ‖μ_c − μ̄‖² / √d
    Source: Wu & Papyan 2024, Table 4

    >>> value(scaled_norms, statistics_of([[-3.0], [1.0]])).tolist()
    [4.0, 4.0]
    """
    return norms.square() / math.sqrt(d)


@pair_metric(
    CoV("nc2.equiangularity"),  # no towards=: the mean cosine tends to −1/(C−1), almost 0, so the CoV grows
    Mean("nc2.interference", towards=simplex_interference),
    Std("nc2.interference_std", towards=0, reachable=least_interference_std, headline=True),
    InverseMeanSquare(
        "nc2.effective_dimension",
        towards=simplex_dimension,
        reachable=uniform_dimension,
        reached_by="uniform random points",
    ),
)
def interference(cosine: Tensor) -> Tensor:
    """Cosine of two centred class means; with equal norms, its mean is always −1/(C−1); its std is 0 at full collapse.

    Equation: ⟨u_c, u_c′⟩
    Source: Wu & Papyan 2024, Eq. 6; the effective dimension is in the text after Eq. 6

    >>> round(float(value(interference, statistics_of(torch.eye(3)))[0, 1]), 12)
    -0.5
    """
    return cosine


@metric("nc2.etf_error", towards=0, reachable=least_etf_error)
def etf_error(centred_means: Tensor) -> float:
    """Distance of the centred means' normalized Gram matrix to that of a simplex ETF, at most √2; 0 at full collapse.

    Equation: ‖G/‖G‖_F − E/‖E‖_F‖_F, E = I − 11ᵀ/C
    Source: Kothapalli 2023; of the classifier in Zhu et al. 2021

    >>> round(value(etf_error, statistics_of(torch.eye(3))), 7)
    0.0
    """
    return etf_distance(centred_means, centred_means)


def etf_distance(a_Cd: Float[Tensor, "C d"], b_Cd: Float[Tensor, "C d"]) -> float:
    """‖G/‖G‖_F − E/‖E‖_F‖_F for G = A Bᵀ and E = I − 11ᵀ/C, ‖E‖_F = √(C−1); NaN if G is zero.

    For C ≤ d+1, G is formed and E is subtracted, which is accurate near an exact ETF. Otherwise no ETF can be
    reached, and d×d products suffice, because ‖A Bᵀ‖_F² = ⟨AᵀA, BᵀB⟩. If the terms of this inner product cancel up to
    rounding, G counts as zero.
    """
    classes, dim = a_Cd.shape
    size = math.sqrt(classes - 1)
    if classes <= dim + 1:
        gram = a_Cd @ b_Cd.T
        etf = torch.eye(classes, dtype=gram.dtype, device=gram.device) - 1 / classes
        return float((gram / gram.norm() - etf / size).norm())
    gram_square = float(((a_Cd.T @ a_Cd) * (b_Cd.T @ b_Cd)).sum())
    if gram_square <= _CANCELLED * float(a_Cd.square().sum()) * float(b_Cd.square().sum()):
        return math.nan
    # ⟨A Bᵀ, E⟩ = Σ_c ⟨a_c, b_c⟩ − ⟨Σ a, Σ b⟩/C
    inner = float((a_Cd * b_Cd).sum() - a_Cd.sum(dim=0) @ b_Cd.sum(dim=0) / classes)
    return math.sqrt(2 - 2 * inner / (math.sqrt(gram_square) * size))


@metric("nc2.scaled_norm_debiased", scale=2)
def debiased_scaled_norm(debiased: Estimates, d: int) -> float:
    """Mean scaled norm without the noise of the class means, squared units of h.

    Equation: mean ñ_c² / √d
    Source: unbiased, after Wu & Papyan 2024, Table 4

    >>> value(debiased_scaled_norm, two_classes(distance=4, variances=(1, 5), samples=2))  # 4 − 6 / 4
    2.5
    """
    return debiased.sqnorm / math.sqrt(d)


@metric("nc2.interference_debiased", towards=simplex_interference, version=2)
def debiased_interference(debiased: Estimates) -> Noted | float:
    """Mean cosine between centred class means, from debiased products and norms; −1/(C−1) at full collapse.

    Classes with a debiased squared norm below a quarter of their noise are excluded, because a division by this norm
    would give meaningless cosines. If more than 5 % of the classes are excluded, there is no value: noise then decides
    which classes remain, and this biases the mean. The sum over pairs is computed from sums over classes.

    Equation: mean g̃_cc′ / (ñ_c ñ_c′)
    Source: of unbiased inner products and squared norms, after Wu & Papyan 2024, Eq. 6

    >>> value(debiased_interference, two_classes(distance=4, variances=(1, 1), samples=2))
    -1.0
    """
    of = debiased
    C, total = len(of.noise), of.noise.sum()
    known = of.sqnorms > _RESOLVED * of.noise
    weak = C - int(known.sum())
    said = f"the means of {weak:,} of {C:,} classes are within their noise"
    if weak > _WEAK * C:
        return Noted(None, f"{said}, and the others are a biased sample: raise --min-count, or collect more samples")
    a_Kd, v_K, q_K = of.means[known], of.noise[known], of.sqnorms[known].rsqrt()
    # Σ over c ≠ c′ of (⟨a, a′⟩ + (v + v′)/C − Σv/C²) q q′, because centring subtracts v/C of each class from a product
    products = (q_K @ a_Kd).square().sum() - (a_Kd.square().sum(dim=1) * q_K.square()).sum()
    shared = 2 / C * ((v_K * q_K).sum() * q_K.sum() - (v_K * q_K.square()).sum())
    centre = total / C**2 * (q_K.sum().square() - q_K.square().sum())
    mean = float(products + shared - centre) / (len(q_K) * (len(q_K) - 1))
    return Noted(mean, f"{said} and are excluded", "singletons") if weak else mean
