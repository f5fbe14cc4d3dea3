"""The rows of a matrix with the highest scores ⟨x, row⟩ + bias, for many samples x: products in float32, exact answers.

A product in float32 has an error that is bounded. One pass over it keeps the highest score of each group of rows. The
groups that may hold the highest of all, within that bound, are computed again, and those of their rows that still may,
in float64.

Shapes: B samples, n rows in G groups, d dimensions, P pairs of a sample and a group, K pairs of a sample and a row.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import torch
from jaxtyping import Float, Int
from torch import Tensor

from collapse.numerics.blocks import cut
from collapse.numerics.products import product
from collapse.numerics.score_error import ScoreError

_GROUPS = (8, 16)  # rows, of which a pass keeps the highest score: so few that those of all samples fit
_BLOCK = 1024
_SAMPLES = 2048  # with as many rows as a block, their scores stay in the cache of a processor
_HIGHEST = 1 << 23  # scores that a pass keeps, at most: one per group and sample (32 MB)
_KEPT = 1 << 26  # rows of at most this many numbers are kept in order (256 MB); of more, each block is gathered
_GATHER = 1 << 21  # numbers gathered at a time
_MANY = 64  # groups of a sample: with more, a pass in float64 is faster than to compute them one by one
_RESOLVED = 8192.0  # below it float32 has a step of at most 2⁻¹¹, and errors of scores are about that
_LARGEST = 1e30  # far below the largest number of float32


@dataclass(frozen=True)
class Pass:
    """What one pass over all rows gives.

    Attributes:
        highest: Highest score of each group, shape (G, B).
        least: Of each part, a score that the highest one of it or of an earlier part reaches, shape (parts, B).
        top, sums: The highest score, and the sum of exp(score − top), float64, (B,); None if they were not asked for.
    """

    highest: Tensor
    least: Tensor
    top: Tensor | None
    sums: Tensor | None

    def rest(self, best_B: Float[Tensor, " B"]) -> Float[Tensor, " B"]:
        """Return the sum of exp(score − best) over all rows but the best one.

        Args:
            best_B: The highest score in float64.
        """
        assert self.sums is not None
        assert self.top is not None
        return (self.sums - 1) * (self.top.double() - best_B).exp()


def samples_at_once(rows: int) -> int:
    """Return how many samples a pass over so many rows should take.

    >>> samples_at_once(50_257), samples_at_once(262_144)
    (2048, 512)
    """
    return max(1, min(_SAMPLES, _HIGHEST * group_size(rows) // max(1, rows)))


def group_size(rows: int) -> int:
    """Return of how many rows a pass over so many keeps the highest score.

    >>> group_size(2_048), group_size(50_257)
    (8, 16)
    """
    return next((size for size in _GROUPS if _SAMPLES * rows <= _HIGHEST * size), _GROUPS[-1])


class Rows:
    """Some rows of a matrix, and a bias for each.

    Args:
        matrix: Of any dtype, shape (V, d).
        parts: The rows, ascending within each part. What is asked of a part is asked of it and all earlier ones.
        bias: A bias for each row of the matrix, shape (V,), or None.
    """

    def __init__(
        self, matrix: Float[Tensor, "V d"], parts: Sequence[Int[Tensor, " _"]], bias: Float[Tensor, " V"] | None
    ) -> None:
        self._matrix = matrix
        self._group = group_size(sum(map(len, parts)))
        # whole groups in each part: its last row stands there as often as is missing
        whole = [torch.cat([part, part[-1:].expand(-len(part) % self._group)]) for part in parts if len(part)]
        self._ids = torch.cat(whole)
        self._bias = None if bias is None else bias[self._ids].double()
        self._blocks, self._parts = cut([len(part) for part in parts if len(part)], self._group, _BLOCK)
        groups = torch.tensor([part.groups.stop - part.groups.start for part in self._parts])
        self._part_of = torch.arange(len(groups)).repeat_interleave(groups).to(matrix.device)
        self._kept: Tensor | None = None
        if len(self._ids) * matrix.shape[1] <= _KEPT:
            kept = torch.empty(len(self._ids), matrix.shape[1], device=matrix.device)
            for some in self._steps():
                kept[some] = self._rows(some, torch.float32)
            self._kept = kept
        norms = torch.cat([self._rows(some, torch.float64).norm(dim=1) for some in self._steps()])
        self._norms = self._by_group(norms)
        self._biases = self._by_group(torch.zeros_like(norms) if self._bias is None else self._bias.abs())

    def _steps(self) -> list[slice]:
        n = len(self._ids)
        return [slice(start, min(start + _BLOCK, n)) for start in range(0, n, _BLOCK)]

    def _by_group(self, values_n: Tensor) -> Tensor:
        """Return the largest value of each group, shape (G,)."""
        return values_n.view(-1, self._group).amax(dim=1)

    def _rows(self, some: slice | Tensor, dtype: torch.dtype) -> Tensor:
        if self._kept is not None and dtype == torch.float32:
            return self._kept[some]
        return self._matrix[self._ids[some]].to(dtype)

    def _rows_of(self, group_P: Tensor, dtype: torch.dtype) -> Tensor:
        """Return the rows of some groups, shape (P, group, d)."""
        if self._kept is not None and dtype == torch.float32:
            return self._kept.view(-1, self._group, self._kept.shape[1]).index_select(0, group_P)
        ids_Pg = self._ids.view(-1, self._group).index_select(0, group_P)
        return self._matrix[ids_Pg].to(dtype)

    def sums_in_float32(self, x_Bd: Tensor) -> bool:
        """Whether scores in float32 are so good that sums of their exponentials are."""
        norm = float(self._norms.max())
        largest = norm * float(x_Bd.norm(dim=1).max()) + float(self._biases.max())
        return largest < _RESOLVED and norm < _LARGEST and float(x_Bd.abs().max()) < _LARGEST

    def scores(self, x_Bd: Float[Tensor, "B d"], dtype: torch.dtype, *, share: float = 1.0, sums: bool = False) -> Pass:
        """Compute all scores once, in blocks.

        Args:
            x_Bd: Samples, float64.
            dtype: Of the products.
            share: Factor of the bias.
            sums: Whether to sum exp(score) too.
        """
        B, error = len(x_Bd), self._error(x_Bd, dtype, share)
        x_Bd = x_Bd.to(dtype).contiguous()
        highest = x_Bd.new_empty(len(self._norms), B)
        least = x_Bd.new_full((len(self._parts), B), float("-inf"))
        top_B = least[0].clone()
        sum_B = torch.zeros(B, dtype=torch.float64, device=x_Bd.device)
        for block in self._blocks:
            scores = product(self._rows(block.rows, dtype), x_Bd)
            if self._bias is not None:
                scores += (share * self._bias[block.rows]).to(dtype).unsqueeze(1)
            here, whole = highest[block.groups], len(scores) // self._group * self._group
            if whole:
                torch.amax(scores[:whole].view(-1, self._group, B), dim=1, out=here[: whole // self._group])
            if whole < len(scores):
                torch.amax(scores[whole:], dim=0, out=here[-1])
            known = (here - error.of_all(block.groups)).amax(dim=0)
            torch.maximum(least[block.part :], known, out=least[block.part :])
            if sums:
                before_B, top_B = top_B, torch.maximum(top_B, here.amax(dim=0))
                sum_B = sum_B * (before_B - top_B).double().exp() + _sum_of_exp(scores.sub_(top_B))
        return Pass(highest, least, top_B if sums else None, sum_B if sums else None)

    def candidates(
        self, x_Bd: Float[Tensor, "B d"], found: Pass, *, share: float = 1.0
    ) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
        """Yield all pairs of a sample and a row whose score may be the highest of the row's part and the earlier ones.

        Args:
            x_Bd: Samples, float64.
            found: Of :meth:`scores` with the same samples and share.
            share: Factor of the bias.

        Yields:
            Samples, their rows of the matrix, and scores in float64, each (K,); all pairs of a sample at once.
        """
        dtype = found.highest.dtype
        error = self._error(x_Bd, dtype, share)
        open_GB = torch.empty_like(found.highest, dtype=torch.bool)
        for part, least_B in zip(self._parts, found.least, strict=True):
            torch.ge(found.highest[part.groups], least_B - error.most(), out=open_GB[part.groups])
        if int(open_GB.count_nonzero()) > _MANY * len(x_Bd):
            for part, least_B in zip(self._parts, found.least, strict=True):
                open_GB[part.groups] &= found.highest[part.groups] >= least_B - error.of_all(part.groups)
            many_B = open_GB.sum(dim=0) > _MANY
            for some_k in many_B.nonzero().squeeze(1).split(max(1, _GATHER // len(self._ids))):
                yield self._of_all(x_Bd, some_k, share)
            open_GB &= ~many_B
        group_P, sample_P = open_GB.nonzero().unbind(dim=1)
        x, step = x_Bd.to(dtype), max(1, _GATHER // (self._group * x_Bd.shape[1]))
        pairs = zip(sample_P.split(step), group_P.split(step), strict=True)
        near = [self._near(x, sample, group, error, found.least, share) for sample, group in pairs]
        sample_K, row_K = (torch.cat(each) for each in zip(*near, strict=True))
        yield sample_K, self._ids[row_K], self._scores_of(x_Bd, sample_K, row_K, share)

    def _near(
        self, x: Tensor, sample_P: Tensor, group_P: Tensor, error: ScoreError, least: Tensor, share: float
    ) -> tuple[Tensor, Tensor]:
        """Return the rows of some groups that may have the highest score, usually one of a group, and their samples."""
        row_Pg = group_P.unsqueeze(1) * self._group + torch.arange(self._group, device=x.device)
        score_Pg = torch.linalg.vecdot(self._rows_of(group_P, x.dtype), x.index_select(0, sample_P).unsqueeze(1))
        if self._bias is not None:
            score_Pg += (share * self._bias[row_Pg]).to(x.dtype)
        least_P = least[self._part_of[group_P], sample_P] - error.of(sample_P, group_P)
        near_Pg = score_Pg >= least_P.unsqueeze(1)
        place_K, at_K = near_Pg.nonzero().unbind(dim=1)
        return sample_P[place_K], row_Pg[place_K, at_K]

    def error(self, x_Bd: Float[Tensor, "B d"], share: float = 1.0) -> Float[Tensor, " B"]:
        """Bound the error of each sample's scores in float64."""
        return self._error(x_Bd, torch.float64, share).most()

    def _of_all(self, x_Bd: Tensor, some_k: Tensor, share: float) -> tuple[Tensor, Tensor, Tensor]:
        """Compute every score of some samples in float64: so many may be the highest that this is faster."""
        x_kd = x_Bd[some_k]
        score_kn = torch.cat([product(self._rows(some, torch.float64), x_kd) for some in self._steps()]).T
        if self._bias is not None:
            score_kn = score_kn + share * self._bias
        least_k, open_kn = -2 * self.error(x_kd, share), torch.empty_like(score_kn, dtype=torch.bool)
        best_k = score_kn.new_full((len(x_kd),), float("-inf"))
        for part in self._parts:
            best_k = torch.maximum(best_k, score_kn[:, part.rows].amax(dim=1))
            open_kn[:, part.rows] = score_kn[:, part.rows] >= (best_k + least_k).unsqueeze(1)
        place_K, row_K = open_kn.nonzero().unbind(dim=1)
        # a product gives equal rows unequal scores; equal rows are many where so many groups are open
        pairs = torch.unique(place_K * len(self._ids) + self._first_equal[row_K])
        place_K, row_K = pairs // len(self._ids), pairs % len(self._ids)
        return some_k[place_K], self._ids[row_K], self._scores_of(x_Bd, some_k[place_K], row_K, share)

    @cached_property
    def _first_equal(self) -> Int[Tensor, " n"]:
        """For each row the first one of its part that is equal to it."""
        n, d = len(self._ids), self._matrix.shape[1]
        at = torch.arange(n, device=self._ids.device)
        draw = torch.Generator().manual_seed(0)
        x_1d = torch.randn(1, d, dtype=torch.float64, generator=draw).to(self._ids.device)
        score_n = self._scores_of(x_1d, torch.zeros_like(at), at, 1.0)
        first = at.clone()
        for part in self._parts:
            _, kind = score_n[part.rows].unique(return_inverse=True)
            of_kind = at.new_full((len(kind),), n).scatter_reduce_(0, kind, at[part.rows], "amin")
            first[part.rows] = of_kind[kind]
        same = [
            (self._rows(some, torch.float64) == self._rows(first[some], torch.float64)).all(dim=1)
            for some in self._steps()
        ]
        equal = torch.cat(same)
        if self._bias is not None:
            equal &= self._bias == self._bias[first]
        return first.where(equal, at)

    def _scores_of(self, x_Bd: Tensor, sample_K: Tensor, row_K: Tensor, share: float) -> Tensor:
        """Compute the scores of some pairs in float64, shape (K,)."""
        step = max(1, _GATHER // x_Bd.shape[1])
        pairs = zip(sample_K.split(step), row_K.split(step), strict=True)
        return torch.cat([self._score(x_Bd[sample], row, share) for sample, row in pairs])

    def _score(self, x: Tensor, row: Tensor, share: float) -> Tensor:
        """Compute the scores of some rows in float64, equal for equal rows."""
        score = torch.linalg.vecdot(self._rows(row, torch.float64), x)
        return score if self._bias is None else score + share * self._bias[row]

    def _error(self, x_Bd: Tensor, dtype: torch.dtype, share: float) -> ScoreError:
        return ScoreError.of_products(self._norms, share * self._biases, x_Bd, dtype)


def _sum_of_exp(scores: Float[Tensor, "n B"]) -> Float[Tensor, " B"]:
    """Return the sums of the exponentials of scores that are at most 0, which they overwrite.

    Beside a 1, small ones would be lost in float32: they are summed without integer parts, which are added after.
    """
    values = scores.exp_()
    whole_B = values.sum(dim=0)
    part_B = values.frac_().sum(dim=0)
    return part_B.double() + (whole_B - part_B).round().double()
