"""NC4, nearest-class-centre decisions: the classifier comes to choose the class of the nearest mean.

Both rules choose among the classes with a mean. Decisions are made during collection, with all of these classes, so
``--min-count`` does not affect these numbers.
"""

from collections.abc import Callable

import torch
from torch import Tensor

from collapse import EmbeddingStatistics, Noted, ValidationStatistics, hookimpl, metric

AGREEMENTS, HITS, LOSS = 1, 2, 3
"""Columns of ``ValidationStatistics.block_totals``, after the samples."""


def validation(s: EmbeddingStatistics) -> ValidationStatistics:
    """The validation counts, which ``needs`` promises."""
    assert s.validation is not None
    return s.validation


def by_block(column: int) -> Callable[[EmbeddingStatistics], Tensor]:
    """Influence of each of S blocks on the ratio r = Σx/Σn of a column of the blocks' totals to samples.

    It is how much r changes without the block, (x − r·n)/(Σn − n), times (S − 1)/S; of blocks of equal size that is
    the derivative in the block's weight, and of a large block more (the jackknife).
    """

    def influence(s: EmbeddingStatistics) -> Tensor:
        totals = validation(s).block_totals
        n, x = totals[:, 0], totals[:, column]
        change = x - n * (x.sum() / n.sum())
        return change / (n.sum() - n) * (1 - 1 / len(n)) if len(n) > 1 else change

    return influence


def agreement_by_label(s: EmbeddingStatistics) -> tuple[Tensor, Tensor]:
    """Labels that occur in validation, and the share of each one's samples on which both rules agree."""
    v = validation(s)
    occurs = v.counts > 0
    return v.classes[occurs], v.agreements[occurs].double() / v.counts[occurs]


@metric(
    "nc4.agreement",
    needs=["validation"],
    headline=True,
    towards=1.0,
    vector=agreement_by_label,
    influence=by_block(AGREEMENTS),
    source="Wu & Papyan 2024, Eqs. 9, 10, 12",
    equation="share of argmax_c ⟨w_c,h⟩+b_c = argmin_c ‖h − μ_c‖",
    translation=False,
    scale=None,
)
def agreement(s: EmbeddingStatistics) -> Noted | float:
    """Share of all validation samples on which the linear and the nearest-class-centre classifier agree.

    >>> import collapse.testing
    >>> agreement(collapse.testing.tiny_statistics())
    0.75
    """
    v = validation(s)
    share = int(v.agreements.sum()) / v.samples
    unseen = ~torch.isin(v.classes, s.classes.cpu()) if not s.left_out else None
    remarks = []
    if unseen is not None and int(v.counts[unseen].sum()):
        remarks.append(f"{int(v.counts[unseen].sum()):,} have a label that has no mean (never seen in training)")
    if int(v.argmax_without_mean):
        remarks.append(f"for {int(v.argmax_without_mean):,} the argmax over the whole vocabulary has no mean")
    return Noted(share, f"of {v.samples:,} validation samples " + " and ".join(remarks)) if remarks else share


def chance(s: EmbeddingStatistics) -> float:
    """Σ_c p_c q_c, the agreement of two independent classifiers with these prediction shares."""
    v = validation(s)
    return float((v.linear_predictions.double() @ v.ncc_predictions.double()) / v.samples**2)


@metric(
    "nc4.chance_agreement",
    needs=["validation"],
    source="Cohen 1960",
    equation="Σ_c p_c q_c",
    translation=False,
    scale=None,
)
def chance_agreement(s: EmbeddingStatistics) -> float:
    """The agreement to be expected by chance: the product of both rules' prediction shares, summed over classes.

    >>> import collapse.testing
    >>> chance_agreement(collapse.testing.tiny_statistics())
    0.5
    """
    return chance(s)


@metric(
    "nc4.kappa",
    needs=["validation"],
    towards=1.0,
    source="Cohen 1960",
    equation="(agreement − chance) / (1 − chance)",
    translation=False,
    scale=None,
)
def kappa(s: EmbeddingStatistics) -> Noted | float:
    """Agreement beyond chance: 0 for two independent rules, 1 at full collapse.

    >>> import collapse.testing
    >>> kappa(collapse.testing.tiny_statistics())
    0.5
    """
    by_chance = chance(s)
    if by_chance == 1:
        return Noted(None, "both rules always predict one class: chance agreement is 1")
    share = int(validation(s).agreements.sum()) / validation(s).samples
    return (share - by_chance) / (1 - by_chance)


@metric(
    "nc4.ncc_accuracy",
    needs=["validation"],
    source="Wu & Papyan 2024, Eq. 10",
    equation="share of argmin_c ‖h − μ_c‖ = y",
    better="higher",
)
def ncc_accuracy(s: EmbeddingStatistics) -> float:
    """Share of validation samples that the nearest-class-centre classifier gets right.

    >>> import collapse.testing
    >>> ncc_accuracy(collapse.testing.tiny_statistics())
    0.75
    """
    v = validation(s)
    return int(v.ncc_hits.sum()) / v.samples


@hookimpl
def collapse_metrics() -> list[object]:
    """The metrics of this file."""
    return [agreement, chance_agreement, kappa, ncc_accuracy]
