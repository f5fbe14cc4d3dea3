"""Intervals and p-values from leaving out each row, or each cluster of rows, once."""

import math
from collections.abc import Iterator

import numpy as np

from collapse_analyses.residuals import NOTHING, Codes, Explained, Floats, explained, spanned

FEWEST = 5
"""Rows or clusters below which an interval, or a p-value of clusters, does not hold its level."""

_NEAR = 1e-4  # share of a sum of squares below which a difference has lost digits: it is computed again
_ROUNDING = (64 * np.finfo(np.float64).eps) ** 2  # share of a sum of squares that is rounding
_LARGEST = 1 - 1e-12  # |r| whose Fisher z is finite


def without_each(
    x_n: Floats, y_n: Floats, model: Explained | None = None, clusters_n: Codes | None = None
) -> tuple[Floats, Floats]:
    """Return r and the slope of y on x without each row or cluster; groups and controls are fitted again each time.

    Args:
        x_n, y_n: (rows,) values, or residuals of the model.
        model: What groups and controls explain; None for a constant.
        clusters_n: (rows,) the cluster of each row, 0 to G−1; None leaves out rows.

    Returns:
        (G,) correlations and (G,) slopes; NaN where the other rows do not vary.

    Source: Cook & Weisberg 1982, §2.2, for leaving out rows of a fit.

    >>> r, slope = without_each(np.array([1.0, 2.0, 3.0, 9.0]), np.array([1.0, 2.0, 3.0, -9.0]))
    >>> r.round(3).tolist(), round(float(slope[3]), 9)
    ([-0.979, -0.922, -0.981, 1.0], 1.0)
    """
    model = model or explained(len(x_n), [], [])
    scale = float(np.linalg.norm(y_n)) / float(np.linalg.norm(x_n))
    both_2n = np.stack([model.residuals(each / np.linalg.norm(each)) for each in (x_n, y_n)])
    products = []
    for at in _units(len(x_n), clusters_n):
        gone_2m, basis_mq = both_2n[:, at], model.basis_nq[at]
        inverse = np.linalg.pinv(np.eye(len(at)) - basis_mq @ basis_mq.T, rcond=NOTHING, hermitian=True)
        left = both_2n @ both_2n.T - gone_2m @ inverse @ gone_2m.T
        if left.diagonal().min() < _NEAR:
            others = spanned(np.delete(model.basis_nq, at, axis=0))
            again_2k = np.stack([others.residuals(each) for each in np.delete(both_2n, at, axis=1)])
            left = again_2k @ again_2k.T
        products.append((left[0, 0], left[0, 1], left[1, 1]))
    xx, xy, yy = (np.array(each) for each in zip(*products, strict=True))
    xx, yy = (np.where(each > _ROUNDING, each, np.nan) for each in (xx, yy))
    return np.clip(xy / np.sqrt(xx * yy), -1, 1), xy / xx * scale


def _units(rows: int, clusters_n: Codes | None) -> Iterator[Codes]:
    codes = np.arange(rows) if clusters_n is None else clusters_n
    return (np.flatnonzero(codes == unit) for unit in range(int(codes.max()) + 1))


def spearman_without_each(x_n: Floats, y_n: Floats, clusters_n: Codes | None = None) -> Floats:
    """Return Spearman's correlation without each row or cluster; NaN where the other rows do not vary."""
    from scipy.stats import rankdata  # takes half a second

    found = []
    for at in _units(len(x_n), clusters_n):
        x, y = (rankdata(np.delete(each, at)) for each in (x_n, y_n))
        x, y = x - x.mean(), y - y.mean()
        squares = float((x @ x) * (y @ y))
        found.append(float(x @ y) / math.sqrt(squares) if squares else math.nan)
    return np.array(found)


def interval(
    value: float, without_G: Floats, degrees: int | float, level: float = 0.95
) -> tuple[float, float, float] | None:
    """Return low, high and the two-sided p of 0, by Student's t with the jackknife's standard error.

    The standard error is √(degrees/G·Σ_g(v_g − v̄)²) of the values v_g without each of G units. None with fewer than
    :data:`FEWEST` units, or where a value without one is undefined.

    Args:
        value: Of all rows.
        without_G: (G,) the values without each unit.
        degrees: Of freedom: G − 1 of clusters.
        level: Of the interval.

    Source: Efron & Tibshirani 1993, §11.5; MacKinnon, Nielsen & Webb 2023 for few clusters.

    >>> x = np.array([1.0, 2.0, 3.0, 4.0, 5.0])  # of a mean it is the usual interval
    >>> [round(each, 3) for each in interval(3.0, (15 - x) / 4, degrees=4)]
    [1.037, 4.963, 0.013]
    """
    from scipy.stats import t as student  # takes half a second

    units = len(without_G)
    if units < FEWEST or not np.isfinite(without_G).all():
        return None
    error = math.sqrt(degrees / units * float(((without_G - without_G.mean()) ** 2).sum()))
    reach = float(student.ppf((1 + level) / 2, degrees)) * error
    p = float(2 * student.sf(abs(value) / error, degrees)) if error > 0 else float(value == 0)
    return value - reach, value + reach, p


def interval_of_slope(
    slope: float, x_n: Floats, without_G: Floats, model: Explained, clusters_n: Codes | None, level: float
) -> tuple[float, float, float] | None:
    """Do the same with a slope on residuals x, whose jackknife variance many effects make too large.

    It is divided by its expectation for independent errors of equal variance, and t has the degrees of freedom of a
    χ² with its mean and variance (Satterthwaite). Source: Bell & McCaffrey 2002, for the degrees of freedom.
    """
    if not np.isfinite(without_G).all():
        return None
    weights = []
    for at in _units(len(x_n), clusters_n):
        q_nq, q_mq = model.basis_nq, model.basis_nq[at]
        inverse = np.linalg.pinv(np.eye(q_nq.shape[1]) - q_mq.T @ q_mq, rcond=NOTHING, hermitian=True)
        left_n = x_n + q_nq @ (inverse @ (q_mq.T @ x_n[at]))
        left_n[at] = 0
        weights.append(left_n / (left_n @ left_n))
    weights_Gn = np.array(weights) - np.mean(weights, axis=0)
    shared_GG = weights_Gn @ weights_Gn.T
    degrees = float(shared_GG.trace() ** 2 / (shared_GG**2).sum())
    scale = math.sqrt(len(without_G) / (degrees * float(x_n @ x_n) * float(shared_GG.trace())))
    return interval(slope, without_G * scale, degrees, level)


def interval_of_r(r: float, r_G: Floats, degrees: int, level: float = 0.95) -> tuple[float, float, float] | None:
    """Do the same with a correlation, through Fisher's z, whose distribution is nearly symmetric."""
    z, z_G = (np.arctanh(np.clip(each, -_LARGEST, _LARGEST)) for each in (r, r_G))
    found = interval(float(z), z_G, degrees, level)
    return found and (math.tanh(found[0]), math.tanh(found[1]), found[2])


def p_of_r(r: float, degrees: int) -> float:
    """Return the two-sided p of r = 0 by Student's t = r·√(degrees/(1−r²)), of independent normal rows.

    >>> round(p_of_r(0.5, degrees=1), 9)  # t = 1/√3
    0.666666667
    """
    from scipy.stats import t as student  # takes half a second

    return float(2 * student.sf(abs(r) * math.sqrt(degrees / (1 - r**2)), degrees)) if abs(r) < 1 else 0.0
