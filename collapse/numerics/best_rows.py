"""Select the best candidates of each sample. A candidate is a (sample, row, score) triple.

Shapes: B samples, K candidates.
"""

import torch
from jaxtyping import Float, Int
from torch import Tensor


def highest(
    samples: int, sample_K: Int[Tensor, " K"], row_K: Int[Tensor, " K"], score_K: Float[Tensor, " K"]
) -> tuple[Tensor, Tensor]:
    """Return each sample's highest score, and the first row with this score, each (B,); −∞ and 0 without candidates.

    >>> highest(2, torch.tensor([0, 0, 0]), torch.tensor([3, 5, 6]), torch.tensor([1.0, 2.0, 2.0]))
    (tensor([2., -inf]), tensor([5, 0]))
    """
    score_B = score_K.new_full((samples,), float("-inf")).scatter_reduce_(0, sample_K, score_K, "amax")
    best_K = score_K == score_B[sample_K]
    return score_B, first_row(samples, sample_K[best_K], row_K[best_K])


def first_row(samples: int, sample_K: Int[Tensor, " K"], row_K: Int[Tensor, " K"]) -> Int[Tensor, " B"]:
    """Return the lowest candidate row of each sample, shape (B,); 0 if the sample has no candidates.

    >>> first_row(2, torch.tensor([0, 0]), torch.tensor([6, 5]))
    tensor([5, 0])
    """
    last = torch.iinfo(torch.int64).max
    row_B = row_K.new_full((samples,), last).scatter_reduce_(0, sample_K, row_K, "amin")
    return row_B.where(row_B < last, 0)
