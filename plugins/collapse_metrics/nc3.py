"""NC3, self-duality: each classifier row aligns with its centred class mean. UNC3: all classes equally so."""

from jaxtyping import Float
from torch import Tensor

from collapse import CoV, EmbeddingStatistics, Mean, Noted, Std, class_metric, cosine, hookimpl, metric
from collapse.numerics.statistics import ROUNDING, unit_rows
from collapse_metrics.debiasing import UNRESOLVED, Estimates, debiased, plug_in, ratio
from collapse_metrics.nc2 import etf_distance, least_etf_error


@class_metric(
    needs=["means", "classifier"],
    over="dual_directions",
    measures=[
        Mean("nc3.self_duality", towards=1.0, headline=True),
        Std("nc3.self_duality_std", towards=0.0),
        CoV("unc3.uniform_duality", towards=0.0, headline=True),
    ],
    source="Wu & Papyan 2024, Eq. 8 (whose μ_c′ is a misprint for μ_c); UNC3: §3.6",
    equation="cos(w_c, μ_c − μ̄)",
)
def duality_cosines(s: EmbeddingStatistics) -> Float[Tensor, " C"]:
    """Cosine of each classifier row with its centred class mean.

    >>> import torch
    >>> from collapse.testing import statistics_of
    >>> means = torch.tensor([[1.0, 0.0], [-1.0, 0.0]]).double()
    >>> s = statistics_of(means, 3 * means)
    >>> duality_cosines(s).tolist()
    [1.0, 1.0]
    """
    assert s.classifier is not None  # declared in needs
    return cosine(s.classifier, s.centred_means)


@class_metric(
    needs=["means", "classifier"],
    over="dual_directions",
    measures=[
        Mean("nc3.self_duality_centred", towards=1.0),
        Std("nc3.self_duality_centred_std", towards=0.0),
        CoV("unc3.uniform_duality_centred", towards=0.0),
    ],
    source="as Eq. 8, with the rows centred",
    equation="cos(w_c − w̄, μ_c − μ̄)",
)
def centred_duality_cosines(s: EmbeddingStatistics) -> Float[Tensor, " C"]:
    """The same with w̄, the mean row over the classes kept, taken off: softmax does not see w̄, the cosine does.

    >>> import torch
    >>> from collapse.testing import statistics_of
    >>> means = torch.tensor([[1.0, 0.0], [-1.0, 0.0]]).double()
    >>> s = statistics_of(means, means + 5)
    >>> centred_duality_cosines(s).tolist()
    [1.0, 1.0]
    """
    return cosine(centred_rows(s), s.centred_means)


def centred_rows(s: EmbeddingStatistics) -> Float[Tensor, "C d"]:
    """Classifier rows minus their mean over the classes kept; 0 where a row equals it up to rounding."""
    assert s.classifier is not None  # declared in needs
    centre = s.classifier.mean(dim=0)
    rows_Cd = s.classifier - centre
    rounding_C = ROUNDING * (s.classifier.norm(dim=1) + centre.norm())
    rows_Cd[rows_Cd.norm(dim=1) <= rounding_C] = 0
    return rows_Cd


@class_metric(
    needs=["means", "classifier"],
    measures=[Mean("nc3.dot"), Std("nc3.dot_std")],
    scale=1.0,
    source="Wu & Papyan 2024, §3.6",
    equation="⟨w_c, μ_c − μ̄⟩",
)
def duality_dots(s: EmbeddingStatistics) -> Float[Tensor, " C"]:
    """Inner product of each classifier row with its centred class mean, in logits (nats).

    >>> import torch
    >>> from collapse.testing import statistics_of
    >>> means = torch.tensor([[1.0, 0.0], [-1.0, 0.0]]).double()
    >>> s = statistics_of(means, 3 * means)
    >>> duality_dots(s).tolist()
    [3.0, 3.0]
    """
    assert s.classifier is not None  # declared in needs
    return (s.classifier * s.centred_means).sum(dim=1)


@class_metric(
    needs=["means", "classifier"],
    over="dual_directions",
    measures=[Mean("nc3.duality_distance", towards=0.0), Std("nc3.duality_distance_std", towards=0.0)],
    source="Wu & Papyan 2024, Eq. 11",
    equation="‖w_c/‖w_c‖ − u_c‖",
)
def duality_distances(s: EmbeddingStatistics) -> Float[Tensor, " C"]:
    """Distance between each unit classifier row and its unit centred class mean, in [0, 2].

    >>> import torch
    >>> from collapse.testing import statistics_of
    >>> means = torch.tensor([[1.0, 0.0], [-1.0, 0.0]]).double()
    >>> s = statistics_of(means, -means)
    >>> duality_distances(s).tolist()
    [2.0, 2.0]
    """
    assert s.classifier is not None  # declared in needs
    return (unit_rows(s.classifier) - s.centred_means / s.norms.unsqueeze(1)).norm(dim=1)


@metric(
    "nc3.duality_error",
    needs=["means", "classifier"],
    towards=0.0,
    reachable=least_etf_error,
    source="Kothapalli 2023",
    equation="‖WMᵀ/‖WMᵀ‖_F − E/‖E‖_F‖_F",
)
def duality_error(s: EmbeddingStatistics) -> Noted | float:
    """Distance of the normalized W Mᵀ to a simplex ETF's Gram matrix, E = I − 11ᵀ/C.

    >>> import torch
    >>> from collapse.testing import statistics_of
    >>> round(duality_error(statistics_of(torch.eye(3), torch.eye(3) - 1 / 3)), 7)
    0.0
    """
    assert s.classifier is not None  # declared in needs
    return etf_distance(s.classifier, s.centred_means, "W Mᵀ")


@metric(
    "nc3.duality_error_centred",
    needs=["means", "classifier"],
    towards=0.0,
    reachable=least_etf_error,
    source="as the duality error, with the rows centred",
    equation="‖(W − w̄)Mᵀ/‖(W − w̄)Mᵀ‖_F − E/‖E‖_F‖_F",
)
def centred_duality_error(s: EmbeddingStatistics) -> Noted | float:
    """The same with the classifier's rows centred.

    >>> import torch
    >>> from collapse.testing import statistics_of
    >>> round(centred_duality_error(statistics_of(torch.eye(3), torch.eye(3) + 5)), 7)
    0.0
    """
    return etf_distance(centred_rows(s), s.centred_means, "(W − w̄)Mᵀ")


@metric(
    "nc3.self_duality_ratio",
    needs=["means", "classifier"],
    towards=1.0,
    source="ratio of means, after Wu & Papyan 2024, Eq. 8",
    equation="mean ⟨w_c/‖w_c‖, μ_c − μ̄⟩ / √(mean ‖μ_c − μ̄‖²)",
)
def self_duality_ratio(s: EmbeddingStatistics) -> Noted | float:
    """Cosine of the matrix of unit classifier rows with that of centred class means; 1 at full collapse.

    >>> import torch
    >>> from collapse.testing import statistics_of
    >>> means = torch.tensor([[1.0, 0.0], [-1.0, 0.0]]).double()
    >>> self_duality_ratio(statistics_of(means, 3 * means))
    1.0
    """
    return ratio(plug_in(s), _cosine_of_matrices)


@metric(
    "nc3.self_duality_ratio_debiased",
    needs=["counts", "means", "variances", "classifier"],
    towards=1.0,
    source="ratio of unbiased means, after Wu & Papyan 2024, Eq. 8",
    equation="mean ⟨w_c/‖w_c‖, μ_c − μ̄⟩ / √(mean ñ_c²)",
)
def debiased_self_duality_ratio(s: EmbeddingStatistics) -> Noted | float:
    """The same without the noise of the class means; 1 at full collapse.

    >>> import torch
    >>> s = EmbeddingStatistics(classes=torch.arange(2), counts=torch.tensor([5, 5]),
    ...     means=torch.tensor([[0.0], [4.0]]).double(), variances=torch.tensor([2.0, 2.0]).double(),
    ...     classifier=torch.tensor([[-1.0], [1.0]]).double())
    >>> round(debiased_self_duality_ratio(s), 6)  # 2 / √(4 − 1 / 4): with so few samples it can exceed 1
    1.032796
    """
    return ratio(debiased(s), _cosine_of_matrices)


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


@hookimpl
def collapse_metrics() -> list[object]:
    """The metrics of this file."""
    cosines = [duality_cosines, centred_duality_cosines]
    of_matrices = [duality_error, centred_duality_error]
    return [*cosines, duality_dots, duality_distances, *of_matrices, self_duality_ratio, debiased_self_duality_ratio]
