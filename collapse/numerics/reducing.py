"""Reduce the values of a metric by its measures; values that are not finite are left out and counted.

Shapes: G groups, n values per group; a tile has R rows and S columns, each a run of classes.
"""

import math
from collections.abc import Sequence

import torch
from jaxtyping import Float, Int
from torch import Tensor

from collapse.errors import PluginError
from collapse.plugin.guarding import called
from collapse.plugin.measures import Measure
from collapse.plugin.reducers import Moments, Reducer

Run = slice | Tensor


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
        if math.isfinite(float(sums.sum())):  # cheaper than a mask, which is seldom needed
            self._add(values, sums, run)
            return
        finite, nan = values.isfinite(), int(values.isnan().sum())
        self.nan += nan
        self.infinite += values.numel() - int(finite.sum()) - nan
        some = finite.any(dim=0)
        values, finite = values[:, some], finite[:, some]  # a class without a value has none in any row
        whole = finite.all(dim=1)
        groups = torch.arange(len(values), device=values.device) + (0 if run is None else run.start)
        self._add(values[whole], values[whole].sum(dim=1, dtype=torch.float64), groups[whole])
        for row in (~whole).nonzero().squeeze(1).tolist():
            kept = values[row : row + 1, finite[row]]
            self._add(kept, kept.sum(dim=1, dtype=torch.float64), groups[row : row + 1])

    def _add(self, values: Float[Tensor, "G n"], sums: Float[Tensor, " G"], run: Run | None) -> None:
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


class TopPairs:
    """The N pairs c < c′ of largest value seen so far, largest first; of equal values the ones of lowest c, then c′.

    Args:
        most: N.
        device: Where the values are.

    Attributes:
        pairs: Positions of both classes, shape (n, 2), n ≤ N.
        values: Their values, shape (n,).
    """

    def __init__(self, most: int, device: torch.device | str = "cpu") -> None:
        self._most = most
        self.pairs: Int[Tensor, "n 2"] = torch.empty(0, 2, dtype=torch.int64, device=device)
        self.values: Float[Tensor, " n"] = torch.empty(0, dtype=torch.float64, device=device)

    def add(self, values: Float[Tensor, "R S"], rows: slice, columns: slice) -> None:
        """Add the pairs of a tile that may be among the largest, usually none; values that are not finite never are."""
        least = self.values[-1] if len(self.values) == self._most else -math.inf
        enough = (values >= least) & values.isfinite()
        if rows.start == columns.start:  # a diagonal tile, which holds every pair twice
            enough.triu_(1)
        found = enough.nonzero()
        if not len(found):
            return
        start = torch.tensor([rows.start, columns.start], device=found.device)
        pairs = torch.cat([self.pairs, found + start])
        values_n = torch.cat([self.values, values[enough].double()])
        order = ((pairs[:, 0] << 32) + pairs[:, 1]).argsort()
        order = order[values_n[order].argsort(stable=True, descending=True)][: self._most]
        self.pairs, self.values = pairs[order], values_n[order]
