"""The pooled within-class covariance, a statistic that some forms of NC1 need."""

from collections.abc import Mapping
from typing import ClassVar

import torch
from jaxtyping import Float
from torch import Tensor

from collapse import Batch, CollapseError, State, Statistic, derived

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


@derived
def within_covariance(
    covariance: Mapping[str, Tensor], counts: Tensor, variances: Tensor | None = None
) -> Float[Tensor, "d d"]:
    """Σ_W, shape (d, d), squared units of h.

    The trace must equal the samples' mean squared distance to their class means, computed from the variances. The
    variances are only read for this check, so remarks on them are not inherited.

    Raises:
        CollapseError: It is not symmetric, or was computed from other samples than the class variances.
    """
    scatter, samples = covariance["scatter"], int(covariance["samples"])
    trace = float(scatter.trace())
    expected = trace if variances is None else float(counts.double() @ variances)
    whole = samples == int(counts.sum()) and abs(trace - expected) <= _ROUNDING * expected
    symmetric = float((scatter - scatter.T).abs().max()) <= _ROUNDING * trace
    if not (whole and symmetric and float(scatter.diagonal().min()) >= 0):
        raise CollapseError("the stored covariance contradicts the class variances: collect again (--recollect)")
    return scatter / samples
