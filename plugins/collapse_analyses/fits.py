"""Fit linear models with groups and controls, and compute jackknife intervals.

Each fit of the jackknife leaves out one row, or one cluster of rows.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Codes = NDArray[np.int64]
Interval = tuple[float | None, float | None, float | None]
"""The two ends of an interval, and the two-sided p-value for a true value of 0; all three are None if undefined."""


class Correlation(NamedTuple):
    """A correlation r, its interval, and the two-sided p-value of r = 0.

    ``without`` contains the values of r when each of the G rows or clusters is left out, shape (G,).
    """

    r: float
    low: float | None
    high: float | None
    p: float | None
    without: Floats


FEWEST = 5
"""Minimum number of rows or clusters for an interval; with fewer, intervals and p do not have nominal error rates."""
ROUNDING = 64 * np.finfo(np.float64).eps
"""Differences below this share of a column's size can be rounding errors."""
_LEVEL = 0.95  # confidence level of all intervals
_NOTHING = 1e-10  # residuals below this share of a column's spread are rounding errors
_LARGEST = 1 - 1e-12  # a larger |r| is set to this value, so that Fisher's z is finite


@dataclass(frozen=True)
class LinearModel:
    """A linear model that predicts values from groups and controls.

    Each grouping, such as architecture, divides the rows into groups, and each group has an additive effect. Each
    control, such as width, has a slope.

    Attributes:
        basis_nq: Orthonormal basis of the columns of the design matrix, including the constant column, shape (rows, q).

    >>> x = np.array([1.0, 2.0, 5.0, 6.0])
    >>> linear_model(4, [np.array([0, 0, 1, 1])]).residuals(x).round(12).tolist()
    [-0.5, 0.5, -0.5, 0.5]
    """

    basis_nq: Floats

    def residuals(self, values: Floats) -> Floats:
        """Return the residuals of values of shape (rows,) or (k, rows).

        The projection is subtracted twice; the second time removes rounding errors of the first.
        """
        values = values - values.mean(axis=-1, keepdims=True)
        for _ in range(2):
            values = values - (values @ self.basis_nq) @ self.basis_nq.T
        return values

    @property
    def degrees(self) -> int:
        """Degrees of freedom of a correlation of residuals: rows − q − 1."""
        rows, q = self.basis_nq.shape
        return rows - q - 1

    def explains(self, values_n: Floats) -> bool:
        """Return whether the model explains the values completely: all residuals are rounding errors."""
        left, spread = np.linalg.norm(self.residuals(values_n)), np.linalg.norm(values_n - values_n.mean())
        return bool(left <= max(_NOTHING * spread, ROUNDING * np.abs(values_n).max() * np.sqrt(len(values_n))))


def is_constant(values_n: Floats) -> bool:
    """Return whether all values are equal, up to rounding errors.

    >>> is_constant(np.array([0.1, 0.1, 0.1 + 1e-17])), is_constant(np.array([1e-20, 2e-20]))
    (True, False)
    """
    return linear_model(len(values_n)).explains(values_n)


def linear_model(rows: int, groupings: Sequence[Codes] = (), controls: Sequence[Floats] = ()) -> LinearModel:
    """Return the linear model for some groupings and controls.

    Args:
        rows: Number of rows.
        groupings: For each grouping, the number of each row's group, shape (rows,).
        controls: For each control, its value in each row, shape (rows,).

    Residuals of two crossed groupings, such as architecture and recipe, are those of a two-way analysis of variance.
    """
    columns = [np.ones((rows, 1))]
    columns += [np.equal.outer(codes, np.unique(codes)).astype(np.float64) for codes in groupings]
    columns += [(values - values.mean())[:, None] for values in controls]
    design = np.concatenate(columns, axis=1)
    return _spanned(design / np.maximum(np.linalg.norm(design, axis=0), 1e-300))


def _spanned(columns_nq: Floats) -> LinearModel:
    """Return the linear model with these columns of the design matrix, which may be linearly dependent."""
    left, singular, _ = np.linalg.svd(columns_nq, full_matrices=False)
    return LinearModel(left[:, singular > _NOTHING * singular[0]])


class Jackknife:
    """Compute jackknife intervals from G fits; each fit leaves out one unit, which is a row or a cluster of rows.

    Args:
        model: The model fitted to all rows.
        clusters_n: The cluster of each row, 0 to G−1, shape (rows,); None if each row is its own cluster.
        degrees: Degrees of freedom; by default those of the model, or G − 1 with clusters.

    Source: Cook & Weisberg 1982, §2.2; Efron & Tibshirani 1993, §11.5; MacKinnon, Nielsen & Webb 2023 for clusters.
    """

    def __init__(self, model: LinearModel, clusters_n: Codes | None = None, degrees: int | None = None) -> None:
        self.model = model
        units_n = np.arange(len(model.basis_nq)) if clusters_n is None else clusters_n
        self.kept = [units_n != unit for unit in range(int(units_n.max()) + 1)]
        self.models = [_spanned(model.basis_nq[kept]) for kept in self.kept]
        natural = model.degrees if clusters_n is None else len(self.kept) - 1
        self.degrees = natural if degrees is None else degrees

    def products(self, values_kn: Floats, *, ranks: bool = False) -> Floats:
        """Return inner products of k columns' residuals, leaving out one of the G units at a time, shape (G, k, k).

        ``values_kn`` has a row per column. With ``ranks``, centred ranks are used instead of residuals. The products of
        a column are NaN if the model explains the column exactly in the remaining rows. With ``ranks``, they are NaN if
        the column is constant in the remaining rows.
        """
        from scipy.stats import rankdata  # slow to import

        found = []
        for kept, model in zip(self.kept, self.models, strict=True):
            part_kn = rankdata(values_kn[:, kept], axis=1) if ranks else values_kn[:, kept]
            left_kn = part_kn - part_kn.mean(axis=1, keepdims=True) if ranks else model.residuals(part_kn)
            size_k = np.linalg.norm(part_kn if ranks else values_kn, axis=1)
            left_kn[np.linalg.norm(left_kn, axis=1) <= ROUNDING * size_k] = np.nan
            found.append(left_kn @ left_kn.T)
        return np.array(found)

    def interval(self, value: float, without_G: Floats, degrees: int | float | None = None) -> Interval:
        """Return the interval's two ends and the two-sided p-value for a true value of 0, from Student's t.

        The standard error is the jackknife's: √(degrees/G·Σ_g(v_g − v̄)²), where v_g is the value when unit g is left
        out. With fewer than :data:`FEWEST` units, or an undefined v_g, all three are None.

        Args:
            value: The value for all rows.
            without_G: The values when each unit is left out, shape (G,).
            degrees: Degrees of freedom; by default those of the fits.

        >>> x = np.array([1.0, 2.0, 3.0, 4.0, 5.0])  # for a mean this is the usual interval
        >>> [round(each, 3) for each in Jackknife(linear_model(5)).interval(3.0, (15 - x) / 4, degrees=4)]
        [1.037, 4.963, 0.013]
        """
        from scipy.stats import t as student  # slow to import

        degrees = self.degrees if degrees is None else degrees
        units = len(without_G)
        if units < FEWEST or not np.isfinite(without_G).all():
            return None, None, None
        error = math.sqrt(degrees / units * float(((without_G - without_G.mean()) ** 2).sum()))
        reach = float(student.ppf((1 + _LEVEL) / 2, degrees)) * error
        p = float(2 * student.sf(abs(value) / error, degrees)) if error > 0 else float(value == 0)
        return value - reach, value + reach, p

    def correlations(self, values_kn: Floats, *, ranks: bool = False) -> list[Correlation]:
        """Correlate each row of ``values_kn`` with the last row, and compute intervals with Fisher's z.

        Args:
            values_kn: Residuals of columns, shape (k, rows); no row is constant.
            ranks: Whether to correlate ranks, for Spearman's correlation.
        """
        from scipy.stats import rankdata  # slow to import

        products, found = self.products(values_kn, ranks=ranks), []
        r_kk = np.asarray(np.corrcoef(rankdata(values_kn, axis=1) if ranks else values_kn))
        for i, r in enumerate(r_kk[-1, :-1].tolist()):
            without_G = products[:, i, -1] / np.sqrt(products[:, i, i] * products[:, -1, -1])
            z, z_G = (np.arctanh(np.clip(each, -_LARGEST, _LARGEST)) for each in (r, without_G))
            low, high, p = self.interval(float(z), z_G)
            low, high = (None if end is None else math.tanh(end) for end in (low, high))
            found.append(Correlation(r, low, high, p, np.clip(without_G, -1, 1)))
        return found

    def interval_of_slope(self, slope: float, x_n: Floats, slope_G: Floats) -> Interval:
        """Return the interval and p-value of the slope of a regression on the residuals ``x_n``.

        If the model has many effects, the jackknife variance is too large. So it is scaled to be unbiased for
        independent errors of equal variance. The degrees of freedom of Student's t are Satterthwaite's: a scaled χ²
        distribution with these degrees of freedom has the same mean and variance as the variance estimate. ``slope_G``
        contains the slope when each unit is left out, shape (G,).
        Source: Bell & McCaffrey 2002, for the degrees of freedom.
        """
        if not np.isfinite(slope_G).all():
            return None, None, None
        weights_Gn = np.zeros((len(slope_G), len(x_n)))  # each slope is a weighted sum of y
        for weights_n, kept, model in zip(weights_Gn, self.kept, self.models, strict=True):
            left_n = model.residuals(x_n[kept])
            weights_n[kept] = left_n / (left_n @ left_n)
        weights_Gn -= weights_Gn.mean(axis=0)
        shared_GG = weights_Gn @ weights_Gn.T
        degrees = float(shared_GG.trace() ** 2 / (shared_GG**2).sum())
        scale = math.sqrt(len(slope_G) / (degrees * float(x_n @ x_n) * float(shared_GG.trace())))
        return self.interval(slope, slope_G * scale, degrees)
