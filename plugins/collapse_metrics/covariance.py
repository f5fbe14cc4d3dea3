"""The pooled within-class covariance, a statistic that some forms of NC1 need."""

import torch
from jaxtyping import Float
from torch import Tensor

from collapse import Batch, CollapseError, EmbeddingStatistics, Side, Statistic, hookimpl

_ROUNDING = 1e-6  # two float64 sums of the same squares in another order differ by far less


class WithinClassCovariance(Statistic):
    """Σ_W = Σ_i (h_i − μ_{y_i})(h_i − μ_{y_i})ᵀ / N, shape (d, d), squared units of h.

    Kept as the sum (``scatter``, not divided) and N (``samples``), so that merging loses nothing.
    """

    name = "covariance"

    def __init__(self) -> None:
        self.scatter: Tensor = torch.zeros(0, 0, dtype=torch.float64)
        self.samples: Tensor = torch.zeros(1, dtype=torch.int64)

    def update(self, batch: Batch) -> None:
        """Outer products of a batch's deviations from its own class means."""
        self.scatter = batch.deviations.T @ batch.deviations
        self.samples = batch.counts.sum().reshape(1)

    def merge(self, other: Statistic, mine: Side, theirs: Side) -> None:
        """Chan et al. 1983, for matrices: add both, and the shift between the two sides' class means."""
        assert isinstance(other, WithinClassCovariance)
        weights_K = mine.counts * (theirs.counts / (mine.counts + theirs.counts))
        shift_Kd = (theirs.means - mine.means) * weights_K.sqrt().unsqueeze(1)
        if not len(self.scatter):
            self.scatter = torch.zeros_like(other.scatter)
        self.scatter = self.scatter + other.scatter
        self.scatter.addmm_(shift_Kd.T, shift_Kd)
        self.samples = self.samples.to(other.samples.device) + other.samples


def within_class_covariance(s: EmbeddingStatistics) -> Float[Tensor, "d d"]:
    """Σ_W of a store that holds it, shape (d, d), squared units of h.

    Its trace is the samples' mean squared distance to their class means, which the variances give as well.

    Raises:
        CollapseError: It is not symmetric, or not of the samples that the class variances are of.
    """
    pooled = s.statistic(WithinClassCovariance.name)
    scatter, samples = pooled["scatter"], int(pooled["samples"])
    trace, expected = float(scatter.trace()), float(s.counts.double() @ s.variances)
    whole = samples == int(s.counts.sum()) and abs(trace - expected) <= _ROUNDING * expected
    symmetric = float((scatter - scatter.T).abs().max()) <= _ROUNDING * trace
    if not (whole and symmetric and float(scatter.diagonal().min()) >= 0):
        raise CollapseError("the stored covariance contradicts the class variances: collect again (--recollect)")
    return scatter / samples


@hookimpl
def collapse_statistics() -> list[type[Statistic]]:
    """The statistic of this file."""
    return [WithinClassCovariance]
