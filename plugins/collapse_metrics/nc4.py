"""NC4, nearest-class-centre decisions: the classifier comes to choose the class of the nearest mean.

Both rules choose among the classes with a mean. Decisions are made during collection, with all of these classes, so
``--min-count`` does not affect these numbers.
"""

from collections.abc import Callable

import torch
from torch import Tensor

from collapse import Noted, ValidationStatistics, metric

AGREEMENTS, HITS, LOSS = 1, 2, 3
"""Columns of ``ValidationStatistics.block_totals``, after the samples."""


def by_block(column: int) -> Callable[[ValidationStatistics], Tensor]:
    """Influence of each of S blocks on the ratio r = Σx/Σn of a column of the blocks' totals to samples.

    It is how much r changes without the block, (x − r·n)/(Σn − n), times (S − 1)/S; of blocks of equal size that is
    the derivative in the block's weight, and of a large block more (the jackknife).
    """

    def influence(validation: ValidationStatistics) -> Tensor:
        totals = validation.block_totals
        n, x = totals[:, 0], totals[:, column]
        change = x - n * (x.sum() / n.sum())
        return change / (n.sum() - n) * (1 - 1 / len(n)) if len(n) > 1 else change

    return influence


def agreement_by_label(validation: ValidationStatistics) -> tuple[Tensor, Tensor]:
    """Labels that occur in validation, and the share of each one's samples on which both rules agree."""
    occurs = validation.counts > 0
    return validation.classes[occurs], validation.agreements[occurs].double() / validation.counts[occurs]


@metric(
    "nc4.agreement",
    headline=True,
    towards=1.0,
    vector=agreement_by_label,
    influence=by_block(AGREEMENTS),
    translation=False,
    scale=None,
)
def agreement(validation: ValidationStatistics, classes: Tensor, left_out: int) -> Noted | float:
    """Share of all validation samples on which the linear and the nearest-class-centre classifier agree.

    Equation: share of argmax_c ⟨w_c,h⟩+b_c = argmin_c ‖h − μ_c‖
    Source: Wu & Papyan 2024, Eqs. 9, 10, 12

    >>> from collapse.testing import tiny_statistics, value
    >>> value(agreement, tiny_statistics())
    0.75
    """
    v = validation
    share = int(v.agreements.sum()) / v.samples
    unseen = ~torch.isin(v.classes, classes.cpu()) if not left_out else None
    remarks = []
    if unseen is not None and int(v.counts[unseen].sum()):
        remarks.append(f"{int(v.counts[unseen].sum()):,} have a label that has no mean (never seen in training)")
    if int(v.argmax_without_mean):
        remarks.append(f"for {int(v.argmax_without_mean):,} the argmax over the whole vocabulary has no mean")
    return Noted(share, f"of {v.samples:,} validation samples " + " and ".join(remarks)) if remarks else share


@metric("nc4.chance_agreement", translation=False, scale=None)
def chance_agreement(validation: ValidationStatistics) -> float:
    """The agreement to be expected by chance: the product of both rules' prediction shares, summed over classes.

    Equation: Σ_c p_c q_c
    Source: Cohen 1960

    >>> from collapse.testing import tiny_statistics, value
    >>> value(chance_agreement, tiny_statistics())
    0.5
    """
    v = validation
    return float((v.linear_predictions.double() @ v.ncc_predictions.double()) / v.samples**2)


@metric("nc4.kappa", towards=1.0, translation=False, scale=None)
def kappa(validation: ValidationStatistics, chance_agreement: float) -> Noted | float:
    """Agreement beyond chance: 0 for two independent rules, 1 at full collapse.

    Equation: (agreement − chance) / (1 − chance)
    Source: Cohen 1960

    >>> from collapse.testing import tiny_statistics, value
    >>> value(kappa, tiny_statistics())
    0.5
    """
    if chance_agreement == 1:
        return Noted(None, "both rules always predict one class: chance agreement is 1")
    share = int(validation.agreements.sum()) / validation.samples
    return (share - chance_agreement) / (1 - chance_agreement)


@metric("nc4.ncc_accuracy", better="higher")
def ncc_accuracy(validation: ValidationStatistics) -> float:
    """Share of validation samples that the nearest-class-centre classifier gets right.

    Equation: share of argmin_c ‖h − μ_c‖ = y
    Source: Wu & Papyan 2024, Eq. 10

    >>> from collapse.testing import tiny_statistics, value
    >>> value(ncc_accuracy, tiny_statistics())
    0.75
    """
    return int(validation.ncc_hits.sum()) / validation.samples
