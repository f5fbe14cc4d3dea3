"""Add up the values of a metric by the reducers of its measures; values that are not finite are left out and counted.

Shapes: G groups, n values per group.
"""

from collections.abc import Iterator, Sequence

import torch
from jaxtyping import Float
from torch import Tensor

from collapse.errors import PluginError
from collapse.plugin.guarding import called
from collapse.plugin.measures import Measure
from collapse.plugin.reducers import Moments, Reducer


class Tally:
    """The reducers of some measures of one metric, while values are added; measures with equal reducers share one.

    Args:
        measures: The measures.
        C, d: Classes and dimensions.
        device: Where the values are.
        groups: 1, or C for one number per class.

    Attributes:
        added: Number of the values added, including those left out.
        nan, infinite: Numbers of the values left out.

    Raises:
        PluginError: A measure's ``reducer`` does not return a :class:`Reducer`.
    """

    def __init__(
        self, measures: Sequence[Measure], C: int, d: int, device: torch.device | str = "cpu", groups: int = 1
    ) -> None:
        self._measures, self._groups = {each.name: each for each in measures}, groups
        self.added = self.nan = self.infinite = 0
        self._shared: dict[object, Reducer] = {}
        self._keys = {}
        for measure in measures:
            empty = measure.reducer(C, d)
            if not isinstance(empty, Reducer):
                raise PluginError(f"{called(type(measure))}.reducer() of {measure.name} must give a Reducer")
            self._keys[measure.name] = empty.key
            self._shared.setdefault(empty.key, empty.of(groups, device))

    def add(self, values: Float[Tensor, "G n"], run: slice | None = None) -> None:
        """Add the finite ones of n values per group, or per group of a run."""
        self.added += values.numel()
        sums = values.sum(dim=1, dtype=torch.float64)
        if bool(sums.isfinite().all()):  # cheaper than a mask, which is seldom needed
            self._add(values, sums, run)
            return
        finite, nan = values.isfinite(), int(values.isnan().sum())
        self.nan += nan
        self.infinite += values.numel() - int(finite.sum()) - nan
        some = finite.any(dim=0)
        values, finite = values[:, some], finite[:, some]  # a class without a value has none in any row
        if bool(finite.all()):
            self._add(values, values.sum(dim=1, dtype=torch.float64), run)
            return
        start, whole = 0 if run is None else run.start, finite.all(dim=1).tolist()
        for row, stop in _runs(whole):
            kept = values[row:stop] if whole[row] else values[row:stop, finite[row]]
            self._add(kept, kept.sum(dim=1, dtype=torch.float64), slice(start + row, start + stop))

    def _add(self, values: Float[Tensor, "G n"], sums: Float[Tensor, " G"], run: slice | None) -> None:
        if not values.numel():
            return
        for reducer in self._shared.values():
            part = reducer if run is None else reducer.rows(run)
            if isinstance(part, Moments):
                part.add(values, sums)
            else:
                part.add(values)
            if run is not None:
                reducer.put(run, part)

    def reducer(self, name: str) -> Reducer:
        """Return the reducer of a measure."""
        return self._shared[self._keys[name]]

    def numbers(self, name: str) -> Float[Tensor, " G"]:
        """Return a measure's number of each group, nan for a group without values."""
        numbers = self._measures[name].of(self.reducer(name)).double()
        if numbers.shape != (self._groups,):
            found = f"{type(self.reducer(name)).__name__} gives {tuple(numbers.shape)} numbers"
            raise PluginError(f"{found}: give one per group, shape {(self._groups,)}")
        return numbers

    def number(self, name: str) -> float:
        """Return a measure's number of the only group."""
        return float(self.numbers(name))

    def left_out(self, name: str) -> int:
        """Return how many values a number excludes: those that are not finite, or zeros of a mean logarithm."""
        own = self.reducer(name).left_out()
        return self.nan + self.infinite + (0 if own is None else round(float(own.sum())))


def _runs(whole: Sequence[bool]) -> Iterator[tuple[int, int]]:
    """Yield the first row and the end of runs of whole rows, and of each other row.

    >>> list(_runs([True, True, False, False, True]))
    [(0, 2), (2, 3), (3, 4), (4, 5)]
    """
    start = 0
    for row in range(1, len(whole) + 1):
        if row == len(whole) or not (whole[row - 1] and whole[row]):
            yield start, row
            start = row
