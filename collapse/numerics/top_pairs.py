"""The pairs of largest value, found tile by tile: exactly, and never with more than a tile of them in memory.

Shapes: a tile has R rows and S columns, each a run of classes; n candidates.
"""

import math
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor


@dataclass
class TopPairs:
    """The N pairs c < c′ of largest value seen so far, largest first; of equal values the ones of lowest c, then c′.

    Attributes:
        most: N.
        pairs: Positions of both classes, shape (n, 2), n ≤ N.
        values: Their values, shape (n,).
    """

    most: int
    pairs: Int[Tensor, "n 2"]
    values: Float[Tensor, " n"]

    @classmethod
    def of(cls, most: int, device: torch.device) -> "TopPairs":
        """Return an empty one."""
        pairs = torch.empty(0, 2, dtype=torch.int64, device=device)
        return cls(most, pairs, torch.empty(0, dtype=torch.float64, device=device))

    def add(self, values: Float[Tensor, "R S"], rows: slice, columns: slice) -> None:
        """Take in a tile; a diagonal one (equal rows and columns) holds every pair twice, and counts once.

        Args:
            values: One value per pair; NaN and infinity are never among the largest.
            rows, columns: The tile's classes.
        """
        if not bool(values.sum().isfinite()):
            values = values.masked_fill(~values.isfinite(), math.nan)
        if rows.start == columns.start:
            values = values.masked_fill(torch.ones_like(values, dtype=torch.bool).tril(), math.nan)
        found = self._candidates(values)
        if not len(found):
            return
        value_n = values[found[:, 0], found[:, 1]].double()
        start = torch.tensor([rows.start, columns.start], device=found.device)
        self._keep(torch.cat([self.pairs, found + start]), torch.cat([self.values, value_n]))

    def _candidates(self, values: Float[Tensor, "R S"]) -> Int[Tensor, "n 2"]:
        """Return the positions in a tile of all pairs that may be among the largest; usually there are none."""
        if len(self.values) == self.most:
            least = self.values[-1]
        else:
            some = values[~values.isnan()]
            at = min(self.most, len(some))
            least = some.topk(at).values[-1] if at else values.new_tensor(math.inf)
        enough = values >= least
        if not enough.any():
            return enough.nonzero()
        # of the pairs that equal the least one, more than N cannot be needed: in a degenerate tile all are equal
        equal = (values == least).nonzero()[: self.most]
        return torch.cat([(values > least).nonzero(), equal])

    def _keep(self, pairs: Int[Tensor, "n 2"], values: Float[Tensor, " n"]) -> None:
        order = torch.arange(len(values), device=values.device)
        for key in (pairs[:, 1], pairs[:, 0], -values):  # stable sorts, the most important one last
            order = order[key[order].argsort(stable=True)]
        order = order[: self.most]
        self.pairs, self.values = pairs[order], values[order]
