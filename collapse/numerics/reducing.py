"""Add up the values of a metric by its measures; values that are not finite are left out and counted.

Shapes: G groups, n values per group.
"""

from collections.abc import Iterator, Sequence

import torch
from jaxtyping import Float
from torch import Tensor

from collapse.plugin.measures import Measure


class Tally:
    """The states of some measures of one metric, while values are added; measures with equal keys share one.

    Args:
        measures: The measures.
        C, d: Classes and dimensions.
        device: Where the values are.
        groups: 1, or C for one number per class.

    Attributes:
        added: Number of the values added, including those left out.
        nan, infinite: Numbers of the values left out.
    """

    def __init__(
        self, measures: Sequence[Measure], C: int, d: int, device: torch.device | str = "cpu", groups: int = 1
    ) -> None:
        self.added = self.nan = self.infinite = 0
        self._measures = {each.name: each.at(C, d) for each in measures}
        self._by_key = {each.key: each for each in self._measures.values()}
        self._states = {
            key: torch.tensor(each.empty, dtype=torch.float64, device=device).unsqueeze(1).repeat(1, groups)
            for key, each in self._by_key.items()
        }

    def add(self, values: Float[Tensor, "G n"], run: slice | None = None) -> None:
        """Add the finite ones of n values per group, or per group of a run."""
        run = slice(None) if run is None else run
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
        start, whole = run.start or 0, finite.all(dim=1).tolist()
        for row, stop in _runs(whole):
            kept = values[row:stop] if whole[row] else values[row:stop, finite[row]]
            self._add(kept, kept.sum(dim=1, dtype=torch.float64), slice(start + row, start + stop))

    def _add(self, values: Float[Tensor, "G n"], sums: Float[Tensor, " G"], run: slice) -> None:
        if values.numel():
            for key, measure in self._by_key.items():
                held = self._states[key][:, run]
                held.copy_(measure.merge(held, measure.state(values, sums)))

    def state(self, name: str) -> Float[Tensor, "k G"]:
        """Return the state of a measure."""
        return self._states[self._measures[name].key]

    def numbers(self, name: str) -> Float[Tensor, " G"]:
        """Return a measure's number of each group, nan for a group without values."""
        return self._measures[name].result(self.state(name)).double()

    def number(self, name: str) -> float:
        """Return a measure's number of the only group."""
        return float(self.numbers(name))

    def left_out(self, name: str) -> int:
        """Return how many values a number excludes: those that are not finite, or zeros of a mean logarithm."""
        skipped = self._measures[name].skipped(self.state(name))
        return self.nan + self.infinite + round(float(skipped.sum()))


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
