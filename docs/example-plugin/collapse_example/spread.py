"""How the class means are spread: a number, a value a class, and a value a pair."""

import torch

from collapse import Max, Mean, Min, class_metric, metric, pair_metric


@metric("spread.dimensions")
def dimensions(centred_means):
    """Effective number of dimensions of the centred class means, from 1 to min(C−1, d)."""
    sizes = torch.linalg.svdvals(centred_means).square()
    return torch.special.entr(sizes / sizes.sum()).sum().exp()


@class_metric(
    Mean("spread.within", towards=0.0),
    Max("spread.within_max", towards=0.0),
    over="directions",
)
def within(variances, norms):
    """Variance of a class over the squared length of its centred mean, shape (C,)."""
    return variances / norms.square()


@pair_metric(Min("spread.nearest"), Mean("spread.distance"), over="distinct", scale=1.0)
def distance(distance):
    """Distance of two class means: of the nearest pair, and the mean of all pairs."""
    return distance
