"""UNC3, uniform duality: every class is as well aligned with its classifier row as any other.

The cosines are NC3's, measured by how much they vary instead of by their mean.
"""

from jaxtyping import Float
from torch import Tensor

from collapse import CoV, EmbeddingStatistics, class_metric, hookimpl
from collapse_metrics import nc3


@class_metric(
    needs=["means", "classifier"],
    over="dual_directions",
    measures=[CoV("unc3.uniform_duality", towards=0.0, headline=True)],
    source="Wu & Papyan 2024, §3.6, over the cosines of Eq. 8",
    equation="cos(w_c, μ_c − μ̄)",
)
def duality_cosines(s: EmbeddingStatistics) -> Float[Tensor, " C"]:
    """Cosine of each classifier row with its centred class mean; their CoV is 0 at full collapse.

    >>> import torch
    >>> from collapse.testing import statistics_of
    >>> means = torch.tensor([[1.0, 0.0], [-1.0, 0.0]]).double()
    >>> s = statistics_of(means, 2 * means)
    >>> duality_cosines(s).tolist()
    [1.0, 1.0]
    """
    return nc3.duality_cosines(s)


@class_metric(
    needs=["means", "classifier"],
    over="dual_directions",
    measures=[CoV("unc3.uniform_duality_centred", towards=0.0)],
    source="as uniform duality, with the rows centred",
    equation="cos(w_c − w̄, μ_c − μ̄)",
)
def centred_duality_cosines(s: EmbeddingStatistics) -> Float[Tensor, " C"]:
    """The same with w̄, the mean row over the classes kept, taken off.

    >>> import torch
    >>> from collapse.testing import statistics_of
    >>> means = torch.tensor([[1.0, 0.0], [-1.0, 0.0]]).double()
    >>> centred_duality_cosines(statistics_of(means, means + 5)).tolist()
    [1.0, 1.0]
    """
    return nc3.centred_duality_cosines(s)


@hookimpl
def collapse_metrics() -> list[object]:
    """The metrics of this file."""
    return [duality_cosines, centred_duality_cosines]
