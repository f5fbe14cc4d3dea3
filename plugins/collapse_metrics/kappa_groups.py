"""The standard error of NC4's kappa, for stores that were collected with this plugin.

Chance agreement needs how often both rules predict each class, which a store keeps for the whole validation text only.
The statistic here keeps it for 64 groups of blocks, sparsely: some megabytes a store. It is not installed, because
every new store would have it and none of the present stores: ``collapse -p collapse_metrics.kappa_groups collect …``,
and the same ``-p`` for ``measure`` and ``compare``.

Shapes: B samples of a batch, G groups that occur, K pairs of a group and a class that one of the rules predicts there.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from collapse import Noted, State, ValidationBatch, ValidationStatistic, ValidationStatistics, derived, metric

GROUPS = 64
"""Groups of blocks: those of equal number modulo 64, however a collection is split."""


class PredictionsByGroup(ValidationStatistic):
    """Samples and agreements of each group, and how often each rule predicts each class in it.

    Attributes:
        totals: Samples and agreements, shape (64, 2).
        classes: Rows of ``predicted``: class · 64 + group, ascending, shape (K,).
        predicted: Samples for which linear and for which ncc predicts this class in this group, shape (K, 2).
    """

    name = "predictions_by_group"
    state: ClassVar = {"totals": State((GROUPS, 2), torch.int64), "predicted": State(("C", 2), torch.int64)}
    per_class = True  # --min-count leaves the decisions, and so NC4, as they were

    def update(self, batch: ValidationBatch) -> None:
        """Count the predictions of a batch."""
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


@dataclass(frozen=True)
class Shares:
    """Counts and shares by group, in float64.

    Attributes:
        totals: Samples and agreements of each group, shape (64, 2).
        group: The group of each key, shape (K,).
        predicted: Samples for which linear and for which ncc predicts the key's class in its group, shape (K, 2).
        shares: Shares of all samples for which linear and ncc predict the key's class, shape (K, 2).
        observed, chance: Agreement, and the agreement to be expected by chance, Σ_c p_c q_c.
    """

    totals: Tensor
    group: Tensor
    predicted: Tensor
    shares: Tensor
    observed: float
    chance: float


@derived
def by_group(predictions_by_group: Mapping[str, Tensor]) -> Shares:
    """The statistic's counts, and the shares that follow from them."""
    held = predictions_by_group
    totals, predicted = held["totals"].double(), held["predicted"].double()
    classes, row = (held["classes"] // GROUPS).unique(return_inverse=True)
    shares = (_summed(row, held["predicted"], len(classes)).double() / held["totals"][:, 0].sum())[row]
    samples = float(totals[:, 0].sum())
    chance = float((predicted[:, 0] @ shares[:, 1]) / samples)
    return Shares(totals, held["classes"] % GROUPS, predicted, shares, float(totals[:, 1].sum()) / samples, chance)


def influence(by_group: Shares) -> Tensor:
    """Influence of each group on κ = (o − e)/(1 − e), shape (G,).

    With n samples of the group, a agreements and x = Σ (q of linear's class + p of ncc's class) over its samples:
    ((a − o·n)(1 − e) − (x − 2e·n)(1 − o)) / (N (1 − e)²).
    """
    o, e = by_group.observed, by_group.chance
    n, a = by_group.totals.unbind(dim=1)
    of_keys = (by_group.predicted * by_group.shares.flip(1)).sum(dim=1)
    x = torch.zeros_like(n).index_add_(0, by_group.group, of_keys)
    all_groups = ((a - o * n) * (1 - e) - (x - 2 * e * n) * (1 - o)) / (n.sum() * (1 - e) ** 2)
    return all_groups[n > 0]


@metric("nc4.grouped_kappa", towards=1, standard_error=influence, translation=False, scale=None)
def grouped_kappa(validation: ValidationStatistics, by_group: Shares) -> Noted | float:
    """The number of nc4.kappa, with a standard error over groups of blocks.

    Equation: (agreement − chance) / (1 − chance)
    Source: Cohen 1960
    """
    o, e = by_group.observed, by_group.chance
    if e == 1:
        return Noted(None, "both rules always predict one class: chance agreement is 1")
    return (o - e) / (1 - e)
