"""Squared lengths of class means without the noise of their samples, for the debiased measurements of NC1, NC2 and NC3.

A class mean of N_c samples is scattered around the true one by σ̃_c²/N_c, so every squared length between means is too
large by that noise, whatever the distribution of the embeddings. It is subtracted here. Classes of one sample have no
estimate of their variance: they are left out, of the global mean too.

Shapes: K classes, d dimensions.
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from collapse import EmbeddingStatistics, Noted, derived

_CANCELLED = 1e-12  # a float64 difference smaller than this, relative to its terms, has lost most of its digits
_RESOLVED = 2  # standard errors that the mean squared norm must exceed, because ratios are divided by it


@dataclass(frozen=True)
class Estimates:
    """Variances and squared norms of classes, debiased or plug-in.

    Attributes:
        s: Statistics of the classes; μ̄ is over these classes.
        variances: σ̃_c² = σ_c² N_c/(N_c − 1), plug-in σ_c²; shape (K,).
        noise: v_c = σ̃_c²/N_c, the mean squared distance of μ_c to the true mean, plug-in 0; shape (K,).
        sqnorms: ñ_c² = ‖μ_c − μ̄‖² − (1 − 2/K) v_c − Σv/K², shape (K,); its estimate can be negative.
    """

    s: EmbeddingStatistics
    variances: Float[Tensor, " K"]
    noise: Float[Tensor, " K"]
    sqnorms: Float[Tensor, " K"]

    @property
    def sqnorm(self) -> float:
        """mean ñ_c²."""
        return float(self.sqnorms.mean())

    @property
    def sqdist(self) -> float:
        """mean D̃ over pairs, D̃ = ‖μ_c − μ_c′‖² − v_c − v_c′, which is 2K/(K−1) times the mean squared norm."""
        classes = len(self.noise)
        return 2 * classes / (classes - 1) * self.sqnorm

    @property
    def error(self) -> float:
        """Standard error of mean ñ_c² from the noise of the means, from the spread of ñ_c² over classes.

        The squared length of Gaussian noise has variance 2v²/r, with r of its d dimensions in effect. That bounds the
        error (r from 1 to d) where few classes, or true norms of unequal length, make the spread a bad estimate; of two
        classes, whose norms are equal, it is the bound for r = 1.
        """
        classes = len(self.noise)
        bound = (2 * self.noise.square() * self.s.counts / (self.s.counts - 1).clamp(min=1)).sum().sqrt() / classes
        spread = self.sqnorms.std() / classes**0.5 if classes > 2 else bound
        return float(torch.clamp(spread, bound / self.s.dim**0.5, bound))


UNRESOLVED = Noted(
    None, "the class means are no farther apart than the noise of their samples (2 standard errors): collect more text"
)


def ratio(of: Estimates, value: Callable[[Estimates], Noted | float]) -> Noted | float:
    """Return a number that is divided by the mean squared norm; null where that is no more than its noise."""
    if of.sqnorm <= max(_CANCELLED * float(of.s.norms.square().mean()), _RESOLVED * of.error):
        return UNRESOLVED
    return value(of)


@derived(needs=["means", "variances"])
def plug_in(s: EmbeddingStatistics) -> Estimates:
    """Return the estimates as if the means had no noise, for the biased measurement beside each debiased one."""
    return Estimates(s, s.variances, torch.zeros_like(s.variances), s.norms.square())


@derived(needs=["counts", "means", "variances"])
def debiased(s: EmbeddingStatistics) -> Estimates | Noted:
    """Return the unbiased estimates, with a note on classes left out; nothing if fewer than two have two samples.

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
    kept = s.keep(2)
    noise_K = kept.variances / (kept.counts - 1)
    shrunk_K = kept.norms.square() - (1 - 2 / kept.n_classes) * noise_K - noise_K.sum() / kept.n_classes**2
    of = Estimates(kept, noise_K * kept.counts, noise_K, shrunk_K)
    if not alone:
        return of
    said = f"{alone:,} of {s.n_classes:,} classes have one sample and are left out"
    return Noted(of, f"{said}: compare with the measurement that is not debiased at --min-count 2", "singletons")
