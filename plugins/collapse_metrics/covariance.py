"""The pooled within-class covariance, a statistic that some forms of NC1 need."""

from typing import ClassVar

import torch
from jaxtyping import Float
from torch import Tensor

from collapse import Batch, CollapseError, EmbeddingStatistics, Noted, State, Statistic, derived

_ROUNDING = 1e-6  # far more than the difference of two float64 sums of the same squares in another order


class WithinClassCovariance(Statistic):
    """Σ_W = Σ_i (h_i − μ_{y_i})(h_i − μ_{y_i})ᵀ / N, shape (d, d), squared units of h.

    It is stored as the undivided sum (``scatter``) and N (``samples``), so that merging is exact.
    """

    name = "covariance"
    state: ClassVar = {"scatter": State(("d", "d"), reduction="chan"), "samples": State((1,), dtype=torch.int64)}
    scatter: Tensor
    samples: Tensor

    def update(self, batch: Batch) -> None:
        """Outer products of a batch's deviations from its own class means."""
        self.scatter = batch.deviations.T @ batch.deviations
        self.samples = batch.counts.sum().reshape(1)


@derived(needs=[WithinClassCovariance.name])
def within_class_covariance(s: EmbeddingStatistics) -> Float[Tensor, "d d"] | Noted:
    """Σ_W of a store that holds it, shape (d, d), squared units of h.

    Its trace is the samples' mean squared distance to their class means, which also follows from the variances.

    Raises:
        CollapseError: It is not symmetric, or was computed from other samples than the class variances.
    """
    if s.left_out:
        return Noted(None, "the pooled covariance was collected over all classes: measure all of them")
    pooled = s.statistic(WithinClassCovariance.name)
    scatter, samples = pooled["scatter"], int(pooled["samples"])
    trace, expected = float(scatter.trace()), float(s.counts.double() @ s.variances)
    whole = samples == int(s.counts.sum()) and abs(trace - expected) <= _ROUNDING * expected
    symmetric = float((scatter - scatter.T).abs().max()) <= _ROUNDING * trace
    if not (whole and symmetric and float(scatter.diagonal().min()) >= 0):
        raise CollapseError("the stored covariance contradicts the class variances: collect again (--recollect)")
    return scatter / samples
