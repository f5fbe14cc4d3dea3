"""One sweep over tiles of class pairs, for all pair metrics together.

The C×C grid is never formed. The sweep visits the tiles of the upper triangle and computes one Gram product of centred
means per tile. Every field is derived from it at most once and shared by the metrics. Measures reduce the values.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from collapse.numerics.freed_memory import keep_freed_memory
from collapse.numerics.reducing import Tally
from collapse.numerics.statistics import EmbeddingStatistics
from collapse.numerics.tiles import NEAR, Points, Tile
from collapse.numerics.top_pairs import TopPairs
from collapse.numerics.values import Values, values_of
from collapse.plugin.guarding import Failed, described
from collapse.plugin.metrics import Measure, Metric, Noted
from collapse.plugin.parameters import closure, functions_of_pairs, of_tiles

TILE = 768
"""Classes per side of a tile on a CPU: its fields fit into the cache.

With smaller tiles threads wait for each other more often, which costs most beside other processes.
"""

_BLOCK = 256
"""Rows of a diagonal tile that are multiplied at a time, with the columns from there on."""


@dataclass
class Swept:
    """One pair metric during a sweep, and its result.

    Attributes:
        metric, measures: As wanted.
        all: The measures over all pairs.
        by_class: The measures over each class's pairs, if requested.
        top: The pairs of largest value, if requested.
        remark: The remark of a value that the function asks for.
        failed: Why there is no result; its values are then incomplete.
    """

    metric: Metric
    measures: Sequence[Measure]
    all: Tally
    by_class: Tally | None = None
    top: TopPairs | None = None
    remark: Noted | None = None
    failed: Failed | None = None

    def add(self, values: Tensor, rows: slice, columns: slice, above: Int[Tensor, " n"] | None) -> None:
        """Add a tile; ``above`` are the places of its pairs where a diagonal one contains each twice."""
        if self.top is not None:
            self.top.add(values, rows, columns)
        if self.by_class is not None:
            if above is None:
                self.by_class.add(values, rows)
                self.by_class.add(values.T, columns)
            else:
                self.by_class.add(_without_diagonal(values), rows)
        self.all.add((values if above is None else values.take(above)).view(1, -1))


@dataclass
class Sweep:
    """The result of a sweep.

    Attributes:
        metrics: Each metric's result, in the order in which they were wanted.
        close_pairs: Number of pairs of unequal means closer than the embeddings' rounding, if a metric uses ``sqdist``.
        rounded, zeros: By field, number of pairs treated as equal for the rounding of float64, and of all equal pairs.
    """

    metrics: list[Swept]
    close_pairs: int = 0
    rounded: dict[str, int] = field(default_factory=lambda: dict.fromkeys(NEAR, 0))
    zeros: dict[str, int] = field(default_factory=lambda: dict.fromkeys(NEAR, 0))


def sweep(
    values: Values | EmbeddingStatistics,
    wanted: Sequence[tuple[Metric, Sequence[Measure]]],
    *,
    tile: int | None = None,
    dtype: torch.dtype = torch.float64,
    by_class: bool = False,
    top: int = 0,
    progress: Callable[[str, int, int | None], None] | None = None,
) -> Sweep:
    """Evaluate pair metrics over all pairs c < c′. One that writes to what others read costs a second sweep.

    Args:
        values: What functions of classes give; the sweep runs on the device of the statistics.
        wanted: Pair metrics, each with its measures.
        tile: Classes per side of a tile; None for :data:`TILE`, or 4,096 on a GPU.
        dtype: float64, or float32 for a faster sweep, in which more distances are recomputed.
        by_class: Also compute the measures over each class's pairs.
        top: Also find so many pairs of largest value of each metric.
        progress: Called as progress(what, tiles done, tiles).
    """
    values = values if isinstance(values, Values) else values_of(values)
    tile = tile or (TILE if values.s.means.device.type == "cpu" else 4096)
    keep_freed_memory()
    failed: dict[int, Failed] = {}
    while True:
        swept = [_begun(values, *each, by_class, top, failed.get(id(each[0]))) for each in wanted]
        found = _swept(values, swept, tile, dtype, progress)
        wrote = [each for each in swept if each.failed is not None and each.failed.wrote]
        if all(id(each.metric) in failed for each in wrote):
            return found
        failed |= {id(each.metric): each.failed for each in wrote if each.failed is not None}
        values.renew()


def _begun(
    values: Values, metric: Metric, measures: Sequence[Measure], by_class: bool, top: int, failed: Failed | None
) -> Swept:
    C, d, device = values.s.n_classes, values.s.dim, values.s.means.device
    try:
        all_pairs = Tally(measures, C, d, device)
        of_classes = Tally(measures, C, d, device, groups=C) if by_class else None
    except Exception as error:  # a plugin's measure
        return Swept(metric, measures, Tally((), C, d), failed=Failed(metric.function, described(error)))
    return Swept(metric, measures, all_pairs, of_classes, TopPairs.of(top, device) if top else None, failed=failed)


def _swept(
    values: Values,
    swept: Sequence[Swept],
    tile: int,
    dtype: torch.dtype,
    progress: Callable[[str, int, int | None], None] | None,
) -> Sweep:
    kept = set().union(*(functions_of_pairs(each.metric.function) for each in swept))
    for each in swept:
        try:
            _prepare(values, each.metric.function)
        except Failed as error:  # before the sweep, which a function of classes that writes would spoil
            each.failed = error
    points = Points.of(values.s, dtype)
    found = Sweep(list(swept))
    gram = torch.empty(tile * tile, dtype=dtype, device=values.s.means.device)
    above_of, walk = cache(_above), list(tiles(values.s.n_classes, tile))
    for done, (rows, columns) in enumerate(walk):
        pair = Tile(points, values, rows, columns, _product(points.means, rows, columns, gram), kept)
        above = above_of(len(pair.gram), pair.gram.device) if pair.diagonal else None
        for each in swept:
            if each.failed is None:
                _add(each, pair, rows, columns, above)
                if each.failed is not None and each.failed.wrote:
                    return found
        found.close_pairs += pair.close_pairs
        for name, number in pair.rounded.items():
            found.rounded[name] += number
            found.zeros[name] += pair.zeros[name]
        if progress:
            progress("sweeping pairs", done + 1, len(walk))
    return found


def _prepare(values: Values, function: Callable[..., Any]) -> None:
    """Compute the class values that a function of pairs asks for."""
    for each in closure(function):
        if each.kind != "field" and not (each.kind == "function" and of_tiles(each.target)):
            values.argument(each)


def _add(swept: Swept, pair: Tile, rows: slice, columns: slice, above: Tensor | None) -> None:
    try:
        value = pair.value(swept.metric.function)
        if isinstance(value, Noted):
            swept.remark, value = value, value.value
        if value is not None:
            swept.add(value, rows, columns, above)
    except Failed as error:
        swept.failed = error
    except Exception as error:  # a plugin's measure
        swept.failed = Failed(swept.metric.function, described(error))


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


def _without_diagonal(values: Float[Tensor, "R R"]) -> Float[Tensor, "R S"]:
    """Return each row without the pair of a class with itself.

    >>> _without_diagonal(torch.arange(9.0).view(3, 3)).tolist()
    [[1.0, 2.0], [3.0, 5.0], [6.0, 7.0]]
    """
    n = len(values)
    return values.flatten()[1:].view(n - 1, n + 1)[:, :-1].reshape(n, n - 1)


def _above(classes: int, device: torch.device) -> Int[Tensor, " n"]:
    """Return the positions above the diagonal in a flattened diagonal tile, where each of its pairs stands once."""
    row_n, column_n = torch.triu_indices(classes, classes, 1, device=device)
    return row_n * classes + column_n
