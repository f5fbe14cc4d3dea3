"""Minority collapse: with unequal counts, the rarest classes can share one direction."""

import math

from torch import Tensor

from collapse import Noted, metric
from collapse.numerics.statistics import unit_rows

COLLAPSE_OPT_IN = True


@metric("minority.mean_cosine", towards=lambda C: -1 / (C - 1))
def minority_cosine(unit_means: Tensor, counts: Tensor) -> Noted | Tensor:
    """Mean cosine between the centred means of the rarest quarter of classes: 1 at minority collapse.

    The means are centred on the mean of all classes. Classes with the same count as the largest
    class of the quarter also belong to it.

    Equation: mean over rare pairs of ⟨u_c, u_c′⟩
    Source: after Fang et al. 2021

    >>> import dataclasses, torch
    >>> s = statistics_of([[2.0, 0.0], [3.0, 0.0], [0.0, 5.0], [-5.0, -5.0]])
    >>> value(minority_cosine, dataclasses.replace(s, counts=torch.tensor([1, 1, 9, 9])))
    1.0
    """
    return _mean_cosine(unit_means[_rarest(counts)])


@metric("minority.row_cosine", towards=lambda C: -1 / (C - 1))
def minority_classifier_cosine(centred_rows: Tensor, counts: Tensor) -> Noted | Tensor:
    """Mean cosine between the classifier rows of the rarest quarter of classes: 1 at minority collapse.

    The mean row of all classes is subtracted from each row; the model's probabilities do not depend on the mean row.

    Equation: mean over rare pairs of cos(w_c − w̄, w_c′ − w̄)
    Source: after Fang et al. 2021, who do not centre the rows

    >>> import torch
    >>> round(value(minority_classifier_cosine, statistics_of(torch.eye(3), torch.eye(3))), 12)  # all are equally rare
    -0.5
    """
    return _mean_cosine(unit_rows(centred_rows[_rarest(counts)]))


def _rarest(counts: Tensor) -> Tensor:
    """Return a mask of the rarest quarter of classes, with at least two classes.

    The mask also includes every other class with the largest count of the quarter.
    """
    last = max(2, math.ceil(len(counts) / 4)) - 1
    return counts <= counts.sort().values[last]


def _mean_cosine(units_Kd: Tensor) -> Noted | Tensor:
    units_Kd = units_Kd[units_Kd[:, 0].isfinite()]
    K = len(units_Kd)
    if K < 2:
        return Noted(None, "fewer than two of the rarest classes have a vector that is not zero")
    return (units_Kd.sum(dim=0).square().sum() - K) / (K * (K - 1))
