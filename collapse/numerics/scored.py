"""What one pass over the scores of many rows keeps: the highest of each group of rows, and the sum of exponentials.

Shapes: n rows, G groups of rows, B samples, d dimensions.
"""

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from collapse.numerics.blocks import Block
from collapse.numerics.rows import Rows
from collapse.numerics.score_error import ScoreError


@dataclass
class Scored:
    """What a pass over all scores has found so far.

    Attributes:
        x: The samples as they are multiplied, shape (B, d).
        bias: The bias of each row as it is added, shape (n,), or None.
        group: Rows of a group.
        error: The bound on errors of the scores.
        highest: Highest score of each group, shape (G, B).
        least: Of each part, a score that the highest one of it or of an earlier part reaches, shape (parts, B).
        top: The highest score, shape (B,), if sums are taken.
        others: The sum of exp(score − top) over all rows but one that has the highest score, float64, shape (B,); None
            if it is not asked for. Beside the 1 of that row, small terms would lose their digits.
        offset: What was subtracted from every score, float64, shape (B,).
    """

    x: Tensor
    bias: Tensor | None
    group: int
    error: ScoreError
    highest: Tensor
    least: Tensor
    top: Tensor
    others: Tensor | None
    offset: Tensor

    @classmethod
    def begin(cls, rows: Rows, x_Bd: Float[Tensor, "B d"], dtype: torch.dtype, share: float, *, sums: bool) -> "Scored":
        """Begin a pass over the scores of some samples.

        Args:
            rows: The rows.
            x_Bd: Samples, float64.
            dtype: Of the products.
            share: Factor of the bias.
            sums: Whether to sum exp(score) too.
        """
        error, offset_B = rows.error(x_Bd.norm(dim=1), dtype, share), rows.offset(x_Bd, dtype, share)
        x_Bd, (B, _) = x_Bd.to(dtype).contiguous(), x_Bd.shape
        highest, least = x_Bd.new_empty(len(rows.part_of), B), x_Bd.new_full((len(rows.parts), B), float("-inf"))
        others_B = torch.zeros_like(offset_B) if sums else None
        bias_n = rows.bias_of(dtype, share)
        return cls(x_Bd, bias_n, rows.group, error, highest, least, least[0].clone(), others_B, offset_B)

    def take_in(self, scores: Float[Tensor, "n B"], block: Block) -> None:
        """Take in the scores of a block, which are overwritten."""
        if self.bias is not None:
            scores += self.bias[block.rows].unsqueeze(1)
        here, whole = self.highest[block.groups], len(scores) // self.group * self.group
        if whole:
            torch.amax(scores[:whole].view(-1, self.group, scores.shape[1]), dim=1, out=here[: whole // self.group])
        if whole < len(scores):
            torch.amax(scores[whole:], dim=0, out=here[-1])
        highest_B = here.amax(dim=0)
        known_B = highest_B - self.error.most_of(block.groups)
        torch.maximum(self.least[block.part :], known_B, out=self.least[block.part :])
        if self.others is not None:
            self._sum(scores, highest_B)

    def _sum(self, scores: Float[Tensor, "n B"], highest_B: Float[Tensor, " B"]) -> None:
        """Add exp(score − top) of a block, which is overwritten, to the sums over all rows but one of the top."""
        assert self.others is not None
        higher_B = highest_B > self.top
        if bool(higher_B.any()):
            before_B, self.top = self.top, torch.maximum(self.top, highest_B)
            scaled_B = (self.others + 1) * (before_B.double() - self.top.double()).exp()
            self.others = scaled_B.where(higher_B, self.others)
        values = scores.sub_(self.top).exp_()
        sum_B = values.sum(dim=0)
        top_b = (highest_B == self.top).nonzero().squeeze(1)  # few samples: their highest score lies in this block
        if len(top_b):
            ones_b, sum_B[top_b] = _ones_and_rest(values[:, top_b])
            self.others[top_b] += ones_b - higher_B[top_b].double()
        self.others += sum_B

    def rest(self, best_B: Float[Tensor, " B"]) -> Float[Tensor, " B"]:
        """Return the sum of exp(score − best) over all rows but the best one.

        Args:
            best_B: The highest score in float64, of which nothing was subtracted.
        """
        assert self.others is not None
        return self.others * (self.top.double() + self.offset - best_B).exp()


def _ones_and_rest(values: Float[Tensor, "n b"]) -> tuple[Float[Tensor, " b"], Float[Tensor, " b"]]:
    """Return how many values are 1, and the sum of the others, which would lose its digits beside them."""
    is_one = values == 1
    return is_one.sum(dim=0).double(), values.masked_fill(is_one, 0).sum(dim=0)
