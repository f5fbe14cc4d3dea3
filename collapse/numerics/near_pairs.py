"""Recompute the squared distances of near pairs of classes by direct difference.

A small squared distance loses digits when it is computed from a Gram product. The squared distances of equal points
are set to exactly 0.

Shapes: a tile has R rows and S columns, both of consecutive classes; C classes, d dimensions, n near pairs.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import torch
from jaxtyping import Float, Int
from torch import Tensor

REDO = 1e-6  # a squared distance below this share of ‖a‖² + ‖b‖² has lost too many digits in a Gram product
_TOGETHER = 1 << 11  # near pairs that are recomputed at a time


@dataclass(frozen=True)
class Points:
    """One point per class, such as its mean or its direction.

    Attributes:
        at: A function of class indices that returns the points of these classes in full precision, shape (n, d).
        sqnorms: Squared norm of each vector a_c, shape (C,), where a_c is the point or, for class means, the centred
            mean. Squared distances are computed from these vectors as ‖a‖² + ‖b‖² − 2⟨a, b⟩.
        rounding: Rounding error of each point, shape (C,); two points count as equal if their distance is at most the
            sum of their errors.
    """

    at: Callable[[Int[Tensor, " n"]], Float[Tensor, "n d"]]
    sqnorms: Float[Tensor, " C"]
    rounding: Float[Tensor, " C"]

    @cached_property
    def _inaccurate_below(self) -> float:
        """Upper limit of the squared distances that :meth:`correct` recomputes."""
        return 2 * REDO * float(self.sqnorms.max())

    @cached_property
    def _equal_up_to(self) -> float:
        """Upper limit of the squared distance of two points that are equal up to rounding."""
        return 4 * float(self.rounding.max()) ** 2

    def correct(self, sqdist: Float[Tensor, "R S"], rows: slice, columns: slice) -> int:
        """Recompute the squared distances of near pairs of a tile, in place, and set those of equal points to 0.

        Returns:
            The number of pairs set to 0 because they differ only by rounding.
        """
        diagonal = rows.start == columns.start
        if diagonal:  # a class is not its own neighbour
            sqdist.fill_diagonal_(math.inf)
        rounded, least = 0, _least(sqdist)
        if least < self._inaccurate_below:
            near = sqdist < REDO * (self.sqnorms[rows].unsqueeze(1) + self.sqnorms[columns])
            for some in near.nonzero().split(_TOGETHER):
                row_n, column_n = some.unbind(dim=1)
                delta = self.at(row_n + rows.start) - self.at(column_n + columns.start)
                sqdist[row_n, column_n] = torch.linalg.vecdot(delta, delta)
            least = _least(sqdist)
        if least <= self._equal_up_to:
            equal = sqdist <= (self.rounding[rows].unsqueeze(1) + self.rounding[columns]).square()
            rounded = int((equal & (sqdist > 0)).sum())
            sqdist.masked_fill_(equal, 0)
        if diagonal:
            sqdist.fill_diagonal_(0)
            rounded //= 2
        return rounded


def _least(sqdist: Tensor) -> float:
    least = float(sqdist.amin())
    return float(sqdist.nan_to_num(nan=math.inf).amin()) if math.isnan(least) else least
