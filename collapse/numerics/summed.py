"""One pair metric of a compiled sweep: its sums over tiles, which its reducers get at the end."""

import math
from functools import cached_property

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from collapse.numerics.reducing import Taking
from collapse.numerics.returned import as_tile
from collapse.numerics.tiles import Pair
from collapse.numerics.tracing import Traceable
from collapse.plugin.guarding import Guest
from collapse.plugin.metrics import Metric
from collapse.plugin.reducers import Logs, Moments

Sums = tuple[float, float, float]
"""Of the values of a tile, the sums of centred ones, of their squares and of logarithms."""

_CANCELLED = 1e-3  # a variance smaller than this, relative to its sum of squares, has lost more than three digits
_AGREE = {torch.float64: 1e-9, torch.float32: 1e-3}  # relative difference of compiled and eager sums


class Summed:
    """The sums of a metric's values.

    Args:
        metric: A pair metric whose ``over`` is a name.
        taking: The reducers of its values, all of ours.
        dtype: The sweep's.

    Attributes:
        n: Number of values that were added; while there are none, what is compiled was not compared.
    """

    def __init__(self, metric: Metric, taking: Taking, dtype: torch.dtype) -> None:
        self.metric, self.n = metric, 0
        self._taking, self._dtype, self._around = taking, dtype, 0.0
        self._total = self._squares = self._logs = 0.0

    @cached_property
    def traceable(self) -> Traceable:
        """What is compiled of it."""
        assert isinstance(self.metric.over, str)
        kinds = [type(each) for each in self._taking.reducers]
        values = any(not issubclass(each, Moments | Logs) for each in kinds)
        return Traceable(self.metric.function, self.metric.over, Logs in kinds, values)

    @property
    def centre(self) -> float:
        """A number near the mean of the values, about which their squares are summed; fixed by the first sums."""
        moments = [each for each in self._taking.reducers if isinstance(each, Moments)]
        if not self.n and moments and math.isfinite(mean := float(moments[0].mean.to(self._dtype))):
            self._around = mean
        return self._around

    def is_sure(self, sums: Sums, n: int) -> bool:
        """Whether the sums that are needed are finite, and the variance about the centre is not lost to rounding."""
        total, squares, logs = sums
        if any(isinstance(each, Moments) for each in self._taking.reducers):
            return all(map(math.isfinite, sums)) and squares - total * total / n >= _CANCELLED * squares
        return math.isfinite(logs)

    def differs(self, pair: Pair, paired: Bool[Tensor, "R S"], sums: Sums) -> bool:
        """Whether the sums are not those of the values of a tile, of which some are of pairs."""
        try:
            with Guest():
                returned = self.metric.function(pair)
            values = as_tile(returned, pair.gram)
            centred = (values - self.centre).where(paired, 0).double()
        except Exception:  # the eager sweep reports it
            return True
        logs = values.log().where(paired, 0).double() if self.traceable.logs else centred.new_zeros(1)
        most = _AGREE[self._dtype]
        for terms, found in zip((centred, centred.square(), logs), sums, strict=True):
            if not abs(float(terms.sum()) - found) <= most * float(terms.abs().sum()):
                return True
        return False

    def add(self, sums: Sums, n: int) -> None:
        """Add the sums of n values."""
        total, squares, logs = sums
        self.n += n
        self._total += total
        self._squares += squares
        self._logs += logs

    def add_values(self, values_1n: Float[Tensor, "1 n"]) -> None:
        """Add values to the reducers that need more than the sums."""
        for reducer in self._taking.reducers:
            if not isinstance(reducer, Moments | Logs):
                reducer.add(values_1n)

    def finish(self) -> None:
        """Add the sums to the reducers."""
        if not self.n:
            return
        for reducer in self._taking.reducers:
            if isinstance(reducer, Moments):
                part = Moments()
                part.n += self.n
                part.mean += self._around + self._total / self.n
                part.squares += self._squares - self._total * self._total / self.n
                reducer.merge(part)
            elif isinstance(reducer, Logs):
                reducer.n += self.n
                reducer.total += self._logs
        self._taking.weight += self.n
