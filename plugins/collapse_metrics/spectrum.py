"""Spectra of covariances and of rows, without the directions that are only rounding error.

Shapes: C classes, d dimensions, n rows, r eigenvalues.
"""

from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from collapse import Noted, derived

# Relative to the largest ‖μ_c‖: the differences that rounding of the embeddings causes in a direction in which the
# means are equal. In half precision they are as large as true differences, so the value of float32 is used.
_ROUNDING = {"float64": 2.0**-51, "float32": 2.0**-22}


class Spectrum(NamedTuple):
    """Eigenvalues λ of a positive semidefinite matrix, without those that are only rounding error.

    Attributes:
        values: Ascending, shape (r,).
        vectors: Their eigenvectors, shape (d, r).
    """

    values: Float[Tensor, " r"]
    vectors: Float[Tensor, "d r"]


@derived
def rounding(means: Tensor, dtype: str) -> Tensor:
    """Return the largest distance, in units of h, that rounding can cause in a direction in which all means are equal.

    ``dtype`` is the dtype of the embeddings. For half precision, return the value of float32.
    """
    return _ROUNDING.get(dtype, _ROUNDING["float32"]) * means.norm(dim=1).max()


def spectrum_of(matrix: Float[Tensor, "d d"], rounding: Tensor | float, nothing: str) -> Spectrum | Noted:
    """Compute the spectrum of a positive semidefinite matrix, without eigenvalues that are only rounding error.

    Eigenvalues of at most max(d·ε·λ_max, ``rounding``²) are dropped. For example, a final LayerNorm causes an
    eigenvalue that would be zero in exact arithmetic. If no eigenvalue remains, return no value, but a note
    whose text is the parameter ``nothing``.

    >>> spectrum_of(torch.diag(torch.tensor([0.0, 2.0, 1.0])), 1.0, "it is zero").values.tolist()
    [2.0]
    """
    values, vectors = torch.linalg.eigh(matrix)
    return _kept(values, vectors, rounding, nothing)


def spectrum_of_rows(rows: Float[Tensor, "n d"], rounding: Tensor | float, nothing: str) -> Spectrum | Noted:
    """Compute the spectrum of the mean of x xᵀ over rows x, from singular values; otherwise like :func:`spectrum_of`.

    If the matrix itself were formed, small eigenvalues would lose digits. A pseudo-inverse depends mostly on the small
    eigenvalues.
    """
    _, singular, vectors = torch.linalg.svd(torch.linalg.qr(rows, mode="r").R, full_matrices=False)
    return _kept((singular.square() / len(rows)).flip(0), vectors.flip(0).T, rounding, nothing)


@derived
def between_spectrum(centred_means: Tensor, rounding: Tensor) -> Spectrum | Noted:
    """Spectrum of the between-class covariance Σ_B."""
    nothing = "the class means do not differ by more than the embeddings' rounding"
    return spectrum_of_rows(centred_means, rounding, nothing)


def _kept(values: Tensor, vectors: Tensor, rounding: Tensor | float, nothing: str) -> Spectrum | Noted:
    least = len(vectors) * torch.finfo(values.dtype).eps * values[-1]
    kept = (values > least) & (values > rounding**2)
    return Spectrum(values[kept], vectors[:, kept]) if kept.any() else Noted(None, nothing)
