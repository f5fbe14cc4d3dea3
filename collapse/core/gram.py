"""The product of a matrix's transpose with the matrix, computed only on and above the diagonal."""

import torch
from jaxtyping import Float
from torch import Tensor

_COLUMNS = 112  # columns of a block
_PIECES = 8  # the rows are multiplied in this many pieces: 18 instead of 22 ms for 8,188 rows and two threads


def gram(rows_nd: Float[Tensor, "n d"]) -> Float[Tensor, "d d"]:
    """Return rowsᵀ·rows; it is symmetric, so only its blocks on and above the diagonal are computed.

    >>> import torch
    >>> gram(torch.tensor([[1.0, 2.0], [3.0, 4.0]])).tolist()
    [[10.0, 14.0], [14.0, 20.0]]
    """
    n, d = rows_nd.shape
    k = n // _PIECES
    pieces_pkd, rest_rd = rows_nd[: k * _PIECES].unflatten(0, (_PIECES, k)), rows_nd[k * _PIECES :]
    made_dd = rows_nd.new_empty(d, d)
    for start in range(0, d, _COLUMNS):
        stop = start + _COLUMNS
        block = made_dd[start:stop, start:]
        torch.sum(pieces_pkd[..., start:stop].mT @ pieces_pkd[..., start:], 0, out=block)
        block.addmm_(rest_rd[:, start:stop].T, rest_rd[:, start:])
        made_dd[stop:, start:stop] = made_dd[start:stop, stop:].T
    return made_dd
