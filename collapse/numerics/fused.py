"""The elementwise work of a pair sweep in one pass over each tile: the metrics' own functions, compiled together.

Eagerly, every operation of every metric passes over the tile. The compiled function (tracing.py) gives sums of the
values instead; it needs a C++ compiler. What it cannot do is left to the eager sweep: metrics that cannot be traced,
and tiles with near or equal pairs or with a class without a direction. Of the last tiles, which have fewer classes, it
is given whole ones, of which it leaves out the rest.

Shapes: a tile has R rows and R columns, an incomplete one r rows and s columns; P metrics.
"""

import logging
import math
from collections.abc import Callable, Collection, Mapping

import torch
from torch import Tensor

from collapse.numerics.reducing import Taking, is_own
from collapse.numerics.summed import Summed
from collapse.numerics.tiles import Pair, Points
from collapse.numerics.tracing import OF_CLASSES, OF_POINTS, Compiled, Tile, compiled, load, trace
from collapse.plugin.guarding import described
from collapse.plugin.metrics import Metric

log = logging.getLogger("collapse")

WORTH = 1 << 32
"""Pairs of a sweep from which compiling, which takes about 20 seconds, saves more time than it takes."""


class Fused:
    """Pair metrics that are compiled together, for tiles of one size.

    Args:
        points: Values per class of the sweep, on a CPU.
        wanted: Metrics and the reducers of their values, by any key.
        tile: R.
    """

    def __init__(self, points: Points, wanted: Mapping[int, tuple[Metric, Taking]], tile: int) -> None:
        self._points = points
        self._global_sqnorm = points.means.new_tensor(points.global_sqnorm)
        of_classes = [getattr(points.statistics, name) for name in OF_CLASSES]
        values = [getattr(points, name) for name in OF_POINTS]
        values += [each.to(points.means) if each.is_floating_point() else each for each in of_classes]
        without_direction = (points.inverse_norms == 0) | (points.uncentred_inverse_norms == 0)
        self._tile = Tile(tile, points.means.dtype, points.short_means, tuple(each.dtype for each in values))
        # what stands in for the classes that the last tile lacks can be computed with, as a count of 0 cannot
        split = [torch.cat([each, each[-1:].expand(-len(each) % tile)]).split(tile) for each in values]
        starts = range(0, len(points.means), tile)
        self._values = dict(zip(starts, zip(*split, strict=True), strict=True))
        self._without_direction = {start for start in starts if bool(without_direction[start : start + tile].any())}
        self._every_row = points.means.new_full((tile,), tile)
        self._centres: tuple[float, ...] = ()
        self._around_P = points.means.new_empty(0)
        self._metrics: dict[int, Summed] = {}
        for key, (metric, taking) in wanted.items():
            if isinstance(metric.over, str) and all(map(is_own, taking.reducers)):
                self._metrics[key] = Summed(metric, taking, points.means.dtype)
        self._compiled = self._compile()
        self._far = {name: each.clear_of for name, each in points.near.items()}
        self._far["sqdist"] = max(self._far["sqdist"], points.rounding)

    def prepare(self) -> None:
        """Compile, which takes up to 20 seconds, before the first tile."""
        self._function()

    def take(self, pair: Pair) -> Collection[int]:
        """Take in the values of a tile; return the keys of the metrics of which it did."""
        rows, columns = (run.start for run in pair.runs)
        n = math.comb(len(pair.gram), 2) if pair.diagonal else pair.gram.numel()
        if self._compiled is None or not n or self._without_direction.intersection((rows, columns)):
            return ()
        if rows == columns == 0:  # eagerly, for the centres of the next
            return ()
        rows_S, values = self._rows(pair), (*self._values[rows], *self._values[columns])
        function = self._function()
        if function is None:
            return ()
        try:
            sums, *kept = function(rows_S, self._around(), self._whole(pair), self._global_sqnorm, *values)
        except Exception as error:  # a metric's; the eager sweep tells whose
            log.debug("from here on, pair metrics are not compiled: %s", described(error))
            self._compiled = None
            return ()
        numbers, fields = sums.tolist(), self._compiled.least
        if not all(number > self._far[name] for name, number in zip(fields, numbers, strict=False)):
            return ()
        each = iter(numbers[len(fields) :])
        sums_of = dict(zip(self._metrics, zip(each, each, each, strict=True), strict=True))
        values_of = {key: kept.pop(0) for key, metric in self._metrics.items() if metric.traceable.values}
        sure = [key for key, metric in self._metrics.items() if metric.is_sure(sums_of[key], n)]
        if unknown := [key for key in sure if not self._metrics[key].n]:
            paired = _paired(pair.gram, rows_S)
            differing = {key for key in unknown if self._metrics[key].differs(pair, paired, sums_of[key])}
            sure = [key for key in sure if key not in differing]
            self._leave_out(differing)
        for key in sure:
            self._metrics[key].add(sums_of[key], n)
            if key in values_of:
                value = values_of[key]
                value = value if n == value.numel() else value[_paired(value, rows_S)]
                self._metrics[key].add_values(value.view(1, -1))
        return sure

    def finish(self) -> None:
        """Add the sums to the reducers."""
        for metric in self._metrics.values():
            metric.finish()

    def _function(self) -> Callable[..., list[Tensor]] | None:
        """Return the compiled function; compile it unless it was compiled before."""
        try:
            return None if self._compiled is None else self._compiled.function()
        except Exception as error:
            self._give_up(error)
            return None

    def _give_up(self, error: Exception) -> None:
        self._compiled = None
        text = "pair metrics are not compiled, so that measuring takes up to a third longer: %s. Compiling needs a C++ "
        log.warning(text + "compiler, such as g++, and a folder for what it makes", described(error))

    def _around(self) -> Tensor:
        """Return the centre of each metric's values (P,), which changes only until it has sums."""
        centres = tuple(each.centre for each in self._metrics.values())
        if centres != self._centres:
            self._centres, self._around_P = centres, self._around_P.new_tensor(centres)
        return self._around_P

    def _whole(self, pair: Pair) -> Tensor:
        """Return the Gram product, with as many rows and columns as a whole tile."""
        (r, s), size = pair.gram.shape, self._tile.classes
        if r == s == size:
            return pair.gram
        whole = pair.gram.new_zeros(size, size)
        whole[:r, :s] = pair.gram
        return whole

    def _rows(self, pair: Pair) -> Tensor:
        """Return, for each column of a whole tile, the number of rows, from the first, that are paired with it."""
        r, s = pair.gram.shape
        if s == self._tile.classes and not pair.diagonal:
            return self._every_row
        rows_S = torch.zeros_like(self._every_row)
        rows_S[:s] = torch.arange(s) if pair.diagonal else r
        return rows_S

    def _compile(self) -> Compiled | None:
        """Compile all metrics; those that cannot be traced, which is asked only if all together cannot, stay eager."""
        try:
            load()
        except Exception as error:
            self._give_up(error)
            return None
        try:
            return self._together()
        except Exception:
            self._metrics = {key: each for key, each in self._metrics.items() if self._can_be_traced(each)}
        try:
            return self._together()
        except Exception as error:
            log.debug("pair metrics are not compiled together: %s", described(error))
            return None

    def _together(self) -> Compiled | None:
        return compiled(tuple(each.traceable for each in self._metrics.values()), self._tile) if self._metrics else None

    def _can_be_traced(self, metric: Summed) -> bool:
        try:
            trace((metric.traceable,), self._tile)
        except Exception as error:
            log.debug("%s is not compiled: %s", metric.metric.called, described(error))
            return False
        return True

    def _leave_out(self, keys: Collection[int]) -> None:
        """Leave some metrics to the eager sweep, and compile the others."""
        for key in keys:
            metric = self._metrics.pop(key).metric
            log.debug("%s is not compiled: it then gave other numbers", metric.called)
        if keys:
            self._compiled = self._compile()


def _paired(tile: Tensor, rows_S: Tensor) -> Tensor:
    """Return which values of a tile are of pairs: of each column, so many rows from the first."""
    return torch.arange(tile.shape[0]).unsqueeze(1) < rows_S[: tile.shape[1]]
