"""The highest score of each sample among pairs of a sample and a row; ties go to the first row.

Shapes: B samples, K pairs.
"""

from collections.abc import Iterable

import torch
from jaxtyping import Float, Int
from torch import Tensor


def highest(
    samples: int, sample_K: Int[Tensor, " K"], row_K: Int[Tensor, " K"], score_K: Float[Tensor, " K"]
) -> tuple[Tensor, Tensor]:
    """Return the highest score of each sample and the first row that has it, each (B,); −∞ and 0 of a sample without.

    >>> highest(2, torch.tensor([0, 0, 0]), torch.tensor([3, 5, 6]), torch.tensor([1.0, 2.0, 2.0]))
    (tensor([2., -inf]), tensor([5, 0]))
    """
    score_B = score_K.new_full((samples,), float("-inf")).scatter_reduce_(0, sample_K, score_K, "amax")
    best_K = score_K == score_B[sample_K]
    last = torch.iinfo(torch.int64).max
    row_B = row_K.new_full((samples,), last).scatter_reduce_(0, sample_K[best_K], row_K[best_K], "amin")
    return score_B, row_B.where(row_B < last, 0)


def highest_of(samples: int, parts: Iterable[tuple[Tensor, Tensor, Tensor]]) -> tuple[Tensor, Tensor]:
    """Return :func:`highest` of all pairs, given in parts that have all pairs of a sample or none."""
    found = [highest(samples, *part) for part in parts]
    score_B, row_B = found[0]
    for score, row in found[1:]:
        row_B = row.where(score > score_B, row_B)
        score_B = torch.maximum(score, score_B)
    return score_B, row_B
