"""Separation of the classes: variance between and within classes, in all directions or on lines through two means."""

import math

import torch
from torch import Tensor

from collapse import Mean, Noted, derived, metric, pair_metric

# functions below take these values as parameters
from collapse_geometry.spectra import within_spectrum as within_spectrum
from collapse_metrics.covariance import within_covariance as within_covariance
from collapse_metrics.spectrum import Spectrum, spectrum_of
from collapse_metrics.spectrum import between_spectrum as between_spectrum

COLLAPSE_OPT_IN = True

_CANCELLED = 1e-6  # a difference smaller than this, relative to its terms, is computed again
_TOGETHER = 1 << 11  # pairs that are computed again at a time


@metric("geometry.eta_squared", towards=1)
def eta_squared(counts: Tensor, variances: Tensor, centred_means: Tensor) -> Tensor:
    """Share of the variance of all embeddings that lies between classes, in [0, 1]; 1 at full collapse.

    Equation: Σ N_c‖μ_c − m‖² / Σ N_c(‖μ_c − m‖² + σ_c²), m = Σ N_c μ_c / N
    Source: correlation ratio of Fisher 1925; of vectors: R² of Anderson 2001

    >>> value(eta_squared, two_classes(distance=2, variances=(1, 5)))  # 1 / (1 + 3)
    0.25
    """
    n_C = counts.to(centred_means)
    between = n_C @ (centred_means - n_C @ centred_means / n_C.sum()).square().sum(dim=1)
    return between / (between + n_C @ variances)


@metric("geometry.snr", towards=math.inf)
def signal_to_noise(within_spectrum: Spectrum, between_spectrum: Spectrum, d: int) -> Tensor | Noted:
    """Trace of Σ_W⁺ Σ_B: between-class covariance relative to within-class covariance; ∞ at full collapse.

    It is the mean squared norm of the columns of the signal-to-noise matrix Σ_W^(−1/2) M; the columns of M are the
    centred means. If Σ_W is singular, a note gives its rank, and only the parts of the means in its range are used.

    Equation: tr(Σ_W⁺ Σ_B)
    Source: Han, Papyan & Donoho 2022, of their SNR matrix

    >>> round(value(signal_to_noise, two_classes(distance=4, variances=(2, 2))), 12)  # 4 / 2
    2.0
    """
    ratio, rank = _trace_of_ratio(between_spectrum, within_spectrum), len(within_spectrum.values)
    return ratio if rank == d else Noted(ratio, f"the within-class covariance has rank {rank} of d = {d}")


@metric("geometry.vci", towards=0)
def variability_collapse_index(within_covariance: Tensor, between_spectrum: Spectrum) -> Tensor:
    """Variability collapse index, in [0, 1]: 0 at full collapse, 1 without any class structure.

    It is invariant under invertible linear maps of the embeddings.

    Equation: 1 − tr(Σ_T⁺ Σ_B) / rank Σ_B, Σ_T = Σ_W + Σ_B
    Source: Xu & Liu 2023, for classes of equal size

    >>> round(value(variability_collapse_index, two_classes(distance=4, variances=(4, 4))), 12)  # 1 − 4 / (4 + 4)
    0.5
    """
    values, vectors = between_spectrum
    total = spectrum_of(within_covariance + vectors * values @ vectors.T, 0.0, "")
    assert isinstance(total, Spectrum)  # it is at least Σ_B, which is not zero
    return 1 - _trace_of_ratio(between_spectrum, total) / len(values)


def _trace_of_ratio(a: Spectrum, b: Spectrum) -> Tensor:
    """Return tr(B⁺ A) of two matrices from their eigenvalues and eigenvectors."""
    return ((b.vectors.T @ a.vectors).square() @ a.values / b.values).sum()


@derived
def spread_means(centred_means: Tensor, within_covariance: Tensor) -> Tensor:
    """Σ_W(μ_c − μ̄), shape (C, d)."""
    return centred_means @ within_covariance


@derived
def spreads(centred_means: Tensor, spread_means: Tensor) -> Tensor:
    """(μ_c − μ̄)ᵀ Σ_W (μ_c − μ̄), shape (C,); ``spread_means`` has the rows Σ_W (μ_c − μ̄)."""
    return torch.linalg.vecdot(centred_means, spread_means)


@pair_metric(Mean("geometry.directional_cdnv", towards=0))
def directional_cdnv(
    sqdist: Tensor,
    row_spreads: Tensor,
    column_spreads: Tensor,
    row_spread_means: Tensor,
    row_centred_means: Tensor,
    column_centred_means: Tensor,
    within_covariance: Tensor,
) -> Tensor:
    """Within-class variance along the line through two means, divided by their squared distance; 0 at full collapse.

    The variance is pooled over all classes (Σ_W), because stores hold no covariance per class. Pairs of equal means
    are excluded.

    Equation: uᵀΣ_W u / ‖Δ‖², Δ = μ_c − μ_c′, u = Δ/‖Δ‖
    Source: Luthra, Salunkhe & Galanti 2026, with the pooled covariance

    >>> float(value(directional_cdnv, two_classes(distance=2, variances=(2, 2)))[0, 1])  # 2 / 2²
    0.5
    """
    total = row_spreads + column_spreads
    along = total - 2 * row_spread_means @ column_centred_means.T
    for some in (along < _CANCELLED * total).nonzero().split(_TOGETHER):
        row_n, column_n = some.unbind(dim=1)
        delta = row_centred_means[row_n] - column_centred_means[column_n]
        along[row_n, column_n] = torch.linalg.vecdot(delta @ within_covariance, delta)
    return along / sqdist.square()
