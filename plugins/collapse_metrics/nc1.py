"""NC1, variability collapse: the embeddings of a class shrink to their mean."""

import math

import torch
from jaxtyping import Float
from torch import Tensor

from collapse import EmbeddingStatistics, Mean, MeanLog, Noted, Pair, Std, hookimpl, metric, pair_metric
from collapse_metrics.covariance import within_class_covariance
from collapse_metrics.debiasing import Estimates, debiased, plug_in, ratio

# Share of the largest ‖μ_c‖ that rounding of the embeddings leaves in a direction in which the means are equal. In half
# precision this share is as large as true differences, so the value of float32 is used.
_ROUNDING = {"float64": 2.0**-51, "float32": 2.0**-22}
_DIGITS = 4  # of the covariance ratio; a remark says so where fewer may hold


def mean_sqnorm(s: EmbeddingStatistics) -> Tensor:
    """mean‖μ_c − μ̄‖²."""
    return s.norms.square().mean()


@pair_metric(
    needs=["means", "variances"],
    over="distinct",
    measures=[
        Mean("nc1.cdnv", towards=0.0, headline=True),
        Std("nc1.cdnv_std", towards=0.0),
        MeanLog("nc1.log_cdnv", towards=float("-inf"), scale=None),
        Mean("nc1.cdnv_scaled", towards=0.0, times=mean_sqnorm, scale=0.0),
    ],
    scale=-2.0,
    source="Wu & Papyan 2024, Eq. 4",
    equation="(σ_c² + σ_c′²) / (2‖μ_c − μ_c′‖⁴)",
)
def cdnv(pair: Pair) -> Float[Tensor, "R S"]:
    """Class-distance normalized variance with k = 2, one over squared units of h; 0 at full collapse.

    >>> import collapse, torch
    >>> s = EmbeddingStatistics(classes=torch.arange(2), counts=torch.tensor([3, 3]),
    ...     means=torch.tensor([[0.0], [2.0]]).double(), variances=torch.tensor([1.0, 3.0]).double())
    >>> collapse.measure(s, metrics=["nc1.cdnv"]).measurements
    {'nc1.cdnv': 0.125}
    """
    return pair.variance_sum / pair.sqdist.square().mul_(2)


@pair_metric(
    needs=["means", "variances"],
    over="distinct",
    measures=[Mean("nc1.cdnv_galanti", towards=0.0)],
    source="Galanti et al. 2021",
    equation="(σ_c² + σ_c′²) / (2‖μ_c − μ_c′‖²)",
)
def cdnv_galanti(pair: Pair) -> Float[Tensor, "R S"]:
    """Class-distance normalized variance with k = 0, which has no unit; 0 at full collapse.

    >>> import collapse, torch
    >>> s = EmbeddingStatistics(classes=torch.arange(2), counts=torch.tensor([3, 3]),
    ...     means=torch.tensor([[0.0], [2.0]]).double(), variances=torch.tensor([1.0, 3.0]).double())
    >>> collapse.measure(s, metrics=["nc1.cdnv_galanti"]).measurements
    {'nc1.cdnv_galanti': 0.5}
    """
    return pair.variance_sum / pair.sqdist / 2


@metric(
    "nc1.trace_ratio",
    needs=["counts", "means", "variances"],
    towards=0.0,
    source="Tirer et al. 2023",
    equation="tr Σ_W / tr Σ_B",
)
def trace_ratio(s: EmbeddingStatistics) -> Tensor:
    """Within-class over between-class variance: Σ_W pooled over samples, Σ_B over unweighted centred means.

    >>> s = EmbeddingStatistics(classes=torch.arange(2), counts=torch.tensor([3, 1]),
    ...     means=torch.tensor([[0.0], [2.0]]).double(), variances=torch.tensor([2.0, 0.0]).double())
    >>> float(trace_ratio(s))
    1.5
    """
    return (s.counts * s.variances).sum() / s.counts.sum() / mean_sqnorm(s)


@metric(
    "nc1.covariance_ratio",
    needs=["means", "covariance"],
    towards=0.0,
    source="Papyan, Han & Donoho 2020",
    equation="tr(Σ_W Σ_B⁺) / C",
    version=2,
)
def covariance_ratio(s: EmbeddingStatistics) -> Noted | float:
    """Within-class covariance against the pseudo-inverse of the between-class covariance, no unit; 0 at full collapse.

    The pseudo-inverse drops eigenvalues of Σ_B of at most d·ε·λ_max, and directions in which the means differ by less
    than the rounding of the embeddings, 2⁻²²·max‖μ_c‖. A final LayerNorm leaves such a direction, which would be
    exactly zero only in float64. A note gives the remaining rank.

    >>> s = EmbeddingStatistics(classes=torch.arange(2), counts=torch.tensor([3, 3]),
    ...     means=torch.tensor([[0.0], [2.0]]).double(), variances=torch.tensor([2.0, 2.0]).double(),
    ...     extra={"covariance": {"scatter": torch.tensor([[12.0]]).double(), "samples": torch.tensor([6])}})
    >>> covariance_ratio(s).value
    1.0
    """
    if s.left_out:
        return Noted(None, "the pooled covariance was collected over all classes: measure all of them")
    between_dd = s.centred_means.T @ s.centred_means / s.n_classes
    values, vectors = torch.linalg.eigh(between_dd)
    rounding = _ROUNDING.get(s.dtype, _ROUNDING["float32"]) * s.means.norm(dim=1).max()
    kept = values > torch.maximum(s.dim * torch.finfo(values.dtype).eps * values[-1], rounding.square())
    if not kept.any():
        return Noted(None, "the class means do not differ by more than the embeddings' rounding")
    # tr(Σ_W V Λ⁻¹ Vᵀ) depends only on the diagonal of Vᵀ Σ_W V
    within = (vectors[:, kept] * (within_class_covariance(s) @ vectors[:, kept])).sum(dim=0)
    found = float((within / values[kept]).sum() / s.n_classes)
    remark = f"the between-class covariance has rank {int(kept.sum())} of d = {s.dim}"
    smallest = float(values[kept].min() / values[-1])
    digits = int(-math.log10(s.dim * torch.finfo(values.dtype).eps / smallest))
    if digits < _DIGITS:  # both covariances are rounded by ε times their largest eigenvalue
        remark += f"; the smallest eigenvalue kept is {smallest:.0e} of the largest: only {digits} digits are sure"
    return Noted(found, remark)


@metric(
    "nc1.cdnv_ratio",
    needs=["means", "variances"],
    towards=0.0,
    source="ratio of means, after Galanti et al. 2021",
    equation="mean σ_c² / mean ‖μ_c − μ_c′‖²",
)
def cdnv_ratio(s: EmbeddingStatistics) -> Noted | float:
    """Mean variance over the mean squared distance of class means (k = 0), no unit; 0 at full collapse.

    >>> s = EmbeddingStatistics(classes=torch.arange(2), counts=torch.tensor([3, 3]),
    ...     means=torch.tensor([[0.0], [4.0]]).double(), variances=torch.tensor([1.0, 5.0]).double())
    >>> cdnv_ratio(s)  # 3 / 16
    0.1875
    """
    return ratio(plug_in(s), _cdnv_ratio)


@metric(
    "nc1.cdnv_ratio_debiased",
    needs=["counts", "means", "variances"],
    towards=0.0,
    headline=True,
    source="ratio of unbiased means, after Galanti et al. 2021",
    equation="mean σ̃_c² / mean D̃",
)
def debiased_cdnv_ratio(s: EmbeddingStatistics) -> Noted | float:
    """Variance over squared distance (k = 0), both without the bias of few samples; no unit; 0 at full collapse.

    >>> s = EmbeddingStatistics(classes=torch.arange(2), counts=torch.tensor([5, 5]),
    ...     means=torch.tensor([[0.0], [4.0]]).double(), variances=torch.tensor([2.0, 6.0]).double())
    >>> debiased_cdnv_ratio(s)  # 5 / (16 − 2); of the biased numbers 4 / 16
    0.35714285714285715
    """
    return ratio(debiased(s), _cdnv_ratio)


def _cdnv_ratio(of: Estimates) -> float:
    return float(of.variances.mean()) / of.sqdist


@metric(
    "nc1.cdnv_k2_ratio",
    needs=["means", "variances"],
    towards=0.0,
    scale=-2.0,
    source="ratio of means, after Wu & Papyan 2024, Eq. 4",
    equation="mean σ_c² / (mean ‖μ_c − μ_c′‖²)²",
)
def cdnv_k2_ratio(s: EmbeddingStatistics) -> Noted | float:
    """Mean variance over the squared mean squared distance (k = 2), one over squared units of h; 0 at full collapse.

    >>> s = EmbeddingStatistics(classes=torch.arange(2), counts=torch.tensor([3, 3]),
    ...     means=torch.tensor([[0.0], [4.0]]).double(), variances=torch.tensor([3.0, 5.0]).double())
    >>> cdnv_k2_ratio(s)  # 4 / 16²
    0.015625
    """
    return ratio(plug_in(s), _cdnv_k2_ratio)


@metric(
    "nc1.cdnv_k2_ratio_debiased",
    needs=["counts", "means", "variances"],
    towards=0.0,
    scale=-2.0,
    source="ratio of unbiased means, after Wu & Papyan 2024, Eq. 4",
    equation="mean σ̃_c² / (mean D̃)²",
)
def debiased_cdnv_k2_ratio(s: EmbeddingStatistics) -> Noted | float:
    """The same without the bias of few samples, one over squared units of h; 0 at full collapse.

    >>> s = EmbeddingStatistics(classes=torch.arange(2), counts=torch.tensor([5, 5]),
    ...     means=torch.tensor([[0.0], [4.0]]).double(), variances=torch.tensor([2.0, 6.0]).double())
    >>> round(debiased_cdnv_k2_ratio(s), 6)  # 5 / 14²
    0.02551
    """
    return ratio(debiased(s), _cdnv_k2_ratio)


def _cdnv_k2_ratio(of: Estimates) -> float:
    return float(of.variances.mean()) / of.sqdist**2


@metric(
    "nc1.trace_ratio_debiased",
    needs=["counts", "means", "variances"],
    towards=0.0,
    source="ratio of unbiased traces, after Tirer et al. 2023",
    equation="(Σ_c N_c σ̃_c² / N) / mean ñ_c²",
    version=2,
)
def debiased_trace_ratio(s: EmbeddingStatistics) -> Noted | float:
    """Within-class over between-class variance, both without the bias of few samples; no unit; 0 at full collapse.

    >>> s = EmbeddingStatistics(classes=torch.arange(2), counts=torch.tensor([5, 5]),
    ...     means=torch.tensor([[0.0], [4.0]]).double(), variances=torch.tensor([2.0, 6.0]).double())
    >>> round(debiased_trace_ratio(s), 6)  # 5 / (4 − 2 / 4)
    1.428571
    """
    return ratio(debiased(s), lambda of: float((of.s.counts * of.variances).sum() / of.s.counts.sum()) / of.sqnorm)


@hookimpl
def collapse_metrics() -> list[object]:
    """The metrics of this file; tables show the headlines in this order."""
    ratios = [debiased_cdnv_ratio, cdnv_ratio, debiased_cdnv_k2_ratio, cdnv_k2_ratio]
    return [*ratios, cdnv, cdnv_galanti, trace_ratio, debiased_trace_ratio, covariance_ratio]
