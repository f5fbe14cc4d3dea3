"""The rows of a matrix with the highest scores ⟨x, row⟩ + bias, for many samples x: products in float32, exact answers.

A product in float32 has an error that is bounded. One pass over it keeps the highest score of each group of rows. The
groups that may hold the highest of all, within that bound, are computed again, and those of their rows that still may,
in float64.

Shapes: B samples, n rows in G groups, d dimensions, P pairs of a sample and a group, K pairs of a sample and a row.
"""

from collections.abc import Iterator, Sequence

import torch
from jaxtyping import Float, Int
from torch import Tensor

from collapse.numerics.kernel import kernel_for
from collapse.numerics.pair_products import pair_products
from collapse.numerics.products import multiplied_by, product
from collapse.numerics.rows import Rows
from collapse.numerics.scored import Scored

_GROUPS = (8, 16)  # rows, of which a pass keeps the highest score: so few that those of all samples fit
_SAMPLES = 2048  # at a time, of few rows: fewer calls, each of fewer rows (_SCORES of rows.py)
_LARGE, _SAMPLES_OF_LARGE = 8192, 1024  # rows of a large vocabulary, and samples at a time
_HIGHEST = 1 << 23  # scores that a pass keeps, at most: one per group and sample (32 MB)
_GATHER = 1 << 21  # numbers gathered at a time
_MANY = 64  # groups of a sample: with more, a pass in float64 is faster than to compute them one by one
_RESOLVED = 8192.0  # below it float32 has a step of at most 2⁻¹¹, and errors of scores are about that
_LARGEST = 1e30  # far below the largest number of float32


def samples_at_once(rows: int) -> int:
    """Return how many samples a pass over so many rows should take.

    >>> samples_at_once(2_048), samples_at_once(50_257), samples_at_once(262_144)
    (2048, 1024, 512)
    """
    most = _SAMPLES_OF_LARGE if rows > _LARGE else _SAMPLES
    return max(1, min(most, _HIGHEST * group_size(rows) // max(1, rows)))


def group_size(rows: int) -> int:
    """Return of how many rows a pass over so many keeps the highest score.

    >>> group_size(2_048), group_size(50_257)
    (8, 16)
    """
    return next((size for size in _GROUPS if _SAMPLES * rows <= _HIGHEST * size), _GROUPS[-1])


class Ranking:
    """Some rows of a matrix, of which the highest scores are wanted.

    Args:
        matrix: Of any dtype, shape (V, d).
        parts: The rows, ascending within each part. What is asked of a part is asked of it and all earlier ones.
        bias: A bias for each row of the matrix, shape (V,), or None.
        centred, originals: As of :class:`~collapse.numerics.rows.Rows`.
    """

    def __init__(
        self,
        matrix: Float[Tensor, "V d"],
        parts: Sequence[Int[Tensor, " _"]],
        bias: Float[Tensor, " V"] | None,
        *,
        centred: bool = False,
        originals: Float[Tensor, "V d"] | None = None,
    ) -> None:
        count = sum(map(len, parts))
        group, samples = group_size(count), samples_at_once(count)
        self._rows = Rows(matrix, parts, bias, group=group, samples=samples, centred=centred, originals=originals)

    @property
    def computed_by(self) -> dict[str, str]:
        """What multiplies, and what passes over the scores: their last digits depend on it."""
        device = self._rows.matrix.device
        compiled = kernel_for(torch.empty(0, device=device))
        return {"products": multiplied_by(device), "passes": "compiled" if compiled else "torch"}

    def scores(
        self, x_Bd: Float[Tensor, "B d"], *, share: float = 1.0, sums: bool = False, exact: bool = False
    ) -> Scored:
        """Compute all scores once, in blocks.

        Args:
            x_Bd: Samples, float64.
            share: Factor of the bias.
            sums: Whether to sum exp(score) too.
            exact: Take products in float64, as sums do where float32 leaves them too few digits.
        """
        rows, dtype = self._rows, torch.float64 if exact else torch.float32
        found = Scored.begin(rows, x_Bd, dtype, share, sums=sums)
        if sums and not exact and not self._sums_in_float32(float(found.error.norm.max())):
            return self.scores(x_Bd, share=share, sums=True, exact=True)
        compiled = kernel_for(found.x)
        take_in = compiled.take_in if compiled else Scored.take_in
        for block in rows.blocks:
            take_in(found, product(rows.of(block.rows, dtype), found.x), block)
        return found

    def _sums_in_float32(self, of_x: float) -> bool:
        """Whether scores in float32 of samples with such norms are so good that sums of their exponentials are."""
        norm, bias = self._rows.largest
        product = norm * of_x
        # a row whose bias is lower still adds less than e^-100 of what the row with the highest bias adds
        return product + min(bias, 2 * product + 100) < _RESOLVED and max(norm, of_x) < _LARGEST

    def candidates(
        self, x_Bd: Float[Tensor, "B d"], found: Scored, *, share: float = 1.0
    ) -> Iterator[tuple[Tensor, Tensor]]:
        """Yield all pairs of a sample and a row whose score may be the highest of the row's part and the earlier ones.

        Args:
            x_Bd: Samples, float64.
            found: Of :meth:`scores` with the same samples and share.
            share: Factor of the bias.

        Yields:
            Samples and their rows, as :meth:`scores_of` and :meth:`ids` take them, each (K,); all of a sample at once.
        """
        rows, error, compiled = self._rows, found.error, kernel_for(found.x)
        if compiled and rows.kept is not None and (near := compiled.near(rows, found, many=_MANY)):
            yield near
            return
        open_GB = torch.empty_like(found.highest, dtype=torch.bool)
        for part, least_B in zip(rows.parts, found.least, strict=True):
            torch.ge(found.highest[part.groups], least_B - error.most(), out=open_GB[part.groups])
        if int(open_GB.count_nonzero()) > _MANY * len(x_Bd):
            for part, least_B in zip(rows.parts, found.least, strict=True):
                open_GB[part.groups] &= found.highest[part.groups] >= least_B - error.of_all(part.groups)
            many_B = open_GB.sum(dim=0) > _MANY
            for some_k in many_B.nonzero().squeeze(1).split(max(1, _GATHER // len(rows))):
                yield self._of_all(x_Bd, some_k, share)
            open_GB &= ~many_B
        group_P, sample_P = open_GB.nonzero().unbind(dim=1)
        step = max(1, _GATHER // (rows.group * rows.dim))
        pairs = zip(sample_P.split(step), group_P.split(step), strict=True)
        open_pairs = [self._near(sample, group, found) for sample, group in pairs]
        sample_K, row_K = (torch.cat(each) for each in zip(*open_pairs, strict=True))
        yield sample_K, row_K

    def scores_of(
        self, x_Bd: Float[Tensor, "B d"], sample_K: Int[Tensor, " K"], row_K: Int[Tensor, " K"], share: float = 1.0
    ) -> Float[Tensor, " K"]:
        """Compute the scores of pairs in float64."""
        score_K = pair_products(self._rows.matrix, self.ids(row_K), x_Bd, sample_K)
        return score_K if self._rows.bias is None else score_K + share * self._rows.bias[row_K]

    def ids(self, row_K: Int[Tensor, " K"]) -> Int[Tensor, " K"]:
        """Return the rows of the matrix."""
        return self._rows.ids[row_K]

    def _near(self, sample_P: Tensor, group_P: Tensor, found: Scored) -> tuple[Tensor, Tensor]:
        """Return the rows of some groups that may have the highest score, usually one of a group, and their samples."""
        rows, x = self._rows, found.x
        row_Pg = group_P.unsqueeze(1) * rows.group + torch.arange(rows.group, device=x.device)
        score_Pg = torch.linalg.vecdot(rows.of(row_Pg, x.dtype), x.index_select(0, sample_P).unsqueeze(1))
        if found.bias is not None:
            score_Pg += found.bias[row_Pg]
        least_P = found.least[rows.part_of[group_P], sample_P] - found.error.of(sample_P, group_P)
        near_Pg = score_Pg >= least_P.unsqueeze(1)
        place_K, at_K = near_Pg.nonzero().unbind(dim=1)
        return sample_P[place_K], row_Pg[place_K, at_K]

    def error(self, x_Bd: Float[Tensor, "B d"], share: float = 1.0) -> Float[Tensor, " B"]:
        """Bound the error of each sample's scores in float64."""
        return self._rows.error(x_Bd.norm(dim=1), torch.float64, share).most()

    def _of_all(self, x_Bd: Tensor, some_k: Tensor, share: float) -> tuple[Tensor, Tensor]:
        """Compute every score of some samples in float64: so many may be the highest that this is faster."""
        rows, x_kd = self._rows, x_Bd[some_k]
        score_kn = torch.cat([product(rows.exact(some), x_kd) for some in rows.steps()]).T
        if rows.bias is not None:
            score_kn = score_kn + share * rows.bias
        least_k, open_kn = -2 * self.error(x_kd, share), torch.empty_like(score_kn, dtype=torch.bool)
        best_k = score_kn.new_full((len(x_kd),), float("-inf"))
        for part in rows.parts:
            best_k = torch.maximum(best_k, score_kn[:, part.rows].amax(dim=1))
            open_kn[:, part.rows] = score_kn[:, part.rows] >= (best_k + least_k).unsqueeze(1)
        place_K, row_K = open_kn.nonzero().unbind(dim=1)
        # a product gives equal rows unequal scores; equal rows are many where so many groups are open
        pairs = torch.unique(place_K * len(rows) + rows.first_equal[row_K])
        return some_k[pairs // len(rows)], pairs % len(rows)
