"""How the class means are spread: a number, a value a class, and a value a pair."""

import torch

from collapse import Max, Mean, Min, class_metric, metric, pair_metric


@metric("spread.dimensions", needs=["means"], source="Roy & Vetterli 2007", equation="exp H(λ/Σλ)")
def dimensions(s):
    """Effective number of dimensions of the centred class means, from 1 to min(C−1, d)."""
    sizes = torch.linalg.svdvals(s.centred_means).square()
    return torch.special.entr(sizes / sizes.sum()).sum().exp()


@class_metric(
    needs=["means", "variances"],
    over="directions",
    measures=[Mean("spread.within", towards=0.0), Max("spread.within_max", towards=0.0)],
    equation="σ_c² / ‖μ_c − μ̄‖²",
)
def within(s):
    """Variance of a class over the squared length of its centred mean, shape (C,)."""
    return s.variances / s.norms.square()


@pair_metric(
    needs=["means"],
    over="distinct",
    scale=1.0,
    measures=[Min("spread.nearest"), Mean("spread.distance")],
    equation="‖μ_c − μ_c′‖",
)
def distance(pair):
    """Distance of two class means: of the nearest pair, and the mean of all pairs."""
    return pair.distance
