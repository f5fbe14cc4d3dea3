"""Squared lengths of class means without the noise of their samples, for the debiased measurements of NC1, NC2 and NC3.

A class mean of N_c samples is scattered around the true one by σ̃_c²/N_c, so every squared length between means is too
large by that noise, whatever the distribution of the embeddings. It is subtracted here. Classes of one sample have no
estimate of their variance: they are left out, of the global mean too.

Shapes: K classes of two samples or more, d dimensions.
"""

from dataclasses import dataclass

from jaxtyping import Float
from torch import Tensor

from collapse import EmbeddingStatistics, Noted

_CANCELLED = 1e-12  # a float64 difference smaller than this, relative to its terms, has lost most of its digits


@dataclass(frozen=True)
class Debiased:
    """Unbiased estimates over the classes of two samples or more.

    Attributes:
        s: Their statistics; μ̄ is over these classes.
        variances: σ̃_c² = σ_c² N_c/(N_c − 1), shape (K,).
        noise: v_c = σ̃_c²/N_c, the mean squared distance of μ_c to the true mean, shape (K,).
        sqnorms: ‖μ_c − μ̄‖² − (1 − 2/K) v_c − Σv/K², shape (K,); its estimate can be negative.
        remark: How many classes are left out, or "".
    """

    s: EmbeddingStatistics
    variances: Float[Tensor, " K"]
    noise: Float[Tensor, " K"]
    sqnorms: Float[Tensor, " K"]
    remark: str

    @property
    def sqnorm(self) -> float | None:
        """mean ‖μ_c − μ̄‖², debiased; None where it is no more than the noise."""
        found, biased = float(self.sqnorms.mean()), float(self.s.norms.square().mean())
        return found if found > _CANCELLED * biased else None

    @property
    def sqdist(self) -> float | None:
        """mean D̃ over pairs, D̃ = ‖μ_c − μ_c′‖² − v_c − v_c′, which is 2K/(K−1) times the mean squared norm."""
        classes = len(self.noise)
        return None if self.sqnorm is None else 2 * classes / (classes - 1) * self.sqnorm

    def noted(self, value: float) -> Noted | float:
        """Return a number with the remark, if classes are left out."""
        return Noted(value, self.remark, "singletons") if self.remark else value


UNRESOLVED = Noted(None, "the class means lie no farther apart than the noise of their samples: collect more text")


def debiased(s: EmbeddingStatistics) -> Debiased | Noted:
    """Return the estimates of some statistics, or a note without a number if fewer than two classes have two samples.

    >>> import torch
    >>> s = EmbeddingStatistics(classes=torch.arange(2), counts=torch.tensor([2, 2]),
    ...     means=torch.tensor([[0.0], [4.0]]).double(), variances=torch.tensor([1.0, 3.0]).double())
    >>> found = debiased(s)
    >>> found.variances.tolist(), found.noise.tolist(), found.sqdist  # 16 − 1 − 3
    ([2.0, 6.0], [1.0, 3.0], 12.0)
    """
    alone = int((s.counts < 2).sum())
    if s.n_classes - alone < 2:
        return Noted(None, "fewer than two classes have two samples, which an unbiased variance needs", "singletons")
    remark = f"{alone:,} of {s.n_classes:,} classes have one sample and are left out" if alone else ""
    s = s.keep(2)
    noise_K = s.variances / (s.counts - 1)
    shrunk_K = s.norms.square() - (1 - 2 / s.n_classes) * noise_K - noise_K.sum() / s.n_classes**2
    return Debiased(s, noise_K * s.counts, noise_K, shrunk_K, remark)
