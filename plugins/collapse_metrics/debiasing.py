"""Squared lengths of class means without the noise of their samples, for the debiased measurements of NC1, NC2 and NC3.

A class mean of N_c samples of variance σ̃_c² has the mean squared error σ̃_c²/N_c. This noise makes the squared
lengths and distances of class means too large, for any distribution of the embeddings. It is subtracted here. Classes
with one sample have no variance estimate. They are excluded, also from the global mean.

Shapes: K classes, d dimensions.
"""

from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor

from collapse import EmbeddingStatistics, Noted, derived

_RESOLVED = 2  # the mean squared norm, a divisor of ratios, must exceed this many standard errors


@dataclass(frozen=True)
class Estimates:
    """Debiased variances and squared norms of K classes, each with two or more samples.

    Attributes:
        counts: N_c, shape (K,).
        means: Centred class means μ_c − μ̄, where μ̄ is the mean of the K class means, shape (K, d).
        variances: σ̃_c² = σ_c² N_c/(N_c − 1), shape (K,).
        noise: v_c = σ̃_c²/N_c, the mean squared distance of μ_c to the true mean, shape (K,).
        sqnorms: ñ_c² = ‖μ_c − μ̄‖² − (1 − 2/K) v_c − Σ_c v_c/K², shape (K,); an estimate can be negative.
        classifier: Rows of the classifier, shape (K, d), or None.
    """

    counts: Int[Tensor, " K"]
    means: Float[Tensor, "K d"]
    variances: Float[Tensor, " K"]
    noise: Float[Tensor, " K"]
    sqnorms: Float[Tensor, " K"]
    classifier: Float[Tensor, "K d"] | None

    @property
    def sqnorm(self) -> float:
        """Mean of ñ_c², the debiased squared norms."""
        return float(self.sqnorms.mean())

    @property
    def sqdist(self) -> float:
        """Mean over pairs of D̃ = ‖μ_c − μ_c′‖² − v_c − v_c′; for K classes, 2K/(K−1) times mean ñ_c²."""
        classes = len(self.noise)
        return 2 * classes / (classes - 1) * self.sqnorm

    @property
    def error(self) -> float:
        """Standard error of mean ñ_c² due to the noise of the means, estimated from the spread of ñ_c² over classes.

        With few classes, or if the true norms are unequal, the spread is a bad estimate. The squared length of Gaussian
        noise has mean v and variance 2v²/r, where r (1 to d) is the effective dimension of the noise. The error for
        r = d is the lower limit of the estimate, and the error for r = 1 is the upper limit. With two classes, both
        ñ_c² are always equal, so they have no spread, and the upper limit is returned.
        """
        classes, dim = self.means.shape
        bound = (2 * self.noise.square() * self.counts / (self.counts - 1)).sum().sqrt() / classes
        spread = self.sqnorms.std() / classes**0.5 if classes > 2 else bound
        return float(torch.clamp(spread, bound / dim**0.5, bound))


UNRESOLVED = Noted(
    None,
    "the class means are no farther apart than the noise of their samples (2 standard errors): collect more samples",
)


@derived
def debiased(
    ids: Tensor, counts: Tensor, means: Tensor, variances: Tensor, classifier: Tensor | None = None
) -> Estimates | Noted:
    """Unbiased estimates for the classes with at least two samples.

    >>> s = EmbeddingStatistics(classes=torch.arange(2), counts=torch.tensor([2, 2]),
    ...     means=torch.tensor([[0.0], [4.0]]).double(), variances=torch.tensor([1.0, 3.0]).double())
    >>> found = value(debiased, s)
    >>> found.variances.tolist(), found.noise.tolist(), found.sqdist  # 16 − 1 − 3
    ([2.0, 6.0], [1.0, 3.0], 12.0)
    """
    alone = int((counts < 2).sum())
    if len(counts) - alone < 2:
        return Noted(None, "fewer than two classes have the two samples that an unbiased variance needs", "singletons")
    s = EmbeddingStatistics(classes=ids, counts=counts, means=means, variances=variances, classifier=classifier)
    s = s.keep(2)  # the global mean is then the mean of these classes
    K, noise_K = s.n_classes, s.variances / (s.counts - 1)
    sqnorms_K = s.norms.square() - (1 - 2 / K) * noise_K - noise_K.sum() / K**2
    found = Estimates(s.counts, s.centred_means, noise_K * s.counts, noise_K, sqnorms_K, s.classifier)
    if not alone:
        return found
    text = f"{alone:,} of {len(counts):,} classes have one sample and are excluded"
    return Noted(found, f"{text}: compare with the measurement that is not debiased, at --min-count 2", "singletons")


@derived
def resolved(debiased: Estimates) -> Estimates | Noted:
    """Return the unbiased estimates; no value if ``sqnorm`` is at most 2 times its standard error ``error``.

    ``sqnorm`` is the divisor of ratios, so it must not be mostly noise.
    """
    return debiased if debiased.sqnorm > _RESOLVED * debiased.error else UNRESOLVED
