"""Near pairs, whose distance from a Gram product is inaccurate: recompute it directly, and detect equal points.

Shapes: a tile has R rows and S columns, each a run of classes; C classes; d dimensions.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

# Below this share of ‖a‖² + ‖b‖², a squared distance computed from a Gram product has lost too many digits.
REDO = {torch.float64: 1e-6, torch.float32: 1e-2}
_GATHER = 1 << 21  # numbers gathered at a time when distances are redone


@dataclass(frozen=True)
class Found:
    """The result of recomputing the near pairs of a tile.

    Attributes:
        least: The smallest squared distance of two classes, before distances of equal points were set to 0.
        rounded: Number of pairs that were set to 0.
        zeros: Number of pairs that are 0.
    """

    least: float
    rounded: int
    zeros: int


@dataclass(frozen=True)
class NearPairs:
    """How to recompute the near pairs of a field.

    Attributes:
        points: Returns the points of some classes, to full precision, shape (n, d).
        dim: d.
        scale: Squared norms of the points, shape (C,): a distance that is small relative to two of them is inaccurate.
        rounding: Rounding error of each point, shape (C,): points nearer than the sum of two are equal.
    """

    points: Callable[[Int[Tensor, " n"]], Float[Tensor, "n d"]]
    dim: int
    scale: Float[Tensor, " C"]
    rounding: Float[Tensor, " C"]

    @cached_property
    def _widest(self) -> float:
        return 4 * float(self.rounding.max()) ** 2

    def correct(self, sqdist: Float[Tensor, "R S"], rows: slice, columns: slice) -> Found:
        """Recompute the near pairs of a tile, in place, and set the distances of equal points to 0.

        Args:
            sqdist: Squared distances from a Gram product.
            rows, columns: The tile's classes; if they are the same classes, the diagonal becomes 0.
        """
        diagonal = rows.start == columns.start
        if diagonal:  # a class is not its own neighbour
            sqdist.fill_diagonal_(math.inf)
        redo, least = REDO[sqdist.dtype], sqdist.amin()
        scale_R, scale_S = self.scale[rows], self.scale[columns]
        if least < redo * (scale_R.amax() + scale_S.amax()):
            self._take_again(sqdist, sqdist < redo * (scale_R.unsqueeze(1) + scale_S), rows, columns)
            least = sqdist.amin()
        rounded = zeros = 0
        if least <= self._widest:
            equal = sqdist <= (self.rounding[rows].unsqueeze(1) + self.rounding[columns]).square()
            equal &= sqdist > 0
            rounded = int(equal.sum())
            sqdist.masked_fill_(equal, 0)
            zeros = int((sqdist <= 0).sum())
        if diagonal:
            sqdist.fill_diagonal_(0)
        share = 2 if diagonal else 1  # a diagonal tile holds every pair twice
        return Found(float(least), rounded // share, zeros // share)

    def _take_again(self, sqdist: Tensor, near: Bool[Tensor, "R S"], rows: slice, columns: slice) -> None:
        for some in near.nonzero().split(max(1, _GATHER // self.dim)):
            delta = self.points(some[:, 0] + rows.start) - self.points(some[:, 1] + columns.start)
            sqdist[some[:, 0], some[:, 1]] = torch.linalg.vecdot(delta, delta).to(sqdist.dtype)
