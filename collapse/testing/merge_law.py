"""Check that the values of a metric, split and merged in any way, give the same measurements."""

from collections.abc import Callable, Iterator, Sequence

import torch
from torch import Tensor

from collapse.measurement.evaluating import included
from collapse.numerics.returned import as_class_values, as_tile
from collapse.numerics.statistics import EmbeddingStatistics
from collapse.numerics.tiles import Pair, Points
from collapse.plugin.guarding import described
from collapse.plugin.measures import Measure
from collapse.plugin.reducers import Reducer
from collapse.testing.changed_features import Features
from collapse.testing.laws import Checked, close, shown
from collapse.testing.measured import Measured


def check_merging(checked: Checked, of: Measured, features: Features) -> None:
    """Check the reducers of a class or pair metric; a breach is one of the law of merge."""
    if of.metric.kind == "scalar" or not checked.looks_at("merge"):
        return
    s = of.statistics(features)
    values_n = _values(of, s)
    for measure in of.metric.measures:
        try:
            expected, found = _numbers(measure, values_n, s)
        except Exception as error:  # a plugin's reducer
            checked.breach("merge", measure.name, f"its reducer fails: {described(error)}")
            continue
        for what, number in found.items():
            if not close(expected, number):
                checked.breach("merge", measure.name, f"{shown(expected)} of all values, {shown(number)} {what}")


def _values(of: Measured, s: EmbeddingStatistics) -> Tensor:
    """Return the values that the measures include, shape (n,)."""
    lender = of.lent(s)
    if of.metric.kind == "class":
        values_C = as_class_values(lender.call(of.metric.of), s.means)
        return values_C[included(of.metric, values_C, lender)]
    points, all_C = Points.of(s, torch.float64), slice(0, s.n_classes)
    pair = Pair(points, all_C, all_C, points.means @ points.means.T)
    values = as_tile(of.metric.of(pair), pair.gram).clone()
    counted = torch.ones_like(values, dtype=torch.bool).triu(1)
    without = pair.left_out(of.metric.over)
    return values[counted if without is None else counted & ~without]


def _numbers(measure: Measure, values_n: Tensor, s: EmbeddingStatistics) -> tuple[float, dict[str, float]]:
    def empty() -> Reducer:
        return measure.reducer(s.n_classes, s.dim).of(1, values_n.device)

    def filled(values: Tensor, weights: Tensor | None = None) -> Reducer:
        made = empty()
        made.add(values.unsqueeze(0), None if weights is None else weights.unsqueeze(0))
        return made

    expected = float(measure.of(filled(values_n)))
    found = {what: float(measure.of(made)) for what, made in _merged(empty, filled, values_n.tensor_split(3))}
    weights = torch.cat([torch.ones_like(values_n), torch.zeros_like(values_n)])
    more = filled(torch.cat([values_n, torch.full_like(values_n, torch.nan)]), weights)
    found["with as many nan of weight 0"] = float(measure.of(more))
    return expected, found


def _merged(
    empty: Callable[[], Reducer], filled: Callable[[Tensor], Reducer], parts: Sequence[Tensor]
) -> Iterator[tuple[str, Reducer]]:
    for what, order in (("merged of three parts", (0, 1, 2)), ("merged of three parts backwards", (2, 1, 0))):
        first, *others = (filled(parts[index]) for index in order)
        for other in others:
            first.merge(other)
        yield what, first
    nothing = empty()
    nothing.merge(filled(torch.cat(list(parts))))
    yield "merged into an empty reducer", nothing
    whole = filled(torch.cat(list(parts)))
    whole.merge(empty())
    yield "after an empty reducer was merged into it", whole
