"""What groups and controls do not explain of a column."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Codes = NDArray[np.int64]

NOTHING = 1e-10
"""Residuals whose norm is this share of the column's spread are rounding."""


@dataclass(frozen=True)
class Explained:
    """A linear model of groups and controls: an additive effect per group of each grouping, a slope per control.

    Attributes:
        basis_nq: (rows, q) orthonormal columns of the model, with the constant.

    >>> x = np.array([1.0, 2.0, 5.0, 6.0])
    >>> explained(4, [np.array([0, 0, 1, 1])], []).residuals(x).round(12).tolist()
    [-0.5, 0.5, -0.5, 0.5]
    """

    basis_nq: Floats

    def residuals(self, values_n: Floats) -> Floats:
        """Subtract what the model explains, twice, to remove the rounding error of the first time."""
        values_n = values_n - values_n.mean()
        for _ in range(2):
            values_n = values_n - self.basis_nq @ (self.basis_nq.T @ values_n)
        return values_n

    @property
    def degrees(self) -> int:
        """Degrees of freedom of a correlation of residuals: rows − q − 1."""
        rows, q = self.basis_nq.shape
        return rows - q - 1


def explained(rows: int, groupings: Sequence[Codes], controls: Sequence[Floats]) -> Explained:
    """Make the model of groupings, each (rows,) codes, and controls, each (rows,) numbers.

    Two groupings that cross, such as architecture and recipe, give the residuals of a two-way analysis of variance.
    """
    columns = [np.ones((rows, 1))]
    columns += [np.equal.outer(codes, np.unique(codes)).astype(np.float64) for codes in groupings]
    for values in controls:
        centred = values - values.mean()
        spread = float(np.linalg.norm(centred))
        columns += [centred[:, None] / spread] if spread else []
    design = np.concatenate([each / np.maximum(np.linalg.norm(each, axis=0), 1e-300) for each in columns], axis=1)
    return spanned(design)


def spanned(columns_nq: Floats) -> Explained:
    """Make the model of columns that may depend on each other."""
    left, singular, _ = np.linalg.svd(columns_nq, full_matrices=False)
    return Explained(left[:, singular > NOTHING * singular[0]])


def is_explained(values_n: Floats, residuals_n: Floats) -> bool:
    """Whether the residuals are no more than rounding."""
    spread, largest = float(np.linalg.norm(values_n - values_n.mean())), float(np.abs(values_n).max())
    rounding = 64 * np.finfo(np.float64).eps * largest * np.sqrt(len(values_n))
    return bool(np.linalg.norm(residuals_n) <= max(NOTHING * spread, rounding))
