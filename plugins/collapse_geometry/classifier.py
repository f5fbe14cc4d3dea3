"""The classifier's rows: their own geometry, their margins, and their span against that of the class means."""

import torch
from jaxtyping import Float
from torch import Tensor

from collapse import CoV, Mean, Min, Noted, Std, class_metric, derived, metric, pair_metric
from collapse.numerics.statistics import unit_rows

# functions below take these values as parameters
from collapse_geometry.spectra import classifier_spectrum as classifier_spectrum
from collapse_metrics.nc2 import etf_distance, least_etf_error, simplex_interference
from collapse_metrics.spectrum import Spectrum
from collapse_metrics.spectrum import between_spectrum as between_spectrum

COLLAPSE_OPT_IN = True

_BLOCK = 1 << 22  # cosines that are computed at once


@metric("geometry.classifier.etf_error", towards=0, reachable=least_etf_error)
def classifier_etf_error(classifier: Tensor) -> float:
    """Distance of the classifier's normalized Gram matrix to that of a simplex ETF, at most √2; 0 at full collapse.

    Equation: ‖WWᵀ/‖WWᵀ‖_F − E/‖E‖_F‖_F, E = I − 11ᵀ/C
    Source: Zhu et al. 2021

    >>> round(value(classifier_etf_error, statistics_of(torch.eye(3), torch.eye(3) - 1 / 3)), 7)
    0.0
    """
    return etf_distance(classifier, classifier)


@class_metric(CoV("geometry.classifier.norm_cov", towards=0))
def classifier_norms(classifier: Tensor) -> Tensor:
    """Norms of the classifier's rows; their CoV is the equinormness of the classifier, 0 at full collapse.

    Equation: ‖w_c‖
    Source: Papyan, Han & Donoho 2020, Fig. 2

    >>> value(classifier_norms, statistics_of([[-1.0], [1.0]], [[-3.0], [2.0]])).tolist()
    [3.0, 2.0]
    """
    return classifier.norm(dim=1)


@derived
def unit_classifier(classifier: Tensor) -> Tensor:
    """w_c/‖w_c‖, NaN for a row of zeros, shape (C, d)."""
    return unit_rows(classifier)


@pair_metric(
    Mean("geometry.classifier.cosine", towards=simplex_interference),
    Std("geometry.classifier.cosine_std", towards=0),
)
def classifier_cosines(row_unit_classifier: Tensor, column_unit_classifier: Tensor) -> Tensor:
    """Cosine of two rows of the classifier; their std is the equiangularity of the classifier, 0 at full collapse.

    Pairs with a row of zeros are excluded.

    Equation: cos(w_c, w_c′)
    Source: Papyan, Han & Donoho 2020, Figs. 3 and 4

    >>> float(value(classifier_cosines, statistics_of([[-1.0], [1.0]], [[-3.0], [2.0]]))[0, 1])
    -1.0
    """
    return row_unit_classifier @ column_unit_classifier.T


@class_metric(
    Mean("geometry.margin", towards=lambda C: C / (C - 1)), Min("geometry.margin_min", towards=lambda C: C / (C - 1))
)
def margins(unit_classifier: Tensor, unit_means: Tensor) -> Tensor:
    """One-vs-rest margin: cosine of a centred class mean with its own row, minus the largest cosine with another row.

    It is negative if another row has a larger cosine. Classes where the mean or the row is zero are excluded.

    Equation: cos(w_c, μ_c − μ̄) − max_c′ cos(w_c′, μ_c − μ̄)
    Source: Jiang et al. 2023, of the class means

    >>> value(margins, statistics_of([[-1.0], [1.0]], [[-3.0], [2.0]])).tolist()
    [2.0, 2.0]
    """
    found = []
    for rows in torch.arange(len(unit_means), device=unit_means.device).split(max(1, _BLOCK // len(unit_means))):
        cosines = unit_means[rows] @ unit_classifier.T
        own = cosines.gather(1, rows.unsqueeze(1)).squeeze(1)
        others = cosines.nan_to_num(nan=-torch.inf).scatter(1, rows.unsqueeze(1), -torch.inf)
        found.append(own - others.amax(dim=1))
    return torch.cat(found)


@class_metric(Std("geometry.bias_collapse", towards=0), scale=None, translation=False)
def centre_logits(classifier: Tensor, global_mean: Tensor, bias: Tensor | None = None) -> Tensor:
    """Logit of each class at the global mean, in nats; at full collapse all are equal, so their std is 0.

    Equation: ⟨w_c, μ̄⟩ + b_c
    Source: Zhu et al. 2021; their ‖Wμ̄ + b‖ also includes the mean logit, which softmax ignores

    >>> value(centre_logits, statistics_of([[1.0], [3.0]], [[-1.0], [2.0]])).tolist()
    [-2.0, 4.0]
    """
    return classifier @ global_mean + (0 if bias is None else bias)


@derived
def smaller_and_larger(
    classifier_spectrum: Spectrum, between_spectrum: Spectrum
) -> tuple[Float[Tensor, "d r"], Float[Tensor, "d s"]] | Noted:
    """Orthonormal bases of the spans of the classifier rows and of the centred means; the smaller span comes first."""
    small, large = sorted((classifier_spectrum.vectors, between_spectrum.vectors), key=lambda basis: basis.shape[1])
    d, fewer = small.shape
    remark = f"classifier rows and centred means span all d = {d} dimensions, so that every angle is 0"
    return Noted((small, large), remark) if fewer == d else (small, large)


@metric("geometry.span_overlap", towards=1)
def span_overlap(smaller_and_larger: tuple[Tensor, Tensor]) -> Tensor:
    """Mean squared cosine of the principal angles between the spans of W and of the centred means; 1 at full collapse.

    Equation: mean cos²θ_i
    Source: principal angles: Björck & Golub 1973

    >>> round(value(span_overlap, statistics_of([[-1.0, 0.0], [1.0, 0.0]], [[-1.0, -1.0], [1.0, 1.0]])), 12)
    0.5
    """
    small, large = smaller_and_larger
    return (large.T @ small).square().sum() / small.shape[1]


@metric("geometry.span_angle", towards=0)
def span_angle(smaller_and_larger: tuple[Tensor, Tensor]) -> Tensor:
    """Largest principal angle between the spans of W and of the centred means, in radians; 0 at full collapse.

    Equation: max θ_i
    Source: Björck & Golub 1973

    >>> round(value(span_angle, statistics_of([[-1.0, 0.0], [1.0, 0.0]], [[-1.0, -1.0], [1.0, 1.0]])), 6)  # π/4
    0.785398
    """
    small, large = smaller_and_larger
    inside = large.T @ small
    sine, cosine = torch.linalg.matrix_norm(small - large @ inside, 2), torch.linalg.svdvals(inside)[-1]
    return torch.atan2(sine, cosine)
