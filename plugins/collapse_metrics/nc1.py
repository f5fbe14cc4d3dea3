"""NC1, variability collapse: the embeddings of a class shrink to their mean."""

import math

import torch
from jaxtyping import Float
from torch import Tensor

from collapse import EmbeddingStatistics, Mean, MeanLog, Noted, Std, derived, metric, pair_metric
from collapse_metrics.covariance import within_class_covariance as within_class_covariance
from collapse_metrics.debiasing import Estimates, ratio
from collapse_metrics.debiasing import debiased as debiased
from collapse_metrics.debiasing import plug_in as plug_in

# Share of the largest ‖μ_c‖ that rounding of the embeddings leaves in a direction in which the means are equal. In half
# precision this share is as large as true differences, so the value of float32 is used.
_ROUNDING = {"float64": 2.0**-51, "float32": 2.0**-22}
_DIGITS = 4  # of the covariance ratio; a remark says so where fewer may hold


@derived
def mean_sqnorm(norms: Tensor) -> Tensor:
    """mean‖μ_c − μ̄‖²."""
    return norms.square().mean()


@metric("nc1.cdnv_ratio_debiased", towards=0.0, headline=True)
def debiased_cdnv_ratio(debiased: Estimates) -> Noted | float:
    """Variance over squared distance (k = 0), both without the bias of few samples; no unit; 0 at full collapse.

    Equation: mean σ̃_c² / mean D̃
    Source: ratio of unbiased means, after Galanti et al. 2021

    >>> from collapse.testing import value
    >>> s = EmbeddingStatistics(classes=torch.arange(2), counts=torch.tensor([5, 5]),
    ...     means=torch.tensor([[0.0], [4.0]]).double(), variances=torch.tensor([2.0, 6.0]).double())
    >>> value(debiased_cdnv_ratio, s)  # 5 / (16 − 2); of the biased numbers 4 / 16
    0.35714285714285715
    """
    return ratio(debiased, _cdnv_ratio)


@metric("nc1.cdnv_ratio", towards=0.0)
def cdnv_ratio(plug_in: Estimates) -> Noted | float:
    """Mean variance over the mean squared distance of class means (k = 0), no unit; 0 at full collapse.

    Equation: mean σ_c² / mean ‖μ_c − μ_c′‖²
    Source: ratio of means, after Galanti et al. 2021

    >>> from collapse.testing import value
    >>> s = EmbeddingStatistics(classes=torch.arange(2), counts=torch.tensor([3, 3]),
    ...     means=torch.tensor([[0.0], [4.0]]).double(), variances=torch.tensor([1.0, 5.0]).double())
    >>> value(cdnv_ratio, s)  # 3 / 16
    0.1875
    """
    return ratio(plug_in, _cdnv_ratio)


def _cdnv_ratio(of: Estimates) -> float:
    return float(of.variances.mean()) / of.sqdist


@metric("nc1.cdnv_k2_ratio_debiased", towards=0.0, scale=-2.0)
def debiased_cdnv_k2_ratio(debiased: Estimates) -> Noted | float:
    """The ratio with k = 2, without the bias of few samples, one over squared units of h; 0 at full collapse.

    Equation: mean σ̃_c² / (mean D̃)²
    Source: ratio of unbiased means, after Wu & Papyan 2024, Eq. 4

    >>> from collapse.testing import value
    >>> s = EmbeddingStatistics(classes=torch.arange(2), counts=torch.tensor([5, 5]),
    ...     means=torch.tensor([[0.0], [4.0]]).double(), variances=torch.tensor([2.0, 6.0]).double())
    >>> round(value(debiased_cdnv_k2_ratio, s), 6)  # 5 / 14²
    0.02551
    """
    return ratio(debiased, _cdnv_k2_ratio)


@metric("nc1.cdnv_k2_ratio", towards=0.0, scale=-2.0)
def cdnv_k2_ratio(plug_in: Estimates) -> Noted | float:
    """Mean variance over the squared mean squared distance (k = 2), one over squared units of h; 0 at full collapse.

    Equation: mean σ_c² / (mean ‖μ_c − μ_c′‖²)²
    Source: ratio of means, after Wu & Papyan 2024, Eq. 4

    >>> from collapse.testing import value
    >>> s = EmbeddingStatistics(classes=torch.arange(2), counts=torch.tensor([3, 3]),
    ...     means=torch.tensor([[0.0], [4.0]]).double(), variances=torch.tensor([3.0, 5.0]).double())
    >>> value(cdnv_k2_ratio, s)  # 4 / 16²
    0.015625
    """
    return ratio(plug_in, _cdnv_k2_ratio)


def _cdnv_k2_ratio(of: Estimates) -> float:
    return float(of.variances.mean()) / of.sqdist**2


@pair_metric(
    Mean("nc1.cdnv", towards=0.0, headline=True),
    Std("nc1.cdnv_std", towards=0.0),
    MeanLog("nc1.log_cdnv", towards=float("-inf"), scale=None),
    Mean("nc1.cdnv_scaled", towards=0.0, times=mean_sqnorm, scale=0.0),
    over="distinct",
    scale=-2.0,
)
def cdnv(variance_sum: Tensor, sqdist: Tensor) -> Float[Tensor, "R S"]:
    """Class-distance normalized variance with k = 2, one over squared units of h; 0 at full collapse.

    Equation: (σ_c² + σ_c′²) / (2‖μ_c − μ_c′‖⁴)
    Source: Wu & Papyan 2024, Eq. 4

    >>> import collapse, torch
    >>> s = EmbeddingStatistics(classes=torch.arange(2), counts=torch.tensor([3, 3]),
    ...     means=torch.tensor([[0.0], [2.0]]).double(), variances=torch.tensor([1.0, 3.0]).double())
    >>> collapse.measure(s, metrics=["nc1.cdnv"]).measurements
    {'nc1.cdnv': 0.125}
    """
    return variance_sum / sqdist.square().mul_(2)


@pair_metric(Mean("nc1.cdnv_galanti", towards=0.0), over="distinct")
def cdnv_galanti(variance_sum: Tensor, sqdist: Tensor) -> Float[Tensor, "R S"]:
    """Class-distance normalized variance with k = 0, which has no unit; 0 at full collapse.

    Equation: (σ_c² + σ_c′²) / (2‖μ_c − μ_c′‖²)
    Source: Galanti et al. 2021

    >>> import collapse, torch
    >>> s = EmbeddingStatistics(classes=torch.arange(2), counts=torch.tensor([3, 3]),
    ...     means=torch.tensor([[0.0], [2.0]]).double(), variances=torch.tensor([1.0, 3.0]).double())
    >>> collapse.measure(s, metrics=["nc1.cdnv_galanti"]).measurements
    {'nc1.cdnv_galanti': 0.5}
    """
    return variance_sum / sqdist / 2


@metric("nc1.trace_ratio", towards=0.0)
def trace_ratio(counts: Tensor, variances: Tensor, mean_sqnorm: Tensor) -> Tensor:
    """Within-class over between-class variance: Σ_W pooled over samples, Σ_B over unweighted centred means.

    Equation: tr Σ_W / tr Σ_B
    Source: Tirer et al. 2023

    >>> float(trace_ratio(torch.tensor([3, 1]), torch.tensor([2.0, 0.0]), torch.tensor(1.0)))
    1.5
    """
    return (counts * variances).sum() / counts.sum() / mean_sqnorm


@metric("nc1.trace_ratio_debiased", towards=0.0, version=2)
def debiased_trace_ratio(debiased: Estimates) -> Noted | float:
    """Within-class over between-class variance, both without the bias of few samples; no unit; 0 at full collapse.

    Equation: (Σ_c N_c σ̃_c² / N) / mean ñ_c²
    Source: ratio of unbiased traces, after Tirer et al. 2023

    >>> from collapse.testing import value
    >>> s = EmbeddingStatistics(classes=torch.arange(2), counts=torch.tensor([5, 5]),
    ...     means=torch.tensor([[0.0], [4.0]]).double(), variances=torch.tensor([2.0, 6.0]).double())
    >>> round(value(debiased_trace_ratio, s), 6)  # 5 / (4 − 2 / 4)
    1.428571
    """
    return ratio(debiased, lambda of: float((of.s.counts * of.variances).sum() / of.s.counts.sum()) / of.sqnorm)


@metric("nc1.covariance_ratio", needs=["means", "covariance"], towards=0.0, version=2)
def covariance_ratio(s: EmbeddingStatistics, within_class_covariance: Tensor) -> Noted | float:
    """Within-class covariance against the pseudo-inverse of the between-class covariance, no unit; 0 at full collapse.

    The pseudo-inverse drops eigenvalues of Σ_B of at most d·ε·λ_max, and directions in which the means differ by less
    than the rounding of the embeddings, 2⁻²²·max‖μ_c‖. A final LayerNorm leaves such a direction, which would be
    exactly zero only in float64. A note gives the remaining rank.

    Equation: tr(Σ_W Σ_B⁺) / C
    Source: Papyan, Han & Donoho 2020

    >>> from collapse.testing import value
    >>> s = EmbeddingStatistics(classes=torch.arange(2), counts=torch.tensor([3, 3]),
    ...     means=torch.tensor([[0.0], [2.0]]).double(), variances=torch.tensor([2.0, 2.0]).double(),
    ...     extra={"covariance": {"scatter": torch.tensor([[12.0]]).double(), "samples": torch.tensor([6])}})
    >>> value(covariance_ratio, s)
    1.0
    """
    between_dd = s.centred_means.T @ s.centred_means / s.n_classes
    values, vectors = torch.linalg.eigh(between_dd)
    rounding = _ROUNDING.get(s.dtype, _ROUNDING["float32"]) * s.means.norm(dim=1).max()
    kept = values > torch.maximum(s.dim * torch.finfo(values.dtype).eps * values[-1], rounding.square())
    if not kept.any():
        return Noted(None, "the class means do not differ by more than the embeddings' rounding")
    # tr(Σ_W V Λ⁻¹ Vᵀ) depends only on the diagonal of Vᵀ Σ_W V
    within = (vectors[:, kept] * (within_class_covariance @ vectors[:, kept])).sum(dim=0)
    found = float((within / values[kept]).sum() / s.n_classes)
    remark = f"the between-class covariance has rank {int(kept.sum())} of d = {s.dim}"
    smallest = float(values[kept].min() / values[-1])
    digits = int(-math.log10(s.dim * torch.finfo(values.dtype).eps / smallest))
    if digits < _DIGITS:  # both covariances are rounded by ε times their largest eigenvalue
        remark += f"; the smallest eigenvalue kept is {smallest:.0e} of the largest: only {digits} digits are sure"
    return Noted(found, remark)
