"""How the class means are spread: a number, one value per class, and one value per pair."""

import torch

from collapse import Max, Mean, Min, class_metric, metric, pair_metric


@metric("spread.dimensions")
def dimensions(centred_means):
    """Effective number of dimensions of the centred class means, from 1 to min(C−1, d).

    Equation: exp H(λ/Σλ)
    Source: Roy & Vetterli 2007
    """
    sizes = torch.linalg.svdvals(centred_means).square()
    return torch.special.entr(sizes / sizes.sum()).sum().exp()


@class_metric(Mean("spread.within", towards=0), Max("spread.within_max", towards=0))
def within(variances, norms):
    """Variance of a class over the squared length of its centred mean; infinite, and so excluded, where the mean is 0.

    Equation: σ_c² / ‖μ_c − μ̄‖²
    """
    return variances / norms.square()


@pair_metric(Min("spread.nearest"), Mean("spread.distance"), scale=1)
def between(distance):
    """Distance of two class means: of the nearest pair, and the mean of all pairs.

    Equation: ‖μ_c − μ_c′‖
    """
    return distance
