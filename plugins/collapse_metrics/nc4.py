"""NC4, nearest-class-centre decisions: the classifier chooses the class with the nearest mean.

The linear and nearest-centre rules choose among all classes with a mean. They do so during collection
(numerics/decisions.py), so ``--min-count`` does not affect these numbers. The parameter ``chunks`` holds the totals of
all validation samples.
"""

import torch
from torch import Tensor

from collapse import Noted, ValidationStatistics, ValidationTotals, derived, metric


def agreement_by_label(validation: ValidationStatistics) -> tuple[Tensor, Tensor]:
    """Labels that occur in validation, and the share of each label's samples on which both rules agree."""
    occurs = validation.counts > 0
    return validation.classes[occurs], validation.agreements[occurs].double() / validation.counts[occurs]


@derived
def agreed(chunks: ValidationTotals) -> Tensor:
    """Share of all validation samples on which the linear and the nearest-class-centre classifier agree."""
    return chunks.agreements / chunks.samples


@metric(
    "nc4.agreement",
    headline=True,
    towards=1,
    vector=agreement_by_label,
    standard_error=True,
    translation=False,
    scale=None,
)
def agreement(agreed: Tensor, validation: ValidationStatistics, ids: Tensor, seen: Tensor | None) -> Noted | Tensor:
    """Share of all validation samples on which the linear and the nearest-class-centre classifier agree.

    Equation: share of argmax_c ⟨w_c,h⟩+b_c = argmin_c ‖h − μ_c‖
    Source: Wu & Papyan 2024, Eqs. 9, 10, 12

    >>> value(agreement, tiny_statistics())
    0.75
    """
    v, remarks = validation, []
    with_mean = ids if seen is None else seen  # --min-count does not affect the note either
    unseen = int(v.counts[~torch.isin(v.classes, with_mean.cpu())].sum())
    if unseen:
        remarks.append(f"{unseen:,} whose label does not occur in training")
    if int(v.argmax_without_mean):
        other = "the classifier then decides for its most probable token that has one"
        remarks.append(f"{int(v.argmax_without_mean):,} whose most probable token has no class mean ({other})")
    return Noted(agreed, f"the {v.samples:,} validation samples include {' and '.join(remarks)}") if remarks else agreed


@metric("nc4.chance_agreement", translation=False, scale=None)
def chance(validation: ValidationStatistics) -> Noted | Tensor:
    """Agreement expected by chance: the product of both rules' prediction shares, summed over classes.

    Equation: Σ_c p_c q_c
    Source: Cohen 1960

    >>> value(chance, tiny_statistics())
    0.5
    """
    v = validation
    if not v.linear_predictions.any():
        return Noted(None, "predictions are not counted by label, so chance agreement in a group of classes is unknown")
    return (v.linear_predictions.double() @ v.ncc_predictions.double()) / v.samples**2


@metric("nc4.kappa", towards=1, translation=False, scale=None)
def kappa(agreed: Tensor, chance: Tensor) -> Noted | Tensor:
    """Agreement beyond chance: 0 for two independent rules, 1 at full collapse.

    Equation: (agreement − chance) / (1 − chance)
    Source: Cohen 1960

    >>> value(kappa, tiny_statistics())
    0.5
    """
    if chance == 1:
        return Noted(None, "both rules always predict the same class: chance agreement is 1")
    return (agreed - chance) / (1 - chance)


@metric("nc4.ncc_accuracy", better="higher")
def ncc_accuracy(validation: ValidationStatistics) -> float:
    """Share of validation samples that the nearest-class-centre classifier gets right.

    Equation: share of argmin_c ‖h − μ_c‖ = y
    Source: Wu & Papyan 2024, Eq. 10

    >>> value(ncc_accuracy, tiny_statistics())
    0.75
    """
    return int(validation.ncc_hits.sum()) / validation.samples
