"""Percentile intervals by resampling rows, or whole clusters of rows."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Codes = NDArray[np.int64]

_BATCH = 1 << 20  # weights in memory at a time (8 MiB)
_NEAR = 1e-4  # variances below are computed again: of squares, they would have lost digits
_ROUNDING = (64 * np.finfo(np.float64).eps) ** 2  # variances of what is left of equal values of size 1
_FEWEST = 0.5  # share of the resamples that must give a number
FEW_CLUSTERS = 10
"""With fewer, an interval is too narrow."""


@dataclass(frozen=True)
class Intervals:
    """Percentile intervals of a pair of columns; None where most resamples have no value.

    Attributes:
        r, spearman: Of the two correlations.
        slope: Of the slope of y on x.
        mean: Of the mean of y.
    """

    r: tuple[float, float] | None
    spearman: tuple[float, float] | None
    slope: tuple[float, float] | None
    mean: tuple[float, float] | None


def intervals(
    x_n: Floats,
    y_n: Floats,
    *,
    clusters_n: Codes | None = None,
    resamples: int = 1_999,
    seed: int = 0,
    level: float = 0.95,
    ranked: tuple[Floats, Floats] | None = None,
) -> Intervals:
    """Resample rows, or whole clusters of rows, and return the percentiles of what each resample gives.

    Args:
        x_n, y_n: (rows,) finite values, or residuals, which are not computed again for each resample.
        clusters_n: (rows,) the cluster of each row, 0 to G−1; None resamples rows.
        resamples: Their number.
        seed: Of the resamples: equal for all columns.
        level: Of the interval.
        ranked: The (rows,) values to rank for Spearman's, which takes longer; None does without it.

    Source: Efron & Tibshirani 1993, §13.3; Field & Welsh 2007 for clusters.

    >>> x = np.arange(30.0)
    >>> intervals(x, 2 * x).slope
    (2.0, 2.0)
    """
    scale_x, scale_y = (float(np.abs(each - each.mean()).max()) or 1.0 for each in (x_n, y_n))
    x_n, y_n, shift = (x_n - x_n.mean()) / scale_x, (y_n - y_n.mean()) / scale_y, float(y_n.mean())
    found: dict[str, list[Floats]] = {"r": [], "spearman": [], "slope": [], "mean": []}
    for w_Bn in _weights(len(x_n), clusters_n, resamples, seed):
        xx, xy, yy, y = _moments(w_Bn, x_n, y_n)
        with np.errstate(all="ignore"):  # a resample of one row over and over has no correlation
            found["r"].append(np.clip(xy / np.sqrt(xx * yy), -1, 1))
            found["slope"].append(xy / xx * scale_y / scale_x)
            found["mean"].append(y * scale_y + shift)
            if ranked is not None:
                found["spearman"].append(_spearman(w_Bn, *ranked))
    made = {name: _percentiles(values, level) for name, values in found.items()}
    return Intervals(**made)


def _weights(rows: int, clusters_n: Codes | None, resamples: int, seed: int) -> Iterator[Floats]:
    """Yield how often each row is in each resample, shape (resamples of a batch, rows)."""
    rng = np.random.default_rng(seed)
    units = rows if clusters_n is None else int(clusters_n.max()) + 1
    batch = max(1, _BATCH // rows)
    for start in range(0, resamples, batch):
        size = min(batch, resamples - start)
        counts = rng.multinomial(units, np.full(units, 1 / units), size=size).astype(np.float64)
        yield counts if clusters_n is None else counts[:, clusters_n]


def _moments(w_Bn: Floats, x_n: Floats, y_n: Floats) -> tuple[Floats, Floats, Floats, Floats]:
    """Return weighted variances, the covariance between them, and the mean of y; NaN for a variance of rounding.

    Without a row far out, the other rows of a resample vary little beside the largest value, which is 1: their
    variances are sums of squared differences from their own mean.
    """
    total = w_Bn.sum(axis=1)
    x, y = w_Bn @ x_n / total, w_Bn @ y_n / total
    xx, yy = (w_Bn @ each**2 / total - mean**2 for each, mean in ((x_n, x), (y_n, y)))
    xy = w_Bn @ (x_n * y_n) / total - x * y
    near_B = (xx < _NEAR) | (yy < _NEAR)
    if near_B.any():
        w_bn, total_b = w_Bn[near_B], total[near_B]
        dx_bn, dy_bn = x_n - x[near_B, None], y_n - y[near_B, None]
        for d_bn in (dx_bn, dy_bn):  # again, for the rounding error of the first mean
            d_bn -= ((w_bn * d_bn).sum(axis=1) / total_b)[:, None]
        xx[near_B], yy[near_B] = ((w_bn * d_bn**2).sum(axis=1) / total_b for d_bn in (dx_bn, dy_bn))
        xy[near_B] = (w_bn * dx_bn * dy_bn).sum(axis=1) / total_b
    return np.where(xx > _ROUNDING, xx, np.nan), xy, np.where(yy > _ROUNDING, yy, np.nan), y


def _spearman(w_Bn: Floats, x_n: Floats, y_n: Floats) -> Floats:
    """Return the correlation of midranks within each resample."""
    total = w_Bn.sum(axis=1)
    ranks = []
    for values in (x_n, y_n):
        ordered, place_n = np.unique(values, return_inverse=True)
        w_Bu = np.zeros((len(w_Bn), len(ordered)))
        np.add.at(w_Bu.T, place_n, w_Bn.T)
        middle_Bu = np.cumsum(w_Bu, axis=1) - w_Bu / 2
        ranks.append(middle_Bu[:, place_n] - (total / 2)[:, None])  # midranks have the mean total/2
    one, other = ranks
    product, squares = (w_Bn * one * other).sum(1), (w_Bn * one**2).sum(1) * (w_Bn * other**2).sum(1)
    return np.clip(product / np.sqrt(squares), -1, 1)


def _percentiles(values: list[Floats], level: float) -> tuple[float, float] | None:
    given = np.concatenate(values) if values else np.empty(0)
    finite = given[np.isfinite(given)]
    if not len(finite) or len(finite) < _FEWEST * len(given):
        return None
    low, high = np.quantile(finite, [(1 - level) / 2, (1 + level) / 2])
    return float(low), float(high)
