"""A proven bound on the error of scores ⟨x, row⟩ + bias, by group of rows.

Shapes: B samples, G groups of rows, d dimensions, P pairs of a sample and a group.
"""

from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor


@dataclass(frozen=True)
class ScoreError:
    """A bound on the error of each score of a group and a sample: slope · norm + more.

    Attributes:
        slope, more: Of each group, shape (G,).
        norm: Of each sample, shape (B,).
    """

    slope: Tensor
    more: Tensor
    norm: Tensor

    @classmethod
    def of_products(
        cls,
        norms_G: Float[Tensor, " G"],
        biases_G: Float[Tensor, " G"],
        norm_B: Float[Tensor, " B"],
        dim: int,
        dtype: torch.dtype,
    ) -> "ScoreError":
        """Bound the error of products in this dtype.

        A sum of d products is off by at most about d·ε/2·‖x‖‖row‖ + d·tiny, in whatever order it is added; twice that
        allows for the bias, and for the conversion of x and row to this dtype. Numbers below tiny may become 0: that
        costs up to √d·tiny of one norm times the other.

        Args:
            norms_G: The largest ‖row‖ of each group, float64.
            biases_G: The largest |bias| of each group, float64.
            norm_B: ‖x‖ of each sample, float64.
            dim: d.
            dtype: Of the products.
        """
        kind = torch.finfo(dtype)
        part, lost = (dim + 8) * kind.eps, 8 * dim**0.5 * kind.tiny
        more_G = part * biases_G + lost * norms_G + 8 * (dim + 8) * kind.tiny
        return cls((part * norms_G + lost).to(dtype), more_G.to(dtype), norm_B.to(dtype))

    def most(self) -> Float[Tensor, " B"]:
        """Bound the error of each sample's scores."""
        return self.slope.max() * self.norm + self.more.max()

    def most_of(self, groups: slice) -> Float[Tensor, " B"]:
        """Bound the errors of each sample's scores of some groups."""
        return self.slope[groups].max() * self.norm + self.more[groups].max()

    def of_all(self, groups: slice) -> Float[Tensor, "g B"]:
        """Bound the errors of some groups for all samples."""
        return torch.outer(self.slope[groups], self.norm).add_(self.more[groups].unsqueeze(1))

    def of(self, sample_P: Int[Tensor, " P"], group_P: Int[Tensor, " P"]) -> Float[Tensor, " P"]:
        """Bound the errors of some pairs."""
        return self.slope[group_P] * self.norm[sample_P] + self.more[group_P]
