"""The pooled within-class covariance, a statistic that some NC1 metrics need."""

from collections.abc import Mapping
from typing import ClassVar

import torch
from jaxtyping import Float
from torch import Tensor

from collapse import Batch, State, Statistic, derived
from collapse.core.gram import gram


class WithinClassCovariance(Statistic):
    """Within-class covariance Σ_W = Σ_i (h_i − μ_{y_i})(h_i − μ_{y_i})ᵀ / N, shape (d, d), squared units of h.

    The sum (``scatter``) and N (``samples``) are stored separately, so that merging is exact.
    """

    name = "covariance"
    state: ClassVar = {"scatter": State(("d", "d"), reduction="chan"), "samples": State((1,), dtype=torch.int64)}
    scatter: Tensor
    samples: Tensor

    def update(self, batch: Batch) -> None:
        self.scatter = gram(batch.deviations)
        self.samples = batch.counts.sum().reshape(1)


@derived
def within_covariance(covariance: Mapping[str, Tensor]) -> Float[Tensor, "d d"]:
    """Within-class covariance Σ_W, shape (d, d), squared units of h."""
    return covariance["scatter"] / covariance["samples"]


@derived
def second_moment(within_covariance: Tensor, means: Tensor, counts: Tensor) -> Float[Tensor, "d d"]:
    """Mean of h hᵀ over all samples, not centred: Σ_W + Σ_c N_c μ_c μ_cᵀ / N, shape (d, d), squared units of h."""
    weighted = means * (counts.to(means) / counts.sum()).unsqueeze(1)
    return within_covariance + weighted.T @ means
