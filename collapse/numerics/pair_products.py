"""Products of single rows of a matrix with single samples, in float64; equal rows have equal ones.

Shapes: B samples, V rows, d dimensions, K pairs of a row and a sample.
"""

import torch
from jaxtyping import Float, Int
from torch import Tensor

_GATHER = 1 << 15  # numbers gathered at a time, which stay in the cache


def pair_products(
    matrix: Float[Tensor, "V d"], row_K: Int[Tensor, " K"], x_Bd: Float[Tensor, "B d"], sample_K: Int[Tensor, " K"]
) -> Float[Tensor, " K"]:
    """Return the products of rows and samples.

    Args:
        matrix: Of any dtype.
        row_K: Its rows.
        x_Bd: Samples, float64.
        sample_K: The sample of each row.

    >>> rows, samples = torch.tensor([0, 0, 1]), torch.tensor([0, 1, 1])
    >>> pair_products(torch.tensor([[1.0, 2.0], [3.0, 4.0]]), rows, torch.eye(2).double(), samples)
    tensor([1., 2., 4.], dtype=torch.float64)
    """
    pairs = zip(*(each.split(max(1, _GATHER // matrix.shape[1])) for each in (row_K, sample_K)), strict=True)
    return torch.cat([torch.linalg.vecdot(matrix[row].double(), x_Bd[sample]) for row, sample in pairs])
