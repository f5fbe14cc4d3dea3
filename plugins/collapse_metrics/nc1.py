"""NC1, variability collapse: the embeddings of a class shrink to their mean.

Debiased metrics use unbiased estimates (see debiasing.py): σ̃_c² of a class's variance, ñ_c² of the squared norm of a
centred class mean, and D̃ of the squared distance of two class means.
"""

import math

from torch import Tensor

from collapse import Mean, MeanLog, Noted, Std, derived, metric, pair_metric

# functions below take these values as parameters
from collapse_metrics.covariance import within_covariance as within_covariance
from collapse_metrics.debiasing import Estimates
from collapse_metrics.debiasing import resolved as resolved
from collapse_metrics.spectrum import Spectrum
from collapse_metrics.spectrum import between_spectrum as between_spectrum


@derived
def mean_sqnorm(norms: Tensor) -> Tensor:
    """Mean squared norm of the centred class means, mean‖μ_c − μ̄‖², squared units of h."""
    return norms.square().mean()


@derived
def mean_sqdist(mean_sqnorm: Tensor, C: int) -> Tensor:
    """Mean squared distance of class means, mean‖μ_c − μ_c′‖² over pairs, squared units of h."""
    return mean_sqnorm * (2 * C / (C - 1))


@metric("nc1.cdnv_ratio_debiased", towards=0, headline=True)
def debiased_cdnv_ratio(resolved: Estimates) -> float:
    """Variance over squared distance, both without the bias of few samples; no unit; 0 at full collapse.

    Equation: mean σ̃_c² / mean D̃
    Source: ratio of unbiased means, after Galanti et al. 2021

    >>> value(debiased_cdnv_ratio, two_classes(distance=4, variances=(2, 6), samples=5))  # 5 / (16 − 2)
    0.35714285714285715
    """
    return float(resolved.variances.mean()) / resolved.sqdist


@metric("nc1.cdnv_ratio", towards=0)
def cdnv_ratio(variances: Tensor, mean_sqdist: Tensor) -> Tensor:
    """Mean variance over the mean squared distance of class means, no unit; 0 at full collapse.

    Equation: mean σ_c² / mean ‖μ_c − μ_c′‖²
    Source: ratio of means, after Galanti et al. 2021

    >>> value(cdnv_ratio, two_classes(distance=4, variances=(1, 5)))  # 3 / 16
    0.1875
    """
    return variances.mean() / mean_sqdist


@metric("nc1.cdnv_k2_ratio_debiased", towards=0, scale=-2)
def debiased_cdnv_k2_ratio(resolved: Estimates) -> float:
    """Mean variance over (mean squared distance)² (k = 2), without the bias of few samples; 0 at full collapse.

    Its unit is that of 1/h².

    Equation: mean σ̃_c² / (mean D̃)²
    Source: ratio of unbiased means, after Wu & Papyan 2024, Eq. 4

    >>> round(value(debiased_cdnv_k2_ratio, two_classes(distance=4, variances=(2, 6), samples=5)), 6)  # 5 / 14²
    0.02551
    """
    return float(resolved.variances.mean()) / resolved.sqdist**2


@metric("nc1.cdnv_k2_ratio", towards=0, scale=-2)
def cdnv_k2_ratio(variances: Tensor, mean_sqdist: Tensor) -> Tensor:
    """Mean variance over (mean squared distance)² (the paper's k = 2), in units of 1/h²; 0 at full collapse.

    Equation: mean σ_c² / (mean ‖μ_c − μ_c′‖²)²
    Source: ratio of means, after Wu & Papyan 2024, Eq. 4

    >>> value(cdnv_k2_ratio, two_classes(distance=4, variances=(3, 5)))  # 4 / 16²
    0.015625
    """
    return variances.mean() / mean_sqdist.square()


@pair_metric(
    Mean("nc1.cdnv", towards=0, headline=True),
    Std("nc1.cdnv_std", towards=0),
    MeanLog("nc1.log_cdnv", towards=-math.inf),
    scale=-2,
)
def cdnv(variance_sum: Tensor, sqdist: Tensor) -> Tensor:
    """Class-distance normalized variance with the paper's k = 2 (exponent 2 + k), in units of 1/h²; 0 at full collapse.

    Pairs of equal means are excluded.

    Equation: (σ_c² + σ_c′²) / (2‖μ_c − μ_c′‖⁴)
    Source: Wu & Papyan 2024, Eq. 4

    >>> float(value(cdnv, two_classes(distance=2, variances=(1, 3)))[0, 1])
    0.125
    """
    return variance_sum / sqdist.square().mul_(2)


@pair_metric(Mean("nc1.cdnv_scaled", towards=0))
def scaled_cdnv(cdnv: Tensor, mean_sqnorm: Tensor) -> Tensor:
    """CDNV (with k = 2), multiplied by the mean squared norm of the centred means, no unit; 0 at full collapse.

    Equation: (σ_c² + σ_c′²) / (2‖μ_c − μ_c′‖⁴) · mean‖μ_c − μ̄‖²
    Source: after Wu & Papyan 2024, Eq. 4

    >>> float(value(scaled_cdnv, two_classes(distance=2, variances=(1, 3)))[0, 1])
    0.125
    """
    return cdnv * mean_sqnorm


@pair_metric(Mean("nc1.cdnv_galanti", towards=0))
def cdnv_galanti(cdnv: Tensor, sqdist: Tensor) -> Tensor:
    """Class-distance normalized variance with the squared distance (k = 0), no unit; 0 at full collapse.

    Equation: (σ_c² + σ_c′²) / (2‖μ_c − μ_c′‖²)
    Source: Galanti et al. 2021

    >>> float(value(cdnv_galanti, two_classes(distance=2, variances=(1, 3)))[0, 1])
    0.5
    """
    return cdnv * sqdist


@metric("nc1.trace_ratio", towards=0)
def trace_ratio(counts: Tensor, variances: Tensor, mean_sqnorm: Tensor) -> Tensor:
    """Within-class over between-class variance, no unit; 0 at full collapse.

    Σ_W is a mean over samples, and Σ_B an unweighted mean over classes.

    Equation: tr Σ_W / tr Σ_B
    Source: Tirer et al. 2023

    >>> value(trace_ratio, two_classes(distance=2, variances=(2, 1)))
    1.5
    """
    return (counts * variances).sum() / counts.sum() / mean_sqnorm


@metric("nc1.trace_ratio_debiased", towards=0, version=2)
def debiased_trace_ratio(resolved: Estimates) -> float:
    """Within-class over between-class variance, both without the bias of few samples; no unit; 0 at full collapse.

    Equation: (Σ_c N_c σ̃_c² / N) / mean ñ_c²
    Source: ratio of unbiased traces, after Tirer et al. 2023

    >>> round(value(debiased_trace_ratio, two_classes(distance=4, variances=(2, 6), samples=5)), 6)  # 5 / (4 − 2 / 4)
    1.428571
    """
    return float((resolved.counts * resolved.variances).sum() / resolved.counts.sum()) / resolved.sqnorm


@metric("nc1.covariance_ratio", towards=0, version=2)
def covariance_ratio(within_covariance: Tensor, between_spectrum: Spectrum, C: int, d: int) -> Noted:
    """Trace of (within-class covariance · pseudo-inverse of between-class covariance) / C, no unit; 0 at full collapse.

    A note gives the rank that the pseudo-inverse keeps.

    Equation: tr(Σ_W Σ_B⁺) / C
    Source: Papyan, Han & Donoho 2020

    >>> round(value(covariance_ratio, two_classes(distance=2, variances=(2, 2))), 12)
    1.0
    """
    values, vectors = between_spectrum
    # tr(Σ_W V Λ⁻¹ Vᵀ) depends only on the diagonal of Vᵀ Σ_W V
    within = (vectors * (within_covariance @ vectors)).sum(dim=0)
    return Noted((within / values).sum() / C, f"the between-class covariance has rank {len(values)} of d = {d}")
