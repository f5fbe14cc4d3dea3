"""Spectra of five matrices, each summarized by five numbers: ``geometry.within.effective_rank`` and so on.

The matrices: ``within`` is Σ_W and ``between`` is Σ_B; ``means``, ``classifier`` and ``embeddings`` are the second
moments of μ_c, w_c and h, not centred. For the last three, the eigenvalues λ are the squared singular values of the
matrix with rows μ_c, w_c or h, divided by the number of rows.
"""

from collections.abc import Callable
from inspect import Parameter, Signature
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from collapse import Noted, derived, metric

# functions below take these values as parameters
from collapse_metrics.covariance import second_moment as second_moment
from collapse_metrics.covariance import within_covariance as within_covariance
from collapse_metrics.spectrum import Spectrum, spectrum_of, spectrum_of_rows
from collapse_metrics.spectrum import between_spectrum as between_spectrum
from collapse_metrics.spectrum import rounding as rounding

COLLAPSE_OPT_IN = True

_FITTED = slice(10, 100)  # ranks 11 to 100, as in the package reptrix: the first ranks follow no power law


@derived
def within_spectrum(within_covariance: Tensor, rounding: Tensor) -> Spectrum | Noted:
    """Spectrum of the within-class covariance Σ_W."""
    return spectrum_of(within_covariance, rounding, "the within-class covariance is zero, up to rounding")


@derived
def means_spectrum(means: Tensor, rounding: Tensor) -> Spectrum | Noted:
    """Spectrum of mean_c μ_c μ_cᵀ, not centred."""
    return spectrum_of_rows(means, rounding, "every class mean is zero")


@derived
def classifier_spectrum(classifier: Tensor) -> Spectrum | Noted:
    """Spectrum of mean_c w_c w_cᵀ, not centred."""
    return spectrum_of_rows(classifier, 0.0, "the classifier is zero")


@derived
def embeddings_spectrum(second_moment: Tensor, rounding: Tensor) -> Spectrum | Noted:
    """Spectrum of the mean of h hᵀ over all samples, not centred."""
    return spectrum_of(second_moment, rounding, "every embedding is zero")


def effective_rank(eigenvalues: Float[Tensor, " r"]) -> Tensor:
    """Exponential of the entropy of the eigenvalues' shares; r for r equal eigenvalues.

    Equation: exp(−Σ p_i log p_i), p_i = λ_i / Σλ
    Source: Roy & Vetterli 2007, of a covariance

    >>> round(float(effective_rank(torch.tensor([1.0, 1.0, 1.0]))), 5)
    3.0
    """
    return torch.special.entr(eigenvalues / eigenvalues.sum()).sum().exp()


def rankme(eigenvalues: Float[Tensor, " r"]) -> Tensor:
    """Exponential of the entropy of the singular values' shares; r for r equal singular values.

    Equation: exp(−Σ p_i log p_i), p_i = √λ_i / Σ√λ
    Source: Garrido et al. 2023, Eq. 1, without its ε; Roy & Vetterli 2007, for a matrix with the singular values √λ_i

    >>> round(float(rankme(torch.tensor([4.0, 4.0]))), 5)
    2.0
    """
    return effective_rank(eigenvalues.sqrt())


def participation_ratio(eigenvalues: Float[Tensor, " r"]) -> Tensor:
    """Squared sum of the eigenvalues over the sum of their squares; r for r equal eigenvalues.

    Equation: (Σλ)² / Σλ²
    Source: Gao et al. 2017

    >>> float(participation_ratio(torch.tensor([3.0, 1.0])))
    1.600000023841858
    """
    return eigenvalues.sum().square() / eigenvalues.square().sum()


def stable_rank(eigenvalues: Float[Tensor, " r"]) -> Tensor:
    """Sum of the eigenvalues over the largest; r for r equal eigenvalues.

    Equation: Σλ / λ_max
    Source: Rudelson & Vershynin 2007, of a matrix with the singular values √λ_i

    >>> float(stable_rank(torch.tensor([1.0, 2.0])))
    1.5
    """
    return eigenvalues.sum() / eigenvalues.max()


def alpha(eigenvalues: Float[Tensor, " r"]) -> Tensor | Noted:
    """Exponent of the power law i^(−α) that fits the eigenvalues, largest first; 0 if all are equal.

    The fit is a weighted least-squares line of log λ_i on log i, with weights 1/i. It uses the ranks i from 11 to 100,
    or all ranks if there are fewer than 100.

    Equation: −slope of log λ_i on log i
    Source: Agrawal et al. 2022; weights of Stringer et al. 2019

    >>> round(float(alpha(torch.tensor([1 / 9, 1 / 4, 1.0]))), 5)
    2.0
    """
    if len(eigenvalues) < 2:
        return Noted(None, "a power law needs two eigenvalues")
    ranks = torch.arange(1, len(eigenvalues) + 1).to(eigenvalues)
    fitted = _FITTED if len(eigenvalues) >= _FITTED.stop else slice(None)
    x, y = ranks.log()[fitted], eigenvalues.flip(0).log()[fitted]
    weights = 1 / ranks[fitted]
    x = x - (weights * x).sum() / weights.sum()
    return -(weights * x * y).sum() / (weights * x * x).sum()


def _declared(of: Callable[..., Any], summary: Callable[..., Any]) -> Callable[..., Any]:
    """Declare a metric: ``summary`` of the eigenvalues in the spectrum that the function ``of`` computes."""
    matrix = of.__name__.removesuffix("_spectrum")

    def function(**given: Spectrum) -> Any:
        return summary(given[of.__name__].values)

    function.__name__ = function.__qualname__ = f"{matrix}_{summary.__name__}"
    function.__doc__ = summary.__doc__
    function.__signature__ = Signature([Parameter(of.__name__, Parameter.KEYWORD_ONLY)])  # type: ignore[attr-defined]  # read by inspect.signature
    of_simplex = matrix in ("between", "classifier")  # at collapse, within is 0, and means and embeddings depend on μ̄
    flat: Any = 0.0 if summary is alpha else lambda C: C - 1.0
    most: Any = None if summary is alpha else lambda C, d: min(C - 1.0, d)
    return metric(
        f"geometry.{matrix}.{summary.__name__}",
        towards=flat if of_simplex else None,
        reachable=most if of_simplex else None,
        translation=matrix not in ("means", "embeddings"),
    )(function)


METRICS = [
    _declared(of, summary)
    for of in (within_spectrum, between_spectrum, means_spectrum, classifier_spectrum, embeddings_spectrum)
    for summary in (effective_rank, rankme, participation_ratio, stable_rank, alpha)
]
