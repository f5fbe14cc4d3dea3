"""Rows of a matrix, each with a bias, in groups: exact in float64, and shifted and rounded for products in float32.

Shapes: n rows in G groups, d dimensions, P groups of some samples, K pairs of a sample and a row.
"""

from collections.abc import Sequence
from functools import cached_property

import torch
from jaxtyping import Float, Int
from torch import Tensor

from collapse.numerics.blocks import cut
from collapse.numerics.score_error import ScoreError

BLOCK = 512
_SCORES = 1 << 19  # of a block: 2 MB, which stay in a processor's cache
_KEPT = 1 << 26  # rows of at most this many numbers are kept in order (256 MB); of more, each block is gathered


class Rows:
    """Some rows of a matrix, and a bias for each.

    Args:
        matrix: Of any dtype, shape (V, d).
        parts: The rows, ascending within each part.
        bias: A bias for each row of the matrix, shape (V,), or None.
        group: Rows of a group.
        samples: How many samples they are multiplied with at a time.
        originals: The matrix before rounding, or None; only its rows tell which are equal.
        centred: Whether to subtract the mean row and the highest bias before rounding to float32. All scores of a
            sample then lack the same number, which changes neither the order of scores nor differences between them.

    Attributes:
        ids: The rows in whole groups, shape (n,): the last row of a part stands there as often as is missing.
        blocks, parts: How they are cut.
        part_of: The part of each group, shape (G,).
        bias: The bias of each, float64, (n,), or None.
        common: What is subtracted, in float64: the mean row, (d,), and the highest bias, or zeros. The mean bias would
            be far from all that matter where a part of a vocabulary is masked by a very negative one.
        kept: The rows less the mean, float32, (n, d); None if they are too many.
    """

    def __init__(
        self,
        matrix: Float[Tensor, "V d"],
        parts: Sequence[Int[Tensor, " _"]],
        bias: Float[Tensor, " V"] | None,
        *,
        group: int,
        centred: bool,
        samples: int = 1024,
        originals: Float[Tensor, "V d"] | None = None,
    ) -> None:
        self.matrix, self.group = matrix, group
        self._originals = matrix if originals is None else originals
        lengths = [len(part) for part in parts if len(part)]
        self.blocks, self.parts = cut(lengths, group, min(BLOCK, _SCORES // samples))
        self.ids = torch.cat([torch.cat([part, part[-1:].expand(-len(part) % group)]) for part in parts if len(part)])
        groups = torch.tensor([part.groups.stop - part.groups.start for part in self.parts])
        self.part_of = torch.arange(len(groups)).repeat_interleave(groups).to(matrix.device)
        self.bias = None if bias is None else bias[self.ids].double()
        mean_d, highest_bias = torch.zeros(self.dim, dtype=torch.float64, device=matrix.device), 0.0
        self._centred = centred
        if centred:
            for some in self.steps():
                mean_d += self.exact(some).sum(dim=0) / len(self)
            highest_bias = 0.0 if self.bias is None else float(self.bias.max())
        self.common = mean_d, highest_bias
        self.kept: Tensor | None = None
        if len(self) * self.dim <= _KEPT:
            kept = torch.empty(len(self), self.dim, device=matrix.device)
            for some in self.steps():
                kept[some] = self.rounded(some)
            self.kept = kept
        self._sizes = {kind: self._largest(kind) for kind in (torch.float32, torch.float64)}

    def __len__(self) -> int:
        return len(self.ids)

    @property
    def dim(self) -> int:
        """Dimensions of a row."""
        return self.matrix.shape[1]

    def steps(self) -> list[slice]:
        """Return all rows in pieces of a block."""
        return [slice(start, min(start + BLOCK, len(self))) for start in range(0, len(self), BLOCK)]

    def exact(self, some: slice | Tensor) -> Tensor:
        """Return some rows in float64."""
        return self.matrix[self.ids[some]].double()

    def rounded(self, some: slice | Tensor) -> Tensor:
        """Return some rows less the mean, in float32."""
        return self.kept[some] if self.kept is not None else (self.exact(some) - self.common[0]).float()

    def of(self, some: slice | Tensor, dtype: torch.dtype) -> Tensor:
        """Return some rows as they are multiplied in this dtype."""
        return self.rounded(some) if dtype == torch.float32 else self.exact(some)

    def bias_of(self, dtype: torch.dtype, share: float) -> Float[Tensor, " n"] | None:
        """Return a share of the biases as they are added in this dtype."""
        if self.bias is None:
            return None
        return (share * (self.bias - (self.common[1] if dtype == torch.float32 else 0.0))).to(dtype)

    def offset(self, x_Bd: Float[Tensor, "B d"], dtype: torch.dtype, share: float) -> Float[Tensor, " B"]:
        """Return by how much scores in this dtype are lower, in float64."""
        if dtype != torch.float32 or not self._centred:
            return x_Bd.new_zeros(len(x_Bd))
        return x_Bd @ self.common[0] + share * self.common[1]

    def error(self, norm_B: Float[Tensor, " B"], dtype: torch.dtype, share: float) -> ScoreError:
        """Bound the errors of scores in this dtype, of samples of which ‖x‖ is given."""
        norms_G, biases_G = self._sizes[dtype]
        return ScoreError.of_products(norms_G, share * biases_G, norm_B, self.dim, dtype)

    @cached_property
    def largest(self) -> tuple[float, float]:
        """The largest ‖row‖ and |bias| of those multiplied in float32."""
        norms_G, biases_G = self._sizes[torch.float32]
        return float(norms_G.max()), float(biases_G.max())

    def _largest(self, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
        """Return the largest ‖row‖ and |bias| of each group, (G,), from which errors of scores in this dtype follow.

        To those of float32 the errors of float64 are added: what may be the highest in float64 is not left out.
        """
        norm_n = torch.cat([self.exact(some).norm(dim=1) for some in self.steps()])
        bias_n = torch.zeros_like(norm_n) if self.bias is None else self.bias.abs()
        if dtype == torch.float32:
            small = torch.finfo(torch.float64).eps / torch.finfo(dtype).eps
            rounded = torch.cat([(self.exact(some) - self.common[0]).norm(dim=1) for some in self.steps()])
            norm_n = rounded + small * norm_n
            if self.bias is not None:
                bias_n = (self.bias - self.common[1]).abs() + small * bias_n
        return self._by_group(norm_n), self._by_group(bias_n)

    def _by_group(self, value_n: Tensor) -> Tensor:
        return value_n.view(-1, self.group).amax(dim=1)

    @cached_property
    def first_equal(self) -> Int[Tensor, " n"]:
        """For each row the first one of its part that is equal to it."""
        at = torch.arange(len(self), device=self.ids.device)
        draw = torch.Generator().manual_seed(0)
        x_1d = torch.randn(1, self.dim, dtype=torch.float64, generator=draw).to(self.ids.device)
        score_n = torch.cat([torch.linalg.vecdot(self._original(some), x_1d) for some in self.steps()])
        if self.bias is not None:
            score_n += self.bias
        first = at.clone()
        for part in self.parts:
            _, kind = score_n[part.rows].unique(return_inverse=True)
            of_kind = at.new_full((len(kind),), len(self)).scatter_reduce_(0, kind, at[part.rows], "amin")
            first[part.rows] = of_kind[kind]
        equal = torch.cat([(self._original(some) == self._original(first[some])).all(dim=1) for some in self.steps()])
        if self.bias is not None:
            equal &= self.bias == self.bias[first]
        return first.where(equal, at)

    def _original(self, some: slice | Tensor) -> Tensor:
        return self._originals[self.ids[some]].double()
