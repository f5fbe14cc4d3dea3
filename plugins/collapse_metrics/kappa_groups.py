"""The standard error of NC4's kappa, for stores that were collected with this plugin.

Chance agreement depends on how often each of the two rules, linear and NCC (nearest class centre), predicts each class.
A store keeps these counts only for the whole validation text. The statistic of this module keeps them for each of 64
groups of blocks, in a few megabytes. A block is a run of whole texts, or a chunk of a features file. The statistic is
not loaded by default, because existing stores lack it and new stores would grow. Use it with
``collapse -p collapse_metrics.kappa_groups collect …``, and the same ``-p`` for ``measure`` and ``compare``.

Shapes: B samples of a batch, G groups that occur, K combinations of a group and a class that at least one rule predicts
for a sample of the group.
"""

from collections.abc import Mapping
from typing import ClassVar

import torch
from torch import Tensor

from collapse import Noted, State, ValidationBatch, ValidationStatistic, ValidationStatistics, metric

GROUPS = 64
"""Number of groups. Block b is in group b mod 64, however the collection is split into parts."""


class PredictionsByGroup(ValidationStatistic):
    """Samples and agreements of each group, and how often each rule predicts each class in the group.

    Attributes:
        totals: Samples and agreements, shape (64, 2).
        classes: class · 64 + group, for each row of ``predicted``, ascending, shape (K,).
        predicted: For the class and group of each row, the number of the group's samples for which linear predicts the
            class, and the number for which NCC predicts the class, shape (K, 2).
    """

    name = "predictions_by_group"
    state: ClassVar = {"totals": State((GROUPS, 2), torch.int64), "predicted": State(("C", 2), torch.int64)}
    per_class = True  # --min-count does not change decisions, so nc4.grouped_kappa stays available

    def update(self, batch: ValidationBatch) -> None:
        group_B = batch.block % GROUPS
        one_B = torch.ones_like(group_B)
        agree_B = (batch.linear == batch.ncc).long()
        self.totals = _summed(group_B, torch.stack([one_B, agree_B], dim=1), GROUPS)
        keys = torch.cat([batch.linear, batch.ncc]) * GROUPS + group_B.repeat(2)
        by_linear = torch.stack([one_B, 0 * one_B], dim=1)
        self.classes, row = keys.unique(return_inverse=True)
        self.predicted = _summed(row, torch.cat([by_linear, by_linear.flip(1)]), len(self.classes))


def _summed(row: Tensor, counts: Tensor, rows: int) -> Tensor:
    return counts.new_zeros(rows, counts.shape[1]).index_add_(0, row, counts)


def _kappa(held: Mapping[str, Tensor], weight_G: Tensor) -> Tensor:
    """Return κ from the counts of :class:`PredictionsByGroup`, those of each group multiplied by the group's weight."""
    samples, agreed = weight_G @ held["totals"].double()
    classes, row = (held["classes"] // GROUPS).unique(return_inverse=True)
    predicted = held["predicted"].double() * weight_G[held["classes"] % GROUPS].unsqueeze(1)
    p, q = (_summed(row, predicted, len(classes)) / samples).unbind(dim=1)
    chance = p @ q
    return (agreed / samples - chance) / (1 - chance)


def influence(predictions_by_group: Mapping[str, Tensor]) -> Tensor:
    """Influence of each group on κ: the derivative of κ with respect to the group's weight, shape (G,)."""
    totals = predictions_by_group["totals"]
    weight = torch.ones(GROUPS, dtype=torch.float64, device=totals.device, requires_grad=True)
    with torch.enable_grad():
        (slope,) = torch.autograd.grad(_kappa(predictions_by_group, weight), weight)
    return slope[totals[:, 0] > 0]


@metric("nc4.grouped_kappa", towards=1, standard_error=influence, translation=False, scale=None)
def grouped_kappa(validation: ValidationStatistics, predictions_by_group: Mapping[str, Tensor]) -> Noted | Tensor:
    """The same value as nc4.kappa, with a standard error over groups of blocks.

    Equation: (agreement − chance) / (1 − chance)
    Source: Cohen 1960
    """
    weight_G = torch.ones(GROUPS, dtype=torch.float64, device=predictions_by_group["totals"].device)
    found = _kappa(predictions_by_group, weight_G)
    return found if found.isfinite() else Noted(None, "both rules always predict the same class: chance agreement is 1")
