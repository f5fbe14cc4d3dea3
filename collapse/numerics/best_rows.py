"""Find, for many samples x, the rows with the highest scores ⟨x, row⟩ + bias: exact results from float32 products.

1. One pass in float32 computes all scores, block by block. For each block and sample it keeps two numbers: the highest
   score m and the sum of exp(score − m). Blocks of scores stay in the processor's cache. x and biases are
   multiplied by log₂ e first, so that exp becomes exp2, which is up to four times as fast.
2. The error of a score is at most E. Let L be a sample's largest m − E over all blocks. (If rows are in several groups,
   each group has its own L, over the blocks of this and earlier groups.) The best score is at least L, so it can only
   be in blocks with m + E ≥ L, mostly one block per sample. These *open* blocks are computed again. Rows with scores of
   at least L − E are the candidates; the caller computes their scores in float64. If a block has many candidates, they
   are first compared in float64, which leaves fewer of them.
3. A row that equals an earlier row is not a candidate: ties go to the first.

Before rounding to float32, the mean row is subtracted from all rows, and the highest bias from all biases. This
subtracts the same number, the sample's offset, from all scores of a sample. So their order and differences do not
change, and a large offset costs no digits. (The mean bias would not do: very negative biases would dominate it.)

Shapes: B samples, n rows in G blocks, r rows of a block, d dimensions, P samples for which a block is computed again, K
candidates.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from collapse.numerics.devices import cut, work_sizes
from collapse.numerics.logits import Logits
from collapse.numerics.products import product
from collapse.numerics.ties import first_of_equal

_KEPT = 1 << 26  # a matrix of at most this many numbers is kept in float32 (256 MB); else each block is converted again
_MANY = 32  # if a block has more candidates per sample, they are compared in float64
_RESOLVED = 8192.0  # below it float32 has a step of at most 2⁻¹¹, about the error of a score
_LARGEST = 1e30  # far below the largest number of float32
_LOG2_E = math.log2(math.e)


@dataclass(frozen=True)
class Found:
    """The result of :meth:`Ranking.search`: the candidates of each sample, and numbers for the loss.

    The groups of rows are those of :class:`Ranking`. For each sample, the candidates contain the row with the highest
    score in group 1, the row with the highest score in groups 1 and 2, and so on. The caller computes exact scores of
    the candidates to find these rows.

    Attributes:
        samples, rows: For each candidate, the index of its sample and its row in the matrix, each of shape (K,).
        top: The highest score of each sample, exact up to rounding; with ``sums`` and a cap, the capped score.
        others: The sum of exp(score − top) over all rows except one row with the score ``top``; 0 without ``sums``.
    """

    samples: Int[Tensor, " K"]
    rows: Int[Tensor, " K"]
    top: Float[Tensor, " B"]
    others: Float[Tensor, " B"]

    def rest(self, best_B: Float[Tensor, " B"]) -> Float[Tensor, " B"]:
        """Return the sum of exp(score − best) over all rows except the best row.

        ``best_B`` is the exact score of the best row; with a cap, it is the capped score.
        """
        # top and best differ by float32 rounding, far below 1; the clamp is for logits so huge that float64 rounds more
        return self.others * (self.top - best_B).clamp(-1, 1).exp()


class _Samples(NamedTuple):
    """The samples of a search; ``x`` (float64), ``bias_factor`` and ``offset`` include the factor log₂ e."""

    x: Float[Tensor, "B d"]
    bias_factor: float
    offset: Float[Tensor, " B"]
    dtype: torch.dtype
    sums: bool


class Ranking:
    """Search for the rows of a matrix with the highest scores.

    Args:
        matrix: Of any dtype, shape (V, d).
        groups: Groups of rows, ascending within each group. Candidates include the best rows of group 1, of groups 1
            and 2 together, and so on.
        bias: A bias for each row of the matrix, shape (V,), or None.
        centre, divisor: A vector, shape (d,), and a power of two. The rows to search are (row of the matrix − centre)
            / divisor.
        cap: The cap of scores, as in :class:`~collapse.numerics.logits.Logits`. It changes the sums of exponentials,
            but not the order of scores or the candidates.
    """

    def __init__(
        self,
        matrix: Float[Tensor, "V d"],
        groups: Sequence[Int[Tensor, " _"]],
        bias: Float[Tensor, " V"] | None,
        *,
        centre: Float[Tensor, " d"] | None = None,
        divisor: float = 1.0,
        cap: float | None = None,
    ) -> None:
        self._cap = None if cap is None else Logits(cap=cap * _LOG2_E)
        self._matrix, self._all_biases, self._work = matrix, bias, work_sizes(matrix.device)
        self._centre, self._divisor = centre, divisor
        self._ids = torch.cat(list(groups))
        self._bias = None if bias is None else bias[self._ids].double()
        self._highest_bias = 0.0 if self._bias is None else float(self._bias.max())
        self._blocks, self._groups = cut([len(group) for group in groups], self._work.rows)
        count, self._dim = len(self._ids), matrix.shape[1]
        self._mean = torch.zeros(self._dim, dtype=torch.float64, device=matrix.device)
        for block in self._blocks:
            self._mean += self._rows(self._ids[block]).sum(dim=0) / count
        self._float32_rows: Tensor | None = None
        if count * self._dim <= _KEPT:
            self._float32_rows = torch.empty(count, self._dim, dtype=torch.float32, device=matrix.device)
        norms = []
        for block in self._blocks:
            exact_rd = self._rows(self._ids[block])
            shifted_rd = exact_rd - self._mean
            norms.append(torch.stack([exact_rd.norm(dim=1).max(), shifted_rd.norm(dim=1).max()]))
            if self._float32_rows is not None:
                self._float32_rows[block] = shifted_rd
        self._norm_G, self._shifted_norm_G = torch.stack(norms).unbind(dim=1)
        self._is_first = first_of_equal(matrix, groups, bias, self._work.rows)

    def search(
        self, x_Bd: Float[Tensor, "B d"], *, bias_factor: float = 1.0, sums: bool = False, exact: bool = False
    ) -> Found:
        """Find the rows that may have the highest scores.

        Args:
            x_Bd: Samples, float64.
            bias_factor: The bias is multiplied by this.
            sums: Also sum the exponentials of the scores, for the loss.
            exact: Compute all scores in float64. With ``sums``, float64 is also used if float32 is not accurate enough.
        """
        x_Bd, bias_factor = x_Bd * _LOG2_E, bias_factor * _LOG2_E
        norm_B = x_Bd.norm(dim=1)
        exact = exact or (sums and not self._sums_in_float32(norm_B))
        dtype = torch.float64 if exact else torch.float32
        offset_B = x_Bd @ self._mean + bias_factor * self._highest_bias
        samples = _Samples(x_Bd, bias_factor, offset_B, dtype, sums)
        highest_GB, total_GB = self._screen(samples)  # step 1 of the module's description
        # step 2: near_GB is the lowest score of a candidate
        error_GB = self.error(norm_B, dtype, highest_GB)
        least_GB, least_B = torch.empty_like(highest_GB), torch.full_like(norm_B, -torch.inf)
        for blocks in self._groups:  # a lower bound of the highest score in this and earlier groups
            least_B = torch.maximum(least_B, (highest_GB[blocks] - error_GB[blocks]).amax(dim=0))
            least_GB[blocks] = least_B
        open_GB = highest_GB + error_GB >= least_GB
        near_GB = (least_GB - error_GB).to(dtype)  # error() is twice the needed bound, which covers rounding to dtype
        sample_K, row_K, best_GB, rest_GB = self._reopen(samples, open_GB, near_GB, highest_GB, total_GB)
        top_B, others_B = best_GB.masked_fill(~open_GB, -torch.inf).amax(dim=0), torch.zeros_like(norm_B)
        if sums:
            if self._cap is not None:  # a cap applies to whole scores: add the offset before, and not again below
                best_GB, top_B = self._cap.capped(best_GB + offset_B), self._cap.capped(top_B + offset_B)
                offset_B = torch.zeros_like(offset_B)
            # The total of a closed block includes its highest row. The rest of an open block excludes it (see _reopen),
            # so it is added here.
            weight_GB = (best_GB - top_B).exp2_()
            of_highest_B = (weight_GB * open_GB).sum(dim=0)
            others_B = (rest_GB * weight_GB).sum(dim=0) + of_highest_B - 1  # minus the row with the top score
        return Found(sample_K, row_K, (top_B + offset_B) / _LOG2_E, others_B)

    def scores_of(
        self, x_Bd: Float[Tensor, "B d"], sample_K: Int[Tensor, " K"], row_K: Int[Tensor, " K"], bias_factor: float
    ) -> Float[Tensor, " K"]:
        """Compute the scores of (sample, row) pairs in float64; equal rows get equal scores."""
        pieces = zip(*(each.split(max(1, self._work.gathered // self._dim)) for each in (sample_K, row_K)), strict=True)
        score_K = torch.cat([torch.linalg.vecdot(self._rows(row), x_Bd[sample]) for sample, row in pieces])
        return score_K if self._all_biases is None else score_K + bias_factor * self._all_biases[row_K].double()

    def error(
        self, norm_B: Float[Tensor, " B"], dtype: torch.dtype, score: Float[Tensor, "*G B"]
    ) -> Float[Tensor, "G B"]:
        """Return, for each block and sample, a bound on the errors of scores that are computed in a dtype.

        ``score`` has each sample's highest score, per block or in all. ε and tiny are those of ``torch.finfo(dtype)``.
        A sum of d products has an error of at most about d·ε/2·‖x‖‖row‖ + d·tiny, in any order of addition. Twice that
        also covers the conversion of x and row to ``dtype``. |bias| is at most |score| + ‖x‖‖row‖. Numbers below tiny
        may become 0; this error is at most √d·tiny times the norm of the other vector. The error of float64 is added,
        so that no row is lost that may have the highest score in float64.
        """
        kind, of_float64 = torch.finfo(dtype), (self._dim + 8) * torch.finfo(torch.float64).eps
        relative, lost = (self._dim + 8) * kind.eps, 8 * self._dim**0.5 * kind.tiny
        slope_G = relative * self._shifted_norm_G + of_float64 * self._norm_G + lost
        more_G = lost * self._shifted_norm_G + 8 * (self._dim + 8) * kind.tiny + of_float64 * abs(self._highest_bias)
        error_GB = torch.outer(slope_G, norm_B) + more_G.unsqueeze(1)
        return error_GB if self._bias is None else error_GB + relative * score.abs()

    def _sums_in_float32(self, norm_B: Float[Tensor, " B"]) -> bool:
        """Return whether float32 scores of samples with these norms are accurate enough to sum their exponentials."""
        row, x = float(self._shifted_norm_G.max()), float(norm_B.max())
        # a row whose bias is more than twice this product below the highest adds almost nothing to the sum
        largest_score = row * x * (1 if self._bias is None else 3)
        return largest_score < _RESOLVED and max(row, x) < _LARGEST

    def _rows(self, ids: Int[Tensor, " r"]) -> Float[Tensor, "r d"]:
        rows_rd = self._matrix[ids].double()  # a copy
        return rows_rd if self._centre is None else rows_rd.sub_(self._centre).mul_(1 / self._divisor)

    def _scores(
        self, x_Bd: Float[Tensor, "B d"], block: slice, bias_n: Float[Tensor, " n"] | None
    ) -> Float[Tensor, "B r"]:
        """Return the scores of a block's rows, in the dtype of x, without the sample's offset (see the module).

        Here and in the methods below, scores include the factor log₂ e.
        """
        if self._float32_rows is not None and x_Bd.dtype == torch.float32:
            rows_rd = self._float32_rows[block]
        else:
            rows_rd = self._rows(self._ids[block]).sub_(self._mean).to(x_Bd.dtype)
        return product(x_Bd, rows_rd, None if bias_n is None else bias_n[block])

    def _biases(self, bias_factor: float, dtype: torch.dtype) -> Float[Tensor, " n"] | None:
        if self._bias is None:
            return None
        bias_n = bias_factor * (self._bias - self._highest_bias)
        return bias_n.clamp(min=torch.finfo(dtype).min / 8).to(dtype)  # finite in float32 too

    def _screen(self, samples: _Samples) -> tuple[Float[Tensor, "G B"], Float[Tensor, "G B"]]:
        """Return, for each block and sample, the highest score m and the sum of exp2(score − m), in float64.

        The sums are 0 if ``sums`` is False.
        """
        dtype = samples.dtype
        x_Bd, bias_n = samples.x.to(dtype).contiguous(), self._biases(samples.bias_factor, dtype)
        offset_B1 = samples.offset.to(dtype).unsqueeze(1)
        highest_GB = x_Bd.new_empty(len(self._blocks), len(x_Bd))
        total_GB = torch.zeros_like(highest_GB)
        for g, block in enumerate(self._blocks):
            for start in range(0, len(x_Bd), self._work.samples):
                some = slice(start, start + self._work.samples)
                score_br = self._scores(x_Bd[some], block, bias_n)
                highest_b = torch.amax(score_br, dim=1, out=highest_GB[g, some])
                if samples.sums:
                    term_br = self._terms(score_br, highest_b.unsqueeze(1), offset_B1[some])
                    torch.sum(term_br, dim=1, out=total_GB[g, some])
        return highest_GB.double(), total_GB.double()

    def _reopen(
        self,
        samples: _Samples,
        open_GB: Bool[Tensor, "G B"],
        near_GB: Float[Tensor, "G B"],
        highest_GB: Float[Tensor, "G B"],
        total_GB: Float[Tensor, "G B"],
    ) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Find the candidates: compute the scores of the open blocks of rows again (step 2 of the module).

        A block is open for a sample if ``open_GB`` is True: it may contain the row with the sample's highest score.
        A row of an open block is a candidate if its score is at least ``near_GB``, and no earlier row equals it.

        Returns:
            The sample and the row of each candidate, then ``highest_GB`` and ``total_GB`` from :meth:`_screen`. With
            ``sums``, the last two are copies with new numbers in open blocks: the highest score m, and the sum of
            exp2(score − m) over all rows of the block except the row with score m. The term of this row is 1. If 1
            were added, small terms would lose digits.
        """
        x_Bd, bias_factor, offset_B, dtype, sums = samples
        given_Bd, bias_n = x_Bd.to(dtype), self._biases(bias_factor, dtype)
        candidates = []
        best_GB, rest_GB = (highest_GB.clone(), total_GB.clone()) if sums else (highest_GB, total_GB)
        # nonzero() is ordered by block, so this gives the samples of each block
        open_samples = open_GB.nonzero()[:, 1].split(open_GB.sum(dim=1).tolist())
        for g, (block, sample_P) in enumerate(zip(self._blocks, open_samples, strict=True)):
            if not len(sample_P):
                continue
            score_Pr = self._scores(given_Bd[sample_P], block, bias_n)
            near_Pr = (score_Pr >= near_GB[g, sample_P].unsqueeze(1)) & self._is_first[block]
            place_K, row_K = near_Pr.nonzero().unbind(dim=1)
            if len(row_K) > _MANY * len(sample_P) and dtype == torch.float32:
                near_Pr = self._near_in_float64(x_Bd[sample_P], bias_factor, g, near_Pr)
                place_K, row_K = near_Pr.nonzero().unbind(dim=1)
            candidates.append((sample_P[place_K], self._ids[block][row_K]))
            if sums:
                highest_P, row_P = score_Pr.max(dim=1, keepdim=True)
                offset_P1 = offset_B[sample_P].to(dtype).unsqueeze(1)
                rest_Pr = self._terms(score_Pr, highest_P, offset_P1).scatter_(1, row_P, 0)
                best_GB[g, sample_P] = highest_P.squeeze(1).double()
                rest_GB[g, sample_P] = rest_Pr.sum(dim=1).double()
        sample_K, row_K = (torch.cat(each) for each in zip(*candidates, strict=True))
        return sample_K, row_K, best_GB, rest_GB

    def _terms(self, score_br: Tensor, highest_b1: Tensor, offset_b1: Tensor) -> Tensor:
        """Return exp2(score − highest); with a cap, first add the offset and cap both. ``score_br`` is overwritten."""
        if self._cap is None:
            return score_br.sub_(highest_b1).exp2_()
        return self._cap.capped(score_br.add_(offset_b1)).sub_(self._cap.capped(highest_b1 + offset_b1)).exp2_()

    def _near_in_float64(
        self, x_Pd: Float[Tensor, "P d"], bias_factor: float, g: int, near_Pr: Bool[Tensor, "P r"]
    ) -> Bool[Tensor, "P r"]:
        """Return which candidates of a block may still have the highest score if scores are computed in float64."""
        score_Pr = self._scores(x_Pd, self._blocks[g], self._biases(bias_factor, torch.float64))
        highest_P = score_Pr.masked_fill(~near_Pr, -torch.inf).amax(dim=1)
        error_P = self.error(x_Pd.norm(dim=1), torch.float64, highest_P)[g]
        return near_Pr & (score_Pr >= (highest_P - 2 * error_P).unsqueeze(1))
