"""Select the best candidates of each sample, and find rows that equal an earlier row.

A candidate is a (sample, row, score) triple. A row that equals an earlier row need not be a candidate, because ties go
to the first row.

Shapes: B samples, K candidates; V rows of the matrix, n rows of a group, d dimensions.
"""

from collections.abc import Sequence

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor


def highest(
    samples: int, sample_K: Int[Tensor, " K"], row_K: Int[Tensor, " K"], score_K: Float[Tensor, " K"]
) -> tuple[Tensor, Tensor]:
    """Return each sample's highest score, and the lowest row with this score, each of shape (B,).

    ``samples`` is B. A sample without candidates gets the score −∞ and the row 0.

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


def first_of_equal(
    matrix: Float[Tensor, "V d"], groups: Sequence[Int[Tensor, " _"]], bias: Float[Tensor, " V"] | None, at_once: int
) -> Bool[Tensor, " _"]:
    """Return whether each row differs from all earlier rows of its group, for the rows of all groups in order.

    ``groups`` has the row indices of each group. Two rows are equal if all their numbers and their biases are equal.
    Rows are compared, ``at_once`` at a time, only if their products with a random vector are equal.

    >>> rows = torch.tensor([[1.0, 2.0], [3.0, 4.0], [1.0, 2.0]])
    >>> first_of_equal(rows, [torch.tensor([0, 1, 2]), torch.tensor([2])], None, 8).tolist()
    [True, True, False, True]
    """
    draw = torch.Generator().manual_seed(0)
    x_d = torch.randn(matrix.shape[1], dtype=torch.float64, generator=draw).to(matrix.device)
    found = []
    for ids_n in groups:
        score_n = torch.cat([torch.linalg.vecdot(matrix[some].double(), x_d) for some in ids_n.split(at_once)])
        if bias is not None:
            score_n += bias[ids_n]
        at_n, (_, kind_n) = torch.arange(len(ids_n), device=ids_n.device), score_n.unique(return_inverse=True)
        first_n = torch.full_like(at_n, len(at_n)).scatter_reduce_(0, kind_n, at_n, "amin")[kind_n]
        is_first_n = torch.ones_like(at_n, dtype=torch.bool)
        for some in (first_n != at_n).nonzero().squeeze(1).split(at_once):
            mine, first = ids_n[some], ids_n[first_n[some]]
            equal = (matrix[mine] == matrix[first]).all(dim=1)
            is_first_n[some] = ~(equal if bias is None else equal & (bias[mine] == bias[first]))
        found.append(is_first_n)
    return torch.cat(found)
