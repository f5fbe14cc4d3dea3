"""The rows of a matrix with the highest scores ⟨x, row⟩ + bias, for many samples x: products in float32, exact answers.

A product in float32 has an error that is bounded. One pass over it keeps the highest score of each group of rows. The
groups that may hold the highest of all, within that bound, are computed again, and those of their rows that still may,
in float64.

Shapes: B samples, n rows in G groups, d dimensions, K pairs of a sample and a row.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import torch
from jaxtyping import Float, Int
from torch import Tensor

GROUP = 16
"""Rows of which a pass keeps the highest score."""

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
        sums: Of exp(score − the sample's highest), float64, shape (B,); None if they were not asked for.
    """

    highest: Tensor
    sums: Tensor | None

    def rest(self, best_B: Float[Tensor, " B"]) -> tuple[Float[Tensor, " B"], Float[Tensor, " B"]]:
        """Return the highest score t of each sample, and the sum of exp(score − t) over all rows but that one.

        Args:
            best_B: The highest score in float64, or −∞ where it is not known; then t is that of the pass.
        """
        assert self.sums is not None
        top_B = self.highest.amax(dim=0).double()
        best_B = best_B.where(best_B > float("-inf"), top_B)
        return best_B, (self.sums - 1) * (top_B - best_B).exp()


def samples_at_once(rows: int) -> int:
    """Return how many samples a pass over so many rows should take.

    >>> samples_at_once(50_257), samples_at_once(262_144)
    (2048, 512)
    """
    return max(1, min(_SAMPLES, _HIGHEST * GROUP // max(1, rows)))


class Rows:
    """Some rows of a matrix, and a bias for each.

    Args:
        matrix: Of any dtype, shape (V, d).
        ids: The rows, ascending, shape (n,).
        bias: A bias for each row of the matrix, shape (V,), or None.
    """

    def __init__(self, matrix: Float[Tensor, "V d"], ids: Int[Tensor, " n"], bias: Float[Tensor, " V"] | None) -> None:
        self.ids = ids
        self._matrix = matrix
        self._bias = None if bias is None else bias[ids].double()
        self._kept: Tensor | None = None
        if len(ids) * matrix.shape[1] <= _KEPT:
            kept = torch.empty(len(ids), matrix.shape[1], device=matrix.device)
            for at in self._blocks():
                kept[at] = self._rows(at, torch.float32)
            self._kept = kept
        norms = torch.cat([self._rows(at, torch.float64).norm(dim=1) for at in self._blocks()])
        self._norms = _by_group(norms)
        self._biases = _by_group(norms.new_zeros(len(ids)) if self._bias is None else self._bias.abs())

    def _blocks(self) -> list[slice]:
        n = len(self.ids)
        return [slice(start, min(start + _BLOCK, n)) for start in range(0, n, _BLOCK)] or [slice(0, 0)]

    def _rows(self, some: slice | Tensor, dtype: torch.dtype) -> Tensor:
        if self._kept is not None and dtype == torch.float32:
            return self._kept[some]
        return self._matrix[self.ids[some]].to(dtype)

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
        B = len(x_Bd)
        x_dB = x_Bd.to(dtype).T.contiguous()
        highest = x_dB.new_empty(len(self._norms), B)
        buffer = x_dB.new_empty(min(_BLOCK, len(self.ids)), B)
        top_B = x_dB.new_full((B,), float("-inf"))
        sum_B = torch.zeros(B, dtype=torch.float64, device=x_Bd.device)
        for at in self._blocks():
            scores = torch.mm(self._rows(at, dtype), x_dB, out=buffer[: at.stop - at.start])
            if self._bias is not None:
                scores += (share * self._bias[at]).to(dtype).unsqueeze(1)
            here = highest[at.start // GROUP : -(-at.stop // GROUP)]
            whole = len(scores) // GROUP * GROUP
            if whole:
                torch.amax(scores[:whole].view(-1, GROUP, B), dim=1, out=here[: whole // GROUP])
            if whole < len(scores):
                torch.amax(scores[whole:], dim=0, out=here[-1])
            if sums and len(scores):
                before_B, top_B = top_B, torch.maximum(top_B, here.amax(dim=0))
                sum_B = sum_B * (before_B - top_B).double().exp() + _sum_of_exp(scores.sub_(top_B))
        return Pass(highest, sum_B if sums else None)

    def candidates(
        self, x_Bd: Float[Tensor, "B d"], found: Pass, *, share: float = 1.0, floor_B: Tensor | None = None
    ) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
        """Yield all pairs of a sample and a row whose score may be the sample's highest.

        Args:
            x_Bd: Samples, float64.
            found: Of :meth:`scores` with the same samples and share.
            share: Factor of the bias.
            floor_B: Scores below are not asked for.

        Yields:
            Samples, their rows as indices of ``ids``, and scores in float64, each (K,); all pairs of a sample at once.
        """
        dtype = found.highest.dtype
        error = self._error(x_Bd, dtype, share)
        error_GB = error.of_all()
        least_B = (found.highest - error_GB).amax(dim=0)
        if floor_B is not None:
            floor_B = floor_B - floor_B.abs() * torch.finfo(dtype).eps  # it may be rounded up to this dtype
            least_B = torch.maximum(least_B, floor_B.to(dtype))
        open_BG = (error_GB.add_(found.highest) >= least_B).T
        many_B = open_BG.sum(dim=1) > _MANY
        if many_B.any():
            for some_k in many_B.nonzero().squeeze(1).split(max(1, _GATHER // len(self.ids))):
                yield self._of_all(x_Bd, some_k, share)
            open_BG = open_BG & ~many_B.unsqueeze(1)
        sample_P, group_P = open_BG.nonzero().unbind(dim=1)
        x, step = x_Bd.to(dtype), max(1, _GATHER // (GROUP * x_Bd.shape[1]))
        pairs = zip(sample_P.split(step), group_P.split(step), strict=True)
        near = [self._near(x, sample, group, error, least_B, share) for sample, group in pairs]
        sample_K, row_K = (torch.cat(each) for each in zip(*near, strict=True))
        yield sample_K, row_K, self._scores_of(x_Bd, sample_K, row_K, share)

    def _near(
        self, x: Tensor, sample_P: Tensor, group_P: Tensor, error: "_Error", least_B: Tensor, share: float
    ) -> tuple[Tensor, Tensor]:
        """Return the rows of some groups that may have the highest score, usually one of a group, and their samples."""
        row_PG = group_P.unsqueeze(1) * GROUP + torch.arange(GROUP, device=x.device)
        there_PG = row_PG < len(self.ids)
        row_PG = row_PG.clamp_(max=len(self.ids) - 1)
        score_PG = torch.linalg.vecdot(self._rows(row_PG, x.dtype), x[sample_P].unsqueeze(1))
        if self._bias is not None:
            score_PG += (share * self._bias[row_PG]).to(x.dtype)
        least_P = least_B[sample_P] - error.of(sample_P, group_P)
        near_PG = there_PG & (score_PG >= least_P.unsqueeze(1))
        return sample_P.unsqueeze(1).expand_as(row_PG)[near_PG], row_PG[near_PG]

    def error(self, x_Bd: Float[Tensor, "B d"], share: float = 1.0) -> Float[Tensor, " B"]:
        """Bound the error of each sample's scores in float64."""
        error = self._error(x_Bd, torch.float64, share)
        return error.slope.max() * error.norm + error.more.max()

    def _of_all(self, x_Bd: Tensor, some_k: Tensor, share: float) -> tuple[Tensor, Tensor, Tensor]:
        """Compute every score of some samples in float64: so many may be the highest that this is faster."""
        x_dk = x_Bd[some_k].T
        score_kn = torch.cat([self._rows(at, torch.float64) @ x_dk for at in self._blocks()]).T
        if self._bias is not None:
            score_kn = score_kn + share * self._bias
        least_k = score_kn.amax(dim=1) - 2 * self.error(x_Bd[some_k], share)
        place_K, row_K = (score_kn >= least_k.unsqueeze(1)).nonzero().unbind(dim=1)
        # a product gives equal rows unequal scores; equal rows are many where so many groups are open
        pairs = torch.unique(place_K * len(self.ids) + self._first_equal[row_K])
        place_K, row_K = pairs // len(self.ids), pairs % len(self.ids)
        return some_k[place_K], row_K, self._scores_of(x_Bd, some_k[place_K], row_K, share)

    @cached_property
    def _first_equal(self) -> Tensor:
        """For each row the first one that is equal to it, shape (n,)."""
        n, d = len(self.ids), self._matrix.shape[1]
        at = torch.arange(n, device=self.ids.device)
        draw = torch.Generator().manual_seed(0)
        x_1d = torch.randn(1, d, dtype=torch.float64, generator=draw).to(self.ids.device)
        _, kind = self._scores_of(x_1d, torch.zeros_like(at), at, 1.0).unique(return_inverse=True)
        first = at.new_full((n,), n).scatter_reduce_(0, kind, at, "amin")[kind]
        equal = [
            (self._rows(some, torch.float64) == self._rows(first[some], torch.float64)).all(dim=1)
            for some in self._blocks()
        ]
        same = torch.cat(equal)
        if self._bias is not None:
            same &= self._bias == self._bias[first]
        return first.where(same, at)

    def _scores_of(self, x_Bd: Tensor, sample_K: Tensor, row_K: Tensor, share: float) -> Tensor:
        """Compute the scores of some pairs in float64, shape (K,)."""
        step = max(1, _GATHER // x_Bd.shape[1])
        pairs = zip(sample_K.split(step), row_K.split(step), strict=True)
        return torch.cat([self._score(x_Bd[sample], row, share) for sample, row in pairs])

    def _score(self, x: Tensor, row: Tensor, share: float) -> Tensor:
        """Compute the scores of some rows in float64, equal for equal rows."""
        score = torch.linalg.vecdot(self._rows(row, torch.float64), x)
        return score if self._bias is None else score + share * self._bias[row]

    def _error(self, x_Bd: Tensor, dtype: torch.dtype, share: float) -> "_Error":
        """Bound the error of each group's scores.

        A sum of d products is off by at most about d·ε/2·‖x‖‖row‖ + d·tiny; twice that allows for the bias, and for the
        conversion of x and row to this dtype.
        """
        kind, dim = torch.finfo(dtype), x_Bd.shape[1]
        part = (dim + 8) * kind.eps
        more_G = part * (share * self._biases) + 8 * (dim + 8) * kind.tiny
        return _Error((part * self._norms).to(dtype), more_G.to(dtype), x_Bd.norm(dim=1).to(dtype))


@dataclass(frozen=True)
class _Error:
    """A bound on the error of each score of a group and a sample: slope · norm + more.

    Attributes:
        slope, more: Of each group, shape (G,).
        norm: Of each sample, shape (B,).
    """

    slope: Tensor
    more: Tensor
    norm: Tensor

    def of_all(self) -> Float[Tensor, "G B"]:
        return torch.outer(self.slope, self.norm).add_(self.more.unsqueeze(1))

    def of(self, sample_P: Tensor, group_P: Tensor) -> Float[Tensor, " P"]:
        return self.slope[group_P] * self.norm[sample_P] + self.more[group_P]


def _sum_of_exp(scores: Float[Tensor, "n B"]) -> Float[Tensor, " B"]:
    """Return the sums of the exponentials of scores that are at most 0, which they overwrite.

    Beside a 1, small ones would be lost in float32: they are summed without integer parts, which are added after.
    """
    values = scores.exp_()
    whole_B = values.sum(dim=0)
    part_B = values.frac_().sum(dim=0)
    return part_B.double() + (whole_B - part_B).round().double()


def _by_group(values_n: Tensor) -> Tensor:
    """Return the largest value of each group, shape (G,)."""
    missing = -len(values_n) % GROUP
    return torch.cat([values_n, values_n.new_zeros(missing)]).view(-1, GROUP).amax(dim=1)
