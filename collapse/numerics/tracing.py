"""Trace the functions of pair metrics, and compile them together into one function of a tile.

A metric's function runs once on tensors without values, which record its operations; one that looks at a value, or
that needs more of a class than one number, cannot be traced.

Shapes: a tile has R rows and R columns; P metrics.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor

from collapse.errors import PluginError
from collapse.numerics.returned import as_tile
from collapse.numerics.tiles import LEAVES_OUT_ZEROS, Pair
from collapse.plugin.guarding import Guest
from collapse.plugin.metrics import Over

OF_POINTS = ("sqnorms", "inverse_norms", "variances", "projections", "uncentred_inverse_norms")
OF_CLASSES = ("norms", "counts", "classes")
"""The values per class that a compiled function has, of :class:`Points` and of the statistics."""

INTEGERS = ("counts", "classes")


@dataclass(frozen=True)
class Traceable:
    """What is compiled of a metric.

    Attributes:
        function, over: As declared.
        logs: Whether the sum of the logarithms is needed.
        values: Whether the values are needed.
    """

    function: Callable[[Pair], Tensor]
    over: Over
    logs: bool
    values: bool


@dataclass(frozen=True)
class Tile:
    """The tiles that a function is compiled for: R classes a side, and what :class:`Points` says of all classes."""

    classes: int
    dtype: torch.dtype
    short_means: bool


@dataclass(frozen=True)
class Compiled:
    """A function of a tile.

    Attributes:
        function: Takes the Gram product, a centre for the values of each metric (P,), ‖μ̄‖², and the values per class of
            the rows and of the columns. Returns a vector, then the values of each metric that needs them. The vector
            holds the least value of each field in ``least``, then of each metric the sums of its centred values, of
            their squares and of its logarithms.
        least: Fields of squared distances that are used.
    """

    function: Callable[..., list[Tensor]]
    least: tuple[str, ...]


@lru_cache(maxsize=16)
def compiled(metrics: tuple[Traceable, ...], tile: Tile) -> Compiled:
    """Compile metrics; torch.compile itself runs at the first call.

    Raises:
        Exception: A metric cannot be traced.
    """
    traced = trace(metrics, tile)
    return Compiled(torch.compile(traced.function, dynamic=False), traced.least)


@lru_cache(maxsize=256)
def trace(metrics: tuple[Traceable, ...], tile: Tile) -> Compiled:
    """Trace metrics without compiling them; raises as :func:`compiled`."""
    from torch.fx.experimental.proxy_tensor import make_fx  # takes a second to import

    least: list[str] = []

    def function(gram: Tensor, around_P: Tensor, global_sqnorm: Tensor, *values: Tensor) -> list[Tensor]:
        pair = _Traced(gram, global_sqnorm, tile, values)
        sums, kept = [], []
        for metric, around in zip(metrics, around_P, strict=True):
            with Guest():
                value = as_tile(metric.function(pair), gram)
            if written := pair.written():
                raise PluginError(f"it wrote to {written[0]}")
            if metric.over in LEAVES_OUT_ZEROS:
                getattr(pair, LEAVES_OUT_ZEROS[metric.over])  # for its least value
            centred = value - around
            logs = value.log() if metric.logs else value.new_zeros(1)
            sums += [each.sum(dtype=torch.float64) for each in (centred, centred.square(), logs)]
            kept += [value] if metric.values else []
        least[:] = pair.least
        return [torch.stack([*(each.double() for each in pair.least.values()), *sums]), *kept]

    gram = torch.ones(tile.classes, tile.classes, dtype=tile.dtype)
    kinds = [torch.int64 if name in INTEGERS else tile.dtype for name in (*OF_POINTS, *OF_CLASSES)] * 2
    values = [torch.ones(tile.classes, dtype=kind) for kind in kinds]  # each its own: one tensor would be one input
    graph = make_fx(function, tracing_mode="fake")(gram, gram.new_zeros(len(metrics)), gram.new_ones(()), *values)
    return Compiled(graph, tuple(least))


class _Traced(Pair):
    """A tile that is traced: it has the values per class of its rows and columns, and keeps least squared distances."""

    def __init__(self, gram: Tensor, global_sqnorm: Tensor, tile: Tile, values: tuple[Tensor, ...]) -> None:
        points: Any = SimpleNamespace(global_sqnorm=global_sqnorm, short_means=tile.short_means, rounding=0.0)
        super().__init__(points, slice(0, 0), slice(1, 1), gram)
        del self._rows, self._columns  # what reads them cannot be traced
        names, half = (*OF_POINTS, *OF_CLASSES), len(values) // 2
        self._of_rows = dict(zip(names, values[:half], strict=True))
        self._of_columns = dict(zip(names, values[half:], strict=True))
        self.least: dict[str, Tensor] = {}

    @property
    def runs(self) -> tuple[slice, slice]:
        """Refused: the function is compiled for tiles of all classes."""
        raise PluginError("it reads which classes the tile is of")

    def rows(self, name: str) -> Tensor:
        """Return a value per class of the rows."""
        return self._of_rows[name]

    def columns(self, name: str) -> Tensor:
        """Return a value per class of the columns."""
        return self._of_columns[name]

    def _of(self, name: str) -> tuple[Tensor, Tensor]:
        return self._of_rows[name], self._of_columns[name]

    def _correct(self, name: str, sqdist: Tensor) -> float:
        self.least[name] = sqdist.amin()
        return math.inf
