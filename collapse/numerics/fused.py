"""The elementwise work of a pair sweep in one pass over each tile: the metrics' own functions, compiled together.

Eagerly, every operation of every metric passes over the tile. The compiled function (tracing.py) gives sums of the
values instead; it needs a C++ compiler. What it cannot do is left to the eager sweep: metrics that cannot be traced,
diagonal and incomplete tiles, and tiles with near or equal pairs or with a class without a direction.

Shapes: a tile has R rows and R columns; P metrics.
"""

import logging
import math
from collections.abc import Collection, Mapping, Sequence

import torch
from torch import Tensor

from collapse.numerics.reducing import Taking, is_own
from collapse.numerics.returned import as_tile
from collapse.numerics.tiles import Pair, Points
from collapse.numerics.tracing import OF_CLASSES, OF_POINTS, Compiled, Tile, Traceable, compiled, trace
from collapse.plugin.guarding import Guest, described
from collapse.plugin.metrics import Metric
from collapse.plugin.reducers import Logs, Moments

log = logging.getLogger("collapse")

WORTH = 1 << 32
"""Pairs of a sweep from which compiling, which takes about 20 seconds, saves more time than it takes."""

_CANCELLED = 1e-3  # a variance smaller than this, relative to its sum of squares, has lost more than three digits
_AGREE = {torch.float64: 1e-9, torch.float32: 1e-3}  # relative difference of compiled and eager sums; else 1e-1


class Fused:
    """Pair metrics that are compiled together, for tiles of one size.

    Args:
        points: Values per class of the sweep, on a CPU.
        wanted: Metrics and the reducers of their values, by any key.
        tile: R.
    """

    def __init__(self, points: Points, wanted: Mapping[int, tuple[Metric, Taking]], tile: int) -> None:
        self._points = points
        self._tile = Tile(tile, points.means.dtype, points.short_means)
        self._global_sqnorm = points.means.new_tensor(points.global_sqnorm)
        of_classes = [getattr(points.statistics, name) for name in OF_CLASSES]
        self._values = [getattr(points, name) for name in OF_POINTS]
        self._values += [each.to(points.means) if each.is_floating_point() else each for each in of_classes]
        self._metrics: dict[int, tuple[Metric, Taking, Traceable]] = {}
        for key, (metric, taking) in wanted.items():
            if traceable := self._traceable(metric, taking):
                self._metrics[key] = metric, taking, traceable
        self._compiled = self._compile()
        self._far = {name: each.clear_of for name, each in points.near.items()}
        self._far["sqdist"] = max(self._far["sqdist"], points.rounding)
        self._without_direction = (points.inverse_norms == 0) | (points.uncentred_inverse_norms == 0)
        self._around_P: Tensor | None = None  # after the first tile, numbers near the means of the values
        self._sums_P3 = torch.zeros(len(self._metrics), 3, dtype=torch.float64)
        self._added = 0

    def _traceable(self, metric: Metric, taking: Taking) -> Traceable | None:
        if not isinstance(metric.over, str) or not all(map(is_own, taking.reducers)):
            return None
        logs = any(isinstance(each, Logs) for each in taking.reducers)
        values = any(not isinstance(each, Moments | Logs) for each in taking.reducers)
        found = Traceable(metric.function, metric.over, logs, values)
        try:
            trace((found,), self._tile)
        except Exception as error:  # it stays eager
            log.debug("%s is not compiled: %s", metric.called, described(error))
            return None
        return found

    def take(self, pair: Pair) -> Collection[int]:
        """Take in the values of a tile; return the keys of the metrics of which it did."""
        whole = tuple(pair.gram.shape) == (self._tile.classes, self._tile.classes)
        if self._compiled is None or pair.diagonal or not whole:
            return ()
        if any(bool(self._without_direction[run].any()) for run in pair.runs):
            return ()
        around_P = self._centres(pair) if self._around_P is None else self._around_P
        values = [value[run] for run in pair.runs for value in self._values]
        try:
            sums, *kept = self._compiled.function(pair.gram, around_P, self._global_sqnorm, *values)
        except Exception as error:
            self._compiled = None
            text = "pairs are measured without torch.compile, which takes about a quarter longer: %s. It needs a C++ "
            log.warning(text + "compiler, such as g++", described(error))
            return ()
        n, least = pair.gram.numel(), sums[: len(self._compiled.least)].tolist()
        sums_P3 = sums[len(least) :].view(-1, 3)
        near = any(not each > self._far[name] for name, each in zip(self._compiled.least, least, strict=True))
        if near or not all(_sure(three, n) for three in sums_P3.tolist()):
            return ()
        if self._around_P is None:
            if differing := self._differing(pair, around_P, sums_P3):
                self._leave_out(differing)
                return ()
            self._around_P = around_P
        self._sums_P3 += sums_P3
        self._added += n
        for _, taking, traceable in self._metrics.values():
            if traceable.values:
                values_1n = kept.pop(0).view(1, -1)
                for reducer in taking.reducers:
                    if not isinstance(reducer, Moments | Logs):
                        reducer.add(values_1n)
        return self._metrics.keys()

    def finish(self) -> None:
        """Add the sums to the reducers."""
        if self._around_P is None or not self._added:
            return
        for (_, taking, _), around, sums_3 in zip(self._metrics.values(), self._around_P, self._sums_P3, strict=True):
            _add(taking, float(around), sums_3, self._added)

    def _centres(self, pair: Pair) -> Tensor:
        return torch.stack([_centre(taking) for _, taking, _ in self._metrics.values()]).to(pair.gram.dtype)

    def _compile(self) -> Compiled | None:
        return compiled(tuple(each for _, _, each in self._metrics.values()), self._tile) if self._metrics else None

    def _differing(self, pair: Pair, around_P: Tensor, sums_P3: Tensor) -> list[int]:
        """Return the keys of the metrics whose compiled sums are not those of their values."""
        found = []
        for (key, (metric, _, _)), around, sums_3 in zip(self._metrics.items(), around_P, sums_P3, strict=True):
            try:
                with Guest():
                    returned = metric.function(pair)
                centred = (as_tile(returned, pair.gram) - around).double()
            except Exception:  # the eager sweep reports it
                found.append(key)
                continue
            expected = torch.stack([centred.sum(), centred.square().sum()])
            size = torch.stack([centred.abs().sum(), expected[1]])
            agree = max(_AGREE.get(each, 1e-1) for each in (returned.dtype, pair.gram.dtype))
            if not bool(((expected - sums_3[:2]).abs() <= agree * size).all()):
                found.append(key)
        return found

    def _leave_out(self, keys: Sequence[int]) -> None:
        """Leave some metrics to the eager sweep, and compile the others."""
        for key in keys:
            metric = self._metrics.pop(key)[0]
            log.debug("%s is not compiled: it then gave other numbers", metric.called)
        self._sums_P3 = self._sums_P3[: len(self._metrics)]
        self._compiled = self._compile()


def _centre(taking: Taking) -> Tensor:
    """Return a number near the mean of a metric's values, about which their squares are summed."""
    moments = [each for each in taking.reducers if isinstance(each, Moments)]
    return moments[0].mean[0] if moments else torch.zeros((), dtype=torch.float64)


def _sure(sums_3: list[float], n: int) -> bool:
    """Whether the sums are finite, and the variance about the given centre is not lost to rounding."""
    total, squares, _ = sums_3
    return all(map(math.isfinite, sums_3)) and squares - total**2 / n >= _CANCELLED * squares


def _add(taking: Taking, around: float, sums_3: Tensor, n: int) -> None:
    """Add n values, of which the sums are given, to the moments and logarithms of a metric."""
    total, squares, logs = sums_3
    for reducer in taking.reducers:
        if isinstance(reducer, Moments):
            part = Moments()
            part.n += n
            part.mean += around + total / n
            part.squares += squares - total.square() / n
            reducer.merge(part)
        elif isinstance(reducer, Logs):
            reducer.n += n
            reducer.total += logs
    taking.weight += n
