"""NC3, self-duality: each classifier row aligns with its centred class mean. UNC3: all rows align equally.

The debiased metric uses ñ_c², the unbiased estimate of the squared norm of a centred class mean (see debiasing.py).
"""

from torch import Tensor

from collapse import CoV, Mean, Noted, Std, class_metric, metric, row_cosine
from collapse.numerics.statistics import unit_rows
from collapse_metrics.debiasing import UNRESOLVED, Estimates
from collapse_metrics.debiasing import resolved as resolved  # the name of a parameter below
from collapse_metrics.nc2 import etf_distance, least_etf_error


@class_metric(
    Mean("nc3.self_duality", towards=1, headline=True),
    Std("nc3.self_duality_std", towards=0),
    CoV("unc3.uniform_duality", towards=0, headline=True),
)
def duality_cosines(classifier: Tensor, centred_means: Tensor) -> Tensor:
    """Cosine of each classifier row with its centred class mean; 1 at full collapse.

    Classes whose row or centred mean is zero are excluded.

    Equation: cos(w_c, μ_c − μ̄)
    Source: Wu & Papyan 2024, Eq. 8 (whose μ_c′ is a misprint for μ_c); UNC3: §3.6

    >>> value(duality_cosines, statistics_of([[-1.0], [1.0]], [[-3.0], [3.0]])).tolist()
    [1.0, 1.0]
    """
    return row_cosine(classifier, centred_means)


@class_metric(
    Mean("nc3.self_duality_centred", towards=1),
    Std("nc3.self_duality_centred_std", towards=0),
    CoV("unc3.uniform_duality_centred", towards=0),
)
def centred_duality_cosines(centred_rows: Tensor, centred_means: Tensor) -> Tensor:
    """Cosine of each centred row w_c − w̄ with its centred class mean; softmax does not depend on the mean row w̄.

    Equation: cos(w_c − w̄, μ_c − μ̄)
    Source: Wu & Papyan 2024, Eq. 8, with the rows centred

    >>> value(centred_duality_cosines, statistics_of([[-1.0], [1.0]], [[4.0], [6.0]])).tolist()
    [1.0, 1.0]
    """
    return row_cosine(centred_rows, centred_means)


@class_metric(Mean("nc3.dot"), Std("nc3.dot_std"), scale=1)
def duality_dots(classifier: Tensor, centred_means: Tensor) -> Tensor:
    """Inner product of each classifier row with its centred class mean, in logits (nats).

    Equation: ⟨w_c, μ_c − μ̄⟩
    Source: Wu & Papyan 2024, §3.6

    >>> value(duality_dots, statistics_of([[-1.0], [1.0]], [[-3.0], [3.0]])).tolist()
    [3.0, 3.0]
    """
    return (classifier * centred_means).sum(dim=1)


@class_metric(Mean("nc3.duality_distance", towards=0), Std("nc3.duality_distance_std", towards=0))
def duality_distances(classifier: Tensor, unit_means: Tensor) -> Tensor:
    """Distance between each unit classifier row and its unit centred class mean, in [0, 2]; 0 at full collapse.

    Equation: ‖w_c/‖w_c‖ − u_c‖
    Source: Wu & Papyan 2024, Eq. 11

    >>> value(duality_distances, statistics_of([[-1.0], [1.0]], [[1.0], [-1.0]])).tolist()
    [2.0, 2.0]
    """
    return (unit_rows(classifier) - unit_means).norm(dim=1)


@metric("nc3.duality_error", towards=0, reachable=least_etf_error)
def duality_error(classifier: Tensor, centred_means: Tensor) -> float:
    """Distance of the normalized W Mᵀ to the Gram matrix of a simplex ETF, E = I − 11ᵀ/C; 0 at full collapse.

    Equation: ‖WMᵀ/‖WMᵀ‖_F − E/‖E‖_F‖_F
    Source: Kothapalli 2023

    >>> import torch
    >>> round(value(duality_error, statistics_of(torch.eye(3), torch.eye(3) - 1 / 3)), 7)
    0.0
    """
    return etf_distance(classifier, centred_means)


@metric("nc3.duality_error_centred", towards=0, reachable=least_etf_error)
def centred_duality_error(centred_rows: Tensor, centred_means: Tensor) -> float:
    """Distance of the normalized W Mᵀ, with centred rows, to the Gram matrix of a simplex ETF; 0 at full collapse.

    Equation: ‖(W − w̄)Mᵀ/‖(W − w̄)Mᵀ‖_F − E/‖E‖_F‖_F
    Source: Kothapalli 2023, with the rows centred

    >>> import torch
    >>> round(value(centred_duality_error, statistics_of(torch.eye(3), torch.eye(3) + 5)), 7)
    0.0
    """
    return etf_distance(centred_rows, centred_means)


@metric("nc3.self_duality_ratio", towards=1)
def self_duality_ratio(classifier: Tensor, centred_means: Tensor, norms: Tensor) -> Noted | Tensor:
    """Cosine between the matrices of unit classifier rows and of centred class means; 1 at full collapse.

    Equation: mean ⟨w_c/‖w_c‖, μ_c − μ̄⟩ / √(mean ‖μ_c − μ̄‖²)
    Source: ratio of means, after Wu & Papyan 2024, Eq. 8

    >>> value(self_duality_ratio, statistics_of([[-1.0], [1.0]], [[-3.0], [3.0]]))
    1.0
    """
    return _cosine_of_matrices(classifier, centred_means, norms.square())


@metric("nc3.self_duality_ratio_debiased", towards=1)
def debiased_self_duality_ratio(resolved: Estimates, classifier: Tensor) -> Noted | Tensor:
    """nc3.self_duality_ratio without the noise of the class means; 1 at full collapse.

    Equation: mean ⟨w_c/‖w_c‖, μ_c − μ̄⟩ / √(mean ñ_c²)
    Source: ratio of unbiased means, after Wu & Papyan 2024, Eq. 8

    >>> import dataclasses, torch
    >>> s = two_classes(distance=4, variances=(2, 2), samples=5)
    >>> s = dataclasses.replace(s, classifier=torch.tensor([[-1.0], [1.0]]).double())
    >>> round(value(debiased_self_duality_ratio, s), 6)  # 2 / √(4 − 1 / 4): with so few samples it can exceed 1
    1.032796
    """
    assert resolved.classifier is not None  # the parameter classifier only makes sure that there is one
    return _cosine_of_matrices(resolved.classifier, resolved.means, resolved.sqnorms)


def _cosine_of_matrices(rows_Cd: Tensor, means_Cd: Tensor, sqnorms_C: Tensor) -> Noted | Tensor:
    known = rows_Cd.norm(dim=1) > 0
    square = sqnorms_C[known].mean()
    if square <= 0:
        return UNRESOLVED
    return (unit_rows(rows_Cd[known]) * means_Cd[known]).sum(dim=1).mean() / square.sqrt()
