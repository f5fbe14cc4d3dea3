"""Reduce a metric's values with its measures, such as the mean; values that are not finite are excluded and counted.

Shapes: G groups, n values per group, k numbers of a state; C classes, d dimensions; S validation blocks. A tile has R
rows and S columns, both of consecutive classes; this S is not the number of blocks.
"""

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import reduce
from itertools import groupby
from typing import Any, NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor

from collapse.core import ranks
from collapse.errors import CollapseError, PluginError
from collapse.plugin.guarding import Failed, Wrote, error_line
from collapse.plugin.measures import Measure
from collapse.plugin.metrics import Metric, Noted


class Tally:
    """Accumulate values in the states of a metric's measures; measures with equal keys share a state.

    A state is a few numbers, such as a count and a sum. ``groups`` is 1, or C for one number per class. ``C`` and ``d``
    set the parameters of measures that depend on them.

    Attributes:
        added: Number of all values, including excluded values.
        nan, infinite: Number of values that were excluded because they are NaN or infinite, respectively.
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
        """Add n values to each group in the slice ``run`` (None for all groups); exclude values that are not finite."""
        run = slice(None) if run is None else run
        self.added += values.numel()
        sums = values.sum(dim=1, dtype=torch.float64)
        if bool(sums.isfinite().all()):  # cheaper than a mask, which is seldom needed
            self._add(values, sums, run)
            return
        finite, nan = values.isfinite(), int(values.isnan().sum())
        self.nan += nan
        self.infinite += values.numel() - int(finite.sum()) - nan
        # Drop columns without a finite value: a class with an undefined value makes its whole column undefined. After
        # that most rows are finite throughout.
        some = finite.any(dim=0)
        values, finite = values[:, some], finite[:, some]
        # add runs of rows that are finite throughout together, and each other row by itself
        start, whole = run.start or 0, finite.all(dim=1).tolist()
        for _, rows in groupby(range(len(whole)), lambda row: -1 if whole[row] else row):
            first, *more = rows
            stop = first + len(more) + 1
            kept = values[first:stop] if whole[first] else values[first:stop, finite[first]]
            self._add(kept, kept.sum(dim=1, dtype=torch.float64), slice(start + first, start + stop))

    def _add(self, values: Float[Tensor, "G n"], sums: Float[Tensor, " G"], run: slice) -> None:
        if values.numel():
            for key, measure in self._by_key.items():
                held = self._states[key][:, run]
                held.copy_(measure.merge(held, measure.state(values, sums)))

    def counts_and_states(self) -> tuple[Any, ...]:
        """Return the counts and the states, in the order of the measures."""
        return self.added, self.nan, self.infinite, [each.cpu() for each in self._states.values()]

    def replace_by_merged(self, parts: Sequence[tuple[Any, ...]]) -> None:
        """Merge several results of :meth:`counts_and_states`; replace the counts and states by the merged ones."""
        *counts, states = zip(*parts, strict=True)
        self.added, self.nan, self.infinite = map(sum, counts)
        for (key, measure), of_parts in zip(self._by_key.items(), zip(*states, strict=True), strict=True):
            self._states[key] = reduce(measure.merge, of_parts).to(self._states[key].device)

    def state(self, name: str) -> Float[Tensor, "k G"]:
        """Return the state of a measure."""
        return self._states[self._measures[name].key]

    def numbers(self, name: str) -> Float[Tensor, " G"]:
        """Return the value of a measure for each group; nan for a group without values."""
        return self._measures[name].result(self.state(name)).double()

    def number(self, name: str) -> float:
        """Return the value of a measure, for a tally with only one group."""
        return float(self.numbers(name))

    def left_out(self, name: str) -> int:
        """Return how many values a measure's number excludes: those that are not finite, and for MeanLog also zeros."""
        skipped = self._measures[name].skipped(self.state(name))
        return self.nan + self.infinite + round(float(skipped.sum()))


class TopPairs:
    """The N pairs c < c′ with the largest values so far, largest first; ties go to the lowest c, then the lowest c′.

    Attributes:
        pairs: For each pair, the rows of its classes in the class means (not token ids), shape (n, 2), n ≤ N.
        values: The values of these pairs, shape (n,).
    """

    def __init__(self, most: int, device: torch.device | str = "cpu") -> None:
        self._most = most
        self.pairs: Int[Tensor, "n 2"] = torch.empty(0, 2, dtype=torch.int64, device=device)
        self.values: Float[Tensor, " n"] = torch.empty(0, dtype=torch.float64, device=device)

    def add(self, values: Float[Tensor, "R S"], rows: slice, columns: slice) -> None:
        """Add the pairs of a tile that may be among the N largest; skip values that are not finite."""
        least = self.values[-1] if len(self.values) == self._most else -math.inf
        enough = (values >= least) & values.isfinite()
        if rows.start == columns.start:  # a diagonal tile, which holds every pair twice
            enough.triu_(1)
        found = enough.nonzero()
        if len(found):
            start = torch.tensor([rows.start, columns.start], device=found.device)
            self.keep_largest([(self.pairs, self.values), (found + start, values[enough].double())])

    def keep_largest(self, parts: Sequence[tuple[Tensor, Tensor]]) -> None:
        """Replace the current pairs by the N largest pairs of ``parts``.

        Each part is a tuple (pairs, values). No pair may occur twice.
        """
        pairs, values_n = (torch.cat(each).to(self.values.device) for each in zip(*parts, strict=True))
        order = ((pairs[:, 0] << 32) + pairs[:, 1]).argsort()
        order = order[values_n[order].argsort(stable=True, descending=True)][: self._most]
        self.pairs, self.values = pairs[order], values_n[order]


class OfRank(NamedTuple):
    """What the other ranks need of a metric's result; all but ``failure`` are None unless a pair metric succeeded.

    Attributes:
        failure: As in :class:`MetricResult`.
        remark: As in :class:`MetricResult`, but with the value True in place of a tile.
        tally, class_tally: The results of :meth:`Tally.counts_and_states` for the two tallies of the metric's result.
        largest: The attributes ``pairs`` and ``values`` of the :class:`TopPairs`, if they were requested.
    """

    failure: Failed | None
    remark: Noted | None = None
    tally: tuple[Any, ...] | None = None
    class_tally: tuple[Any, ...] | None = None
    largest: tuple[Tensor, Tensor] | None = None


@dataclass
class MetricResult:
    """The result of evaluating one metric. evaluating_metrics.py fills it; pair_sweep.py adds values to its tallies.

    Attributes:
        metric, measures: The metric and the chosen measures.
        remark: The remark of the metric's function on its value, or the reason why there is no value. The remark's kind
            is "missing" if the statistics lack what the metric needs.
        failure: The exception of the metric's function, of another function that is its parameter, or of a measure. The
            metric then has no numbers. None if nothing failed.
        tally: The states of the measures for the values of all classes or pairs; None for a scalar metric.
        class_tally: The states of the measures for each class, over the pairs of this class; None if not requested, or
            if this is not a pair metric.
        numbers: The number of each measurement, by name; it can be NaN or infinite.
        left_out: How many values of classes or pairs each number excludes, by measurement.
        undefined: Whether a class has no finite value, shape (C,); None if this is not a class metric.
        by_class: For each measurement, token ids and their values; empty if not requested. The value is NaN for a class
            that the measurement excludes.
        top_pairs: The pairs with the largest values; None if not requested, or if this is not a pair metric.
        influence: Influence of each validation block or group of blocks on the number, shape (S,); None without a
            standard error.
        standard_error: Standard error of the number; None if it has none, or if there are fewer than two blocks.
        error_failure: The exception of the function that gives the standard error, if it failed.
    """

    metric: Metric
    measures: Sequence[Measure]
    remark: Noted | None = None
    failure: Failed | None = None
    tally: Tally | None = None
    class_tally: Tally | None = None
    numbers: dict[str, int | float] = field(default_factory=dict)
    left_out: dict[str, int] = field(default_factory=dict)
    undefined: Tensor | None = None
    by_class: dict[str, tuple[Tensor, Tensor]] = field(default_factory=dict)
    top_pairs: TopPairs | None = None
    influence: Float[Tensor, " S"] | None = None
    standard_error: float | None = None
    error_failure: Failed | None = None

    def of_this_rank(self) -> OfRank:
        """Return what the other ranks need of this result."""
        if self.failure or self.tally is None or self.metric.kind != "pair":
            return OfRank(self.failure)
        # a remark's value is a tile, which the other ranks do not need; None says that there are no numbers
        remark = self.remark and replace(self.remark, value=None if self.remark.value is None else True)
        of_classes = None if self.class_tally is None else self.class_tally.counts_and_states()
        largest = None if self.top_pairs is None else (self.top_pairs.pairs.cpu(), self.top_pairs.values.cpu())
        return OfRank(None, remark, self.tally.counts_and_states(), of_classes, largest)

    def merge(self, parts: Sequence[OfRank]) -> None:
        """Combine all ranks' results of :meth:`of_this_rank`; the metric failed if it failed on at least one rank."""
        failures = [each.failure for each in parts if each.failure]
        self.failure = max(failures, key=lambda failure: isinstance(failure, Wrote), default=None)
        if self.failure or parts[0].tally is None:  # not a pair metric
            return
        _, remarks, tallies, of_classes, tops = zip(*parts, strict=True)
        self.remark = next(filter(None, remarks), None)
        for tally, given in ((self.tally, tallies), (self.class_tally, of_classes)):
            if tally is not None:
                tally.replace_by_merged(given)
        if self.top_pairs is not None:
            self.top_pairs.keep_largest(tops)

    def reduce(self) -> None:
        """Compute ``numbers`` and ``left_out`` from the tally, after all values were added."""
        assert self.tally is not None
        for measure in self.measures:
            self.numbers[measure.name] = self.tally.number(measure.name)
            self.left_out[measure.name] = self.tally.left_out(measure.name)

    @contextmanager
    def recording_failure(self) -> Iterator[None]:
        """Record a plugin's exception in ``failure``; raise errors that no plugin caused."""
        try:
            yield
        except Failed as error:
            self.failure = error
        except Exception as error:  # a plugin's measure can raise anything
            if isinstance(error, CollapseError) and not isinstance(error, PluginError):
                raise
            self.failure = Failed(self.metric.function, error_line(error))


def merge_ranks(results: Sequence[MetricResult], pair_counts: Counter[str]) -> Counter[str]:
    """Merge the results of all ranks, so that all ranks have the same results; return the sum of ``pair_counts``."""
    found = ranks.meet(([each.of_this_rank() for each in results], pair_counts))
    for each, parts in zip(results, zip(*(of_rank for of_rank, _ in found), strict=True), strict=True):
        with each.recording_failure():
            each.merge(parts)
    return sum((counts for _, counts in found), Counter[str]())
