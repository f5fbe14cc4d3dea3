"""The longest embedding of each class: a statistic that declares a row a class, and the metric that reads it."""

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


@class_metric(
    needs=["means", "example_longest"],
    over=lambda s: s.means.norm(dim=1) > 0,
    translation=False,
    measures=[Mean("spread.longest")],
    equation="max ‖h_i‖ / ‖μ_c‖",
)
def longest(s):
    """Length of a class's longest embedding over that of its mean, shape (C,); of classes whose mean is not 0."""
    held = s.statistic("example_longest")
    rows = torch.searchsorted(held["classes"], s.classes)
    return (held["sqnorm"][rows] / s.means.square().sum(dim=1)).sqrt()
