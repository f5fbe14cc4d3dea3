"""One sweep over tiles of class pairs, for all pair metrics together.

The C×C grid is never formed. The sweep visits the tiles of the upper triangle and computes one Gram product of centred
means per tile. Every field is derived from it at most once and shared by the metrics. Reducers accumulate the values.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache

import torch
from jaxtyping import Float, Int
from torch import Tensor

from collapse.errors import PluginError
from collapse.numerics.freed_memory import keep_freed_memory
from collapse.numerics.lending import settle, tensors_of
from collapse.numerics.reducing import Taken, Taking
from collapse.numerics.returned import as_tile
from collapse.numerics.statistics import EmbeddingStatistics
from collapse.numerics.tiles import LEAVES_OUT_ZEROS, Pair, Points
from collapse.numerics.top_pairs import TopPairs
from collapse.plugin.guarding import Watch, Wrote
from collapse.plugin.metrics import Measure, Metric

TILE = 768
"""Classes per side of a tile on a CPU: its fields fit into the cache.

With smaller tiles threads wait for each other more often, which costs most beside other processes.
"""

_BLOCK = 256
"""Rows of a diagonal tile that are multiplied at a time, with the columns from there on."""


@dataclass(frozen=True)
class Sweep:
    """The result of a sweep.

    Attributes:
        metrics: For each metric its measures, or the exception of its function.
        close_pairs: Number of pairs of unequal means closer than the embeddings' rounding, if a metric uses ``sqdist``.
        rounded: Number of pairs that are equal to the rounding of float64, by the ``over`` that excludes them.
    """

    metrics: list["Swept | Exception"]
    close_pairs: int
    rounded: dict[str, int]


@dataclass(frozen=True)
class Swept:
    """The result of a sweep for one pair metric.

    Attributes:
        taken: The measures over all pairs.
        by_class: The measures over each class's pairs, if requested.
        cast: The dtype of the function's values if it is less precise than the sweep's, or None.
        top: The pairs of largest value, if requested.
    """

    taken: Taken
    by_class: Taken | None = None
    cast: str | None = None
    top: TopPairs | None = None


class SweepStopped(PluginError):
    """A pair metric wrote to the statistics, so that the rest of the sweep would be wrong.

    Attributes:
        wanted: The metric with its measures, as given.
        error: The error, which names what it wrote to.
    """

    def __init__(self, wanted: tuple[Metric, Sequence[Measure]], error: Wrote) -> None:
        super().__init__(f"{wanted[0].called}: {error}")
        self.wanted, self.error = wanted, error


def sweep(
    s: EmbeddingStatistics,
    wanted: Sequence[tuple[Metric, Sequence[Measure]]],
    *,
    tile: int | None = None,
    dtype: torch.dtype = torch.float64,
    by_class: bool = False,
    top: int = 0,
    progress: Callable[[str, int, int | None], None] | None = None,
) -> Sweep:
    """Evaluate pair metrics over all pairs c < c′.

    Args:
        s: Class statistics; the sweep runs on their device.
        wanted: Pair metrics, each with its measures.
        tile: Classes per side of a tile; None for :data:`TILE`, or 4,096 on a GPU.
        dtype: float64, or float32 for a faster sweep, in which more distances are recomputed.
        by_class: Also compute the measures over each class's pairs.
        top: Also find so many pairs of largest value of each metric.
        progress: Called as progress(what, tiles done, tiles).

    Raises:
        SweepStopped: A metric wrote to the statistics.
    """
    tile = tile or (TILE if s.means.device.type == "cpu" else 4096)
    keep_freed_memory()
    settle(s)
    points = Points.of(s, dtype)
    tallies = [_start(s, metric, measures, by_class, top) for metric, measures in wanted]
    watch = Watch(tensors_of(s) | points.tensors())
    gram = torch.empty(tile * tile, dtype=dtype, device=s.means.device)
    close_pairs, rounded = 0, dict.fromkeys(LEAVES_OUT_ZEROS, 0)
    above_of, walk = cache(_above), list(tiles(s.n_classes, tile))
    for done, (rows, columns) in enumerate(walk):
        pair = Pair(points, rows, columns, _product(points.means, rows, columns, gram))
        above = above_of(len(pair.gram), pair.gram.device) if pair.diagonal else None
        close, equal = 0, dict.fromkeys(LEAVES_OUT_ZEROS.values(), 0)
        for index, tally in enumerate(tallies):
            if isinstance(tally, Exception):
                continue
            try:
                returned = tally.metric.of(pair)
                tally.add(returned, pair, rows, columns, above)
                del returned  # frees its memory for the next metric
            except Exception as error:  # a plugin's function costs only its own measurements
                tallies[index] = error
            close = max(close, pair.close_pairs)
            equal |= pair.rounded  # now, because a new pair (below) may not compute all fields again
            if pair.written():
                tallies[index] = Wrote(pair.written())
                pair = Pair(points, rows, columns, _product(points.means, rows, columns, gram))
            if watch.written():
                raise SweepStopped(wanted[index], Wrote(watch.written()))
        close_pairs += close
        for over, field in LEAVES_OUT_ZEROS.items():
            rounded[over] += equal[field]
        if progress:
            progress("sweeping pairs", done + 1, len(walk))
    return Sweep([_result(each) for each in tallies], close_pairs, rounded)


def _start(
    s: EmbeddingStatistics, metric: Metric, measures: Sequence[Measure], by_class: bool, top: int
) -> "_Tally | Exception":
    try:
        return _Tally(s, metric, measures, by_class, top)
    except Exception as error:  # as above
        return error


def _result(tally: "_Tally | Exception") -> "Swept | Exception":
    try:
        return tally if isinstance(tally, Exception) else tally.result()
    except Exception as error:  # a plugin's reducer
        return error


class _Tally:
    """The reducers of one pair metric during a sweep."""

    def __init__(
        self, s: EmbeddingStatistics, metric: Metric, measures: Sequence[Measure], by_class: bool, top: int
    ) -> None:
        self.metric, self.pairs = metric, math.comb(s.n_classes, 2)
        self.all = Taking(measures, s, groups=1)
        self.by_class = Taking(measures, s, groups=s.n_classes) if by_class else None
        self.top = TopPairs.of(top, s.means.device) if top else None
        self.cast: str | None = None

    def add(self, returned: object, pair: Pair, rows: slice, columns: slice, above: Int[Tensor, " n"] | None) -> None:
        values = as_tile(returned, pair.gram)
        if isinstance(returned, Tensor) and returned.dtype != values.dtype and returned.is_floating_point():
            self.cast = str(returned.dtype).removeprefix("torch.")
        skip = pair.left_out(self.metric.over)
        weights = None if skip is None else (~skip).to(values.dtype)
        if self.top is not None:
            self.top.add(values, skip, rows, columns)
        if above is not None:  # a diagonal tile contains every pair twice, and each class with itself
            if self.by_class is not None:
                apart = torch.ones_like(values) if weights is None else weights
                self._add_rows(values, apart.clone().fill_diagonal_(0), rows)
            values, weights = values.take(above), None if weights is None else weights.take(above)
        else:
            self._add_rows(values, weights, rows)
            self._add_rows(values.T, None if weights is None else weights.T, columns)
        if values.numel():  # none in a diagonal tile of one class
            self.all.add(values.view(1, -1), None if weights is None else weights.reshape(1, -1))

    def _add_rows(self, values: Tensor, weights: Tensor | None, run: slice) -> None:
        if self.by_class is not None:
            self.by_class.add(values, weights, run)

    def result(self) -> Swept:
        by_class = self.by_class.taken(self.pairs) if self.by_class else None
        return Swept(self.all.taken(self.pairs), by_class, self.cast, self.top)


def tiles(n: int, tile: int) -> Iterator[tuple[slice, slice]]:
    """Yield the rows and columns of the tiles of the upper triangle, including the diagonal."""
    runs = [slice(start, min(start + tile, n)) for start in range(0, n, tile)]
    for index, rows in enumerate(runs):
        for columns in runs[index:]:
            yield rows, columns


def _product(
    means_Cd: Float[Tensor, "C d"], rows: slice, columns: slice, memory: Float[Tensor, " n"]
) -> Float[Tensor, "R S"]:
    """Compute the Gram product of a tile in the given memory; of a diagonal tile, which is symmetric, two thirds."""
    a_Rd, b_Sd = means_Cd[rows], means_Cd[columns]
    out = memory[: len(a_Rd) * len(b_Sd)].view(len(a_Rd), len(b_Sd))
    if rows != columns:
        return torch.mm(a_Rd, b_Sd.T, out=out)
    for start in range(0, len(a_Rd), _BLOCK):
        stop = start + _BLOCK
        torch.mm(a_Rd[start:stop], a_Rd[start:].T, out=out[start:stop, start:])
        out[stop:, start:stop] = out[start:stop, stop:].T
    return out


def _above(classes: int, device: torch.device) -> Int[Tensor, " n"]:
    """Return the positions above the diagonal in a flattened diagonal tile, where each of its pairs stands once."""
    row_n, column_n = torch.triu_indices(classes, classes, 1, device=device)
    return row_n * classes + column_n
