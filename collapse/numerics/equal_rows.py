"""Find rows of a matrix that equal an earlier row of their group, without comparing all pairs.

Shapes: n rows of a group of rows, d dimensions, V rows of the matrix.
"""

from collections.abc import Sequence

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor


def first_of_equal(
    matrix: Float[Tensor, "V d"], groups: Sequence[Int[Tensor, " _"]], bias: Float[Tensor, " V"] | None, at_once: int
) -> Bool[Tensor, " _"]:
    """Return False for each row that equals an earlier row of its group in all numbers and in its bias, otherwise True.

    First, the products of the rows with a random vector are computed. Only rows with equal products are then compared,
    ``at_once`` rows at a time. The result has the rows of all groups, in order.

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
