"""NC3, self-duality: each classifier row aligns with its centred class mean. UNC3: all classes equally so."""

from jaxtyping import Float
from torch import Tensor

from collapse import CoV, Mean, Noted, Std, class_metric, cosine, derived, metric
from collapse.numerics.statistics import ROUNDING, unit_rows
from collapse_metrics.debiasing import UNRESOLVED, Estimates, ratio
from collapse_metrics.debiasing import debiased as debiased
from collapse_metrics.debiasing import plug_in as plug_in
from collapse_metrics.nc2 import etf_distance, least_etf_error


@class_metric(
    Mean("nc3.self_duality", towards=1.0, headline=True),
    Std("nc3.self_duality_std", towards=0.0),
    CoV("unc3.uniform_duality", towards=0.0, headline=True),
    over="dual_directions",
)
def duality_cosines(classifier: Tensor, centred_means: Tensor) -> Float[Tensor, " C"]:
    """Cosine of each classifier row with its centred class mean.

    Equation: cos(w_c, μ_c − μ̄)
    Source: Wu & Papyan 2024, Eq. 8 (whose μ_c′ is a misprint for μ_c); UNC3: §3.6

    >>> import torch
    >>> means = torch.tensor([[1.0, 0.0], [-1.0, 0.0]])
    >>> duality_cosines(3 * means, means).tolist()
    [1.0, 1.0]
    """
    return cosine(classifier, centred_means)


@derived
def centred_rows(classifier: Tensor) -> Float[Tensor, "C d"]:
    """Classifier rows minus their mean over the classes kept; 0 where a row equals it up to rounding."""
    centre = classifier.mean(dim=0)
    rows_Cd = classifier - centre
    rounding_C = ROUNDING * (classifier.norm(dim=1) + centre.norm())
    rows_Cd[rows_Cd.norm(dim=1) <= rounding_C] = 0
    return rows_Cd


@class_metric(
    Mean("nc3.self_duality_centred", towards=1.0),
    Std("nc3.self_duality_centred_std", towards=0.0),
    CoV("unc3.uniform_duality_centred", towards=0.0),
    over="dual_directions",
)
def centred_duality_cosines(centred_rows: Tensor, centred_means: Tensor) -> Float[Tensor, " C"]:
    """The same with w̄, the mean row over the classes kept, taken off: softmax does not see w̄, the cosine does.

    Equation: cos(w_c − w̄, μ_c − μ̄)
    Source: as Eq. 8, with the rows centred

    >>> import torch
    >>> means = torch.tensor([[1.0, 0.0], [-1.0, 0.0]])
    >>> centred_duality_cosines(means, means).tolist()
    [1.0, 1.0]
    """
    return cosine(centred_rows, centred_means)


@class_metric(Mean("nc3.dot"), Std("nc3.dot_std"), scale=1.0)
def duality_dots(classifier: Tensor, centred_means: Tensor) -> Float[Tensor, " C"]:
    """Inner product of each classifier row with its centred class mean, in logits (nats).

    Equation: ⟨w_c, μ_c − μ̄⟩
    Source: Wu & Papyan 2024, §3.6

    >>> import torch
    >>> means = torch.tensor([[1.0, 0.0], [-1.0, 0.0]])
    >>> duality_dots(3 * means, means).tolist()
    [3.0, 3.0]
    """
    return (classifier * centred_means).sum(dim=1)


@class_metric(
    Mean("nc3.duality_distance", towards=0.0),
    Std("nc3.duality_distance_std", towards=0.0),
    over="dual_directions",
)
def duality_distances(classifier: Tensor, centred_means: Tensor, norms: Tensor) -> Float[Tensor, " C"]:
    """Distance between each unit classifier row and its unit centred class mean, in [0, 2].

    Equation: ‖w_c/‖w_c‖ − u_c‖
    Source: Wu & Papyan 2024, Eq. 11

    >>> import torch
    >>> means = torch.tensor([[1.0, 0.0], [-1.0, 0.0]])
    >>> duality_distances(-means, means, torch.ones(2)).tolist()
    [2.0, 2.0]
    """
    return (unit_rows(classifier) - centred_means / norms.unsqueeze(1)).norm(dim=1)


@metric("nc3.duality_error", towards=0.0, reachable=least_etf_error)
def duality_error(classifier: Tensor, centred_means: Tensor) -> Noted | float:
    """Distance of the normalized W Mᵀ to a simplex ETF's Gram matrix, E = I − 11ᵀ/C.

    Equation: ‖WMᵀ/‖WMᵀ‖_F − E/‖E‖_F‖_F
    Source: Kothapalli 2023

    >>> import torch
    >>> round(duality_error(torch.eye(3) - 1 / 3, torch.eye(3) - 1 / 3), 3)
    0.0
    """
    return etf_distance(classifier, centred_means, "W Mᵀ")


@metric("nc3.duality_error_centred", towards=0.0, reachable=least_etf_error)
def centred_duality_error(centred_rows: Tensor, centred_means: Tensor) -> Noted | float:
    """The same with the classifier's rows centred.

    Equation: ‖(W − w̄)Mᵀ/‖(W − w̄)Mᵀ‖_F − E/‖E‖_F‖_F
    Source: as the duality error, with the rows centred

    >>> import torch
    >>> round(centred_duality_error(torch.eye(3) - 1 / 3, torch.eye(3) - 1 / 3), 3)
    0.0
    """
    return etf_distance(centred_rows, centred_means, "(W − w̄)Mᵀ")


@metric("nc3.self_duality_ratio", needs=["means", "classifier"], towards=1.0)
def self_duality_ratio(plug_in: Estimates) -> Noted | float:
    """Cosine of the matrix of unit classifier rows with that of centred class means; 1 at full collapse.

    Equation: mean ⟨w_c/‖w_c‖, μ_c − μ̄⟩ / √(mean ‖μ_c − μ̄‖²)
    Source: ratio of means, after Wu & Papyan 2024, Eq. 8

    >>> import torch
    >>> from collapse.testing import statistics_of, value
    >>> means = torch.tensor([[1.0, 0.0], [-1.0, 0.0]]).double()
    >>> value(self_duality_ratio, statistics_of(means, 3 * means))
    1.0
    """
    return ratio(plug_in, _cosine_of_matrices)


@metric("nc3.self_duality_ratio_debiased", needs=["counts", "means", "variances", "classifier"], towards=1.0)
def debiased_self_duality_ratio(debiased: Estimates) -> Noted | float:
    """The same without the noise of the class means; 1 at full collapse.

    Equation: mean ⟨w_c/‖w_c‖, μ_c − μ̄⟩ / √(mean ñ_c²)
    Source: ratio of unbiased means, after Wu & Papyan 2024, Eq. 8

    >>> import torch
    >>> from collapse import EmbeddingStatistics
    >>> from collapse.testing import value
    >>> s = EmbeddingStatistics(classes=torch.arange(2), counts=torch.tensor([5, 5]),
    ...     means=torch.tensor([[0.0], [4.0]]).double(), variances=torch.tensor([2.0, 2.0]).double(),
    ...     classifier=torch.tensor([[-1.0], [1.0]]).double())
    >>> round(value(debiased_self_duality_ratio, s), 6)  # 2 / √(4 − 1 / 4): with so few samples it can exceed 1
    1.032796
    """
    return ratio(debiased, _cosine_of_matrices)


def _cosine_of_matrices(of: Estimates) -> Noted | float:
    assert of.s.classifier is not None  # declared in needs
    known = of.s.classifier.norm(dim=1) > 0
    if not bool(known.any()):
        return Noted(None, "all classifier rows are zero")
    square = float(of.sqnorms[known].mean())
    if square <= 0:
        return UNRESOLVED
    dots = (unit_rows(of.s.classifier[known]) * of.s.centred_means[known]).sum(dim=1)
    return float(dots.mean()) / square**0.5
