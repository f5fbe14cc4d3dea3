"""What one pass over the scores of many rows keeps: the highest of each group of rows, and the sum of exponentials.

Shapes: n rows of a block, G groups of rows, B samples.
"""

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from collapse.numerics.blocks import Block
from collapse.numerics.score_error import ScoreError


@dataclass
class Scored:
    """What a pass over all scores has found so far.

    Attributes:
        group: Rows of a group.
        error: The bound on errors of the scores.
        highest: Highest score of each group, shape (G, B).
        least: Of each part, a score that the highest one of it or of an earlier part reaches, shape (parts, B).
        top: The highest score, shape (B,), if sums are taken.
        others: The sum of exp(score − top) over all rows but one that has the highest score, float64, shape (B,); None
            if it is not asked for. Beside the 1 of that row, small terms would lose their digits.
        offset: What was subtracted from every score, float64, shape (B,).
    """

    group: int
    error: ScoreError
    highest: Tensor
    least: Tensor
    top: Tensor
    others: Tensor | None
    offset: Tensor

    @classmethod
    def begin(cls, error: ScoreError, *, groups: int, group: int, parts: int, sums: bool, offset_B: Tensor) -> "Scored":
        """Begin a pass over scores with these errors."""
        B, kind = len(offset_B), error.norm
        least = kind.new_full((parts, B), float("-inf"))
        others_B = torch.zeros_like(offset_B) if sums else None
        return cls(group, error, kind.new_empty(groups, B), least, least[0].clone(), others_B, offset_B)

    def take_in(self, scores: Float[Tensor, "n B"], bias_n: Tensor | None, block: Block) -> None:
        """Take in the scores of a block, which are overwritten."""
        if bias_n is not None:
            scores += bias_n.unsqueeze(1)
        here, whole = self.highest[block.groups], len(scores) // self.group * self.group
        if whole:
            torch.amax(scores[:whole].view(-1, self.group, scores.shape[1]), dim=1, out=here[: whole // self.group])
        if whole < len(scores):
            torch.amax(scores[whole:], dim=0, out=here[-1])
        known = (here - self.error.of_all(block.groups)).amax(dim=0)
        torch.maximum(self.least[block.part :], known, out=self.least[block.part :])
        if self.others is not None:
            before_B, self.top = self.top, torch.maximum(self.top, here.amax(dim=0))
            higher_B = self.top > before_B
            scaled_B = (self.others + 1) * (before_B.double() - self.top.double()).exp()
            ones_B, parts_B = _sums_of_exp(scores.sub_(self.top))
            self.others = scaled_B.where(higher_B, self.others) + parts_B + (ones_B - higher_B.double())

    def rest(self, best_B: Float[Tensor, " B"]) -> Float[Tensor, " B"]:
        """Return the sum of exp(score − best) over all rows but the best one.

        Args:
            best_B: The highest score in float64, of which nothing was subtracted.
        """
        assert self.others is not None
        return self.others * (self.top.double() + self.offset - best_B).exp()


def _sums_of_exp(scores: Float[Tensor, "n B"]) -> tuple[Float[Tensor, " B"], Float[Tensor, " B"]]:
    """Return of how many scores, which are at most 0, the exponential is 1, and the sum of the others, in float64.

    The scores are overwritten.
    """
    values = scores.exp_()
    whole_B = values.sum(dim=0)
    part_B = values.frac_().sum(dim=0)
    return (whole_B - part_B).round().double(), part_B.double()
