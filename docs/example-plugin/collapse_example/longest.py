"""The longest embedding of each class: a statistic that declares one row per class, and the metric that reads it."""

from typing import ClassVar

import torch

from collapse import Mean, State, Statistic, class_metric


class Longest(Statistic):
    """max ‖h_i‖² over the samples of each class, squared units of h."""

    name = "example_longest"
    state: ClassVar = {"sqnorm": State(("C",), torch.float64, "max")}

    def update(self, batch):
        """The longest embedding of each class of a batch, in the order of ``batch.classes``."""
        self.sqnorm.scatter_reduce_(0, batch.inverse, batch.h.square().sum(dim=1), "amax")


@class_metric(Mean("spread.longest"), translation=False)
def longest(example_longest, ids, means):
    """Length of a class's longest embedding over that of its mean; excluded where the mean is 0.

    Equation: max ‖h_i‖ / ‖μ_c‖
    """
    rows = torch.searchsorted(example_longest["classes"], ids)
    return example_longest["sqnorm"][rows].sqrt() / means.norm(dim=1)
