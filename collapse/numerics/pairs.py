"""One sweep over tiles of class pairs, for all pair metrics together.

The C×C grid is never formed. The sweep visits the tiles of the upper triangle, computes one Gram product of centred
means per tile, and cuts it into strips that stay in the cache. Every field of a strip is derived at most once and
shared by the metrics. Reducers accumulate the values.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from collapse.core.progress import Report
from collapse.numerics.reducing import Tally, TopPairs
from collapse.numerics.statistics import EmbeddingStatistics
from collapse.numerics.tiles import ClassGeometry, Tile
from collapse.numerics.values import Values, plain, values_of
from collapse.plugin.guarding import Failed, described
from collapse.plugin.metrics import Measure, Metric, Noted
from collapse.plugin.parameters import closure, functions_of_pairs, of_tiles

TILE = 768
"""Classes per side of a tile on a CPU, large enough for a fast product."""

_STRIP = 1 << 16
"""Pairs of a strip for each thread: a few fields of them stay in its cache."""


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

    def add(self, tile: Tile, rows: slice, columns: slice) -> None:
        """Add the metric's values of a tile; a diagonal one holds every pair twice."""
        try:
            found = tile.value(self.metric.function)
            self.remark = found if isinstance(found, Noted) else self.remark
            values = plain(found)
            if values is not None:
                self._add(values, rows, columns)
        except Failed as error:
            self.failed = error
        except Exception as error:  # a plugin's reducer
            self.failed = Failed(self.metric.function, described(error))

    def _add(self, values: Float[Tensor, "R S"], rows: slice, columns: slice) -> None:
        diagonal = rows.start == columns.start
        if self.top is not None:
            self.top.add(values, rows, columns)
        if self.by_class is not None and diagonal:
            if len(values) > 1:
                self.by_class.add(_without_diagonal(values), rows)
        elif self.by_class is not None:
            self.by_class.add(values, rows)
            self.by_class.add(values.T, columns)
        if diagonal:
            row_n, column_n = torch.triu_indices(len(values), len(values), 1, device=values.device)
            values = values[row_n, column_n]
        self.all.add(values.view(1, -1))


@dataclass
class Sweep:
    """The result of a sweep.

    Attributes:
        metrics: Each metric's result, in the order in which they were wanted.
        counts: By field, number of pairs treated as equal for the rounding of float64; as "close", if a metric uses
            ``sqdist``, of pairs of unequal means closer than the embeddings' rounding.
    """

    metrics: list[Swept]
    counts: Counter[str] = field(default_factory=Counter)


def sweep(
    values: Values | EmbeddingStatistics,
    wanted: Sequence[tuple[Metric, Sequence[Measure]]],
    *,
    tile: int | None = None,
    by_class: bool = False,
    top: int = 0,
    progress: Report | None = None,
) -> Sweep:
    """Evaluate pair metrics over all pairs c < c′. One that writes to what others read costs a second sweep.

    Args:
        values: What functions of classes give; the sweep runs on the device of the statistics.
        wanted: Pair metrics, each with its measures.
        tile: Classes per side of a tile; None for :data:`TILE`, or 4,096 on a GPU.
        by_class: Also compute the measures over each class's pairs.
        top: Also find so many pairs of largest value of each metric.
        progress: Called as progress(what, tiles done, tiles).
    """
    values = values if isinstance(values, Values) else values_of(values)
    tile = tile or (TILE if values.s.means.device.type == "cpu" else 4096)
    failed: dict[int, Failed] = {}
    while True:
        swept = [_begun(values, *each, by_class, top, failed.get(id(each[0]))) for each in wanted]
        found = Sweep(swept, _run(values, swept, tile, progress))
        wrote = {id(each.metric): each.failed for each in swept if each.failed is not None and each.failed.wrote}
        if wrote.keys() <= failed.keys():
            return found
        failed |= wrote
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
    return Swept(metric, measures, all_pairs, of_classes, TopPairs(top, device) if top else None, failed=failed)


def _run(values: Values, swept: Sequence[Swept], tile: int, progress: Report | None) -> Counter[str]:
    """Add all pairs, until a function writes to what others read."""
    kept = set().union(*(functions_of_pairs(each.metric.function) for each in swept))
    for each in swept:
        try:
            _prepare(values, each.metric.function)
        except Failed as error:  # before the sweep, which a function of classes that writes would spoil
            each.failed = error
    geometry = ClassGeometry(values.s)
    memory = torch.empty(tile * tile, dtype=torch.float64, device=values.s.means.device)
    height = max(1, _STRIP * torch.get_num_threads() // tile)
    walk = list(tiles(values.s.n_classes, tile))
    for done, (rows, columns) in enumerate(walk, start=1):
        gram = _product(geometry.means, rows, columns, height, memory)
        for strip, across in strips(rows, columns, height):
            part = gram[strip.start - rows.start : strip.stop - rows.start, across.start - columns.start :]
            piece = Tile(geometry, values, strip, across, part[:, : across.stop - across.start], kept)
            for each in swept:
                if each.failed is None:
                    each.add(piece, strip, across)
                    if each.failed is not None and each.failed.wrote:
                        return geometry.counts
        if progress:
            progress("sweeping pairs", done, len(walk))
    return geometry.counts


def _prepare(values: Values, function: Callable[..., Any]) -> None:
    """Compute the class values that a function of pairs asks for."""
    for each in closure(function):
        each = each.target if each.kind == "block" else each
        if each.kind != "field" and not (each.kind == "function" and of_tiles(each.target)):
            values.argument(each)


def tiles(n: int, tile: int) -> Iterator[tuple[slice, slice]]:
    """Yield the rows and columns of the tiles of the upper triangle, including the diagonal."""
    runs = [slice(start, min(start + tile, n)) for start in range(0, n, tile)]
    for index, rows in enumerate(runs):
        for columns in runs[index:]:
            yield rows, columns


def strips(rows: slice, columns: slice, height: int) -> Iterator[tuple[slice, slice]]:
    """Cut a tile into strips of rows; one of a diagonal tile into its own diagonal tile and what is right of it.

    >>> [(row.start, column.start, column.stop) for row, column in strips(slice(0, 4), slice(0, 4), 2)]
    [(0, 0, 2), (0, 2, 4), (2, 2, 4)]
    """
    for start in range(rows.start, rows.stop, height):
        strip = slice(start, min(start + height, rows.stop))
        if rows != columns:
            yield strip, columns
            continue
        yield strip, strip
        if strip.stop < columns.stop:
            yield strip, slice(strip.stop, columns.stop)


def _product(
    means_Cd: Float[Tensor, "C d"], rows: slice, columns: slice, height: int, memory: Float[Tensor, " n"]
) -> Float[Tensor, "R S"]:
    """Compute the Gram product of a tile in the given memory; of a diagonal tile only what its strips need."""
    a_Rd, b_Sd = means_Cd[rows], means_Cd[columns]
    out = memory[: len(a_Rd) * len(b_Sd)].view(len(a_Rd), len(b_Sd))
    if rows != columns:
        return torch.mm(a_Rd, b_Sd.T, out=out)
    for start in range(0, len(a_Rd), height):
        strip = slice(start, start + height)
        torch.mm(a_Rd[strip], b_Sd[start:].T, out=out[strip, start:])
    return out


def _without_diagonal(values: Float[Tensor, "R R"]) -> Float[Tensor, "R S"]:
    """Return each row without the pair of a class with itself.

    >>> _without_diagonal(torch.arange(9.0).view(3, 3)).tolist()
    [[1.0, 2.0], [3.0, 5.0], [6.0, 7.0]]
    """
    n = len(values)
    return values.flatten()[1:].view(n - 1, n + 1)[:, :-1].reshape(n, n - 1)
