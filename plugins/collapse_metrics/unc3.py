"""UNC3, uniform duality: every class is as well aligned with its classifier row as any other."""

from jaxtyping import Float
from torch import Tensor

from collapse import CoV, EmbeddingStatistics, class_metric, cosine, hookimpl


@class_metric(
    needs=["means", "classifier"],
    over="dual_directions",
    measures=[CoV("unc3.uniform_duality", towards=0.0)],
    source="Wu & Papyan 2024, §3.5, over the cosines of Eq. 8",
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
    assert s.classifier is not None  # declared in needs
    return cosine(s.classifier, s.centred_means)


@hookimpl
def collapse_metrics() -> list[object]:
    """The metric of this file."""
    return [duality_cosines]
