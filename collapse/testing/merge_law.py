"""Check that the values of a metric, split and merged in any order, give the same measurements."""

import torch
from torch import Tensor

from collapse.numerics.statistics import EmbeddingStatistics
from collapse.plugin.guarding import described
from collapse.plugin.measures import Measure
from collapse.plugin.reducers import Reducer
from collapse.testing.changed_features import Features
from collapse.testing.laws import Checked, close, shown
from collapse.testing.measured import Measured
from collapse.testing.samples import value


def check_merging(checked: Checked, of: Measured, features: Features) -> None:
    """Check the reducers of a class or pair metric; a breach is one of the law of merge."""
    if of.metric.kind == "scalar" or not checked.looks_at("merge"):
        return
    s = of.statistics(features)
    values = value(of.metric.function, s)
    if of.metric.kind == "pair":
        values = values[torch.ones_like(values, dtype=torch.bool).triu(1)]
    values_n = values[values.isfinite()].double()
    for measure in of.metric.measures:
        try:
            expected, *found = (_number(measure, s, parts) for parts in _cuts(values_n))
        except Exception as error:  # a plugin's reducer
            checked.breach("merge", measure.name, f"its reducer fails: {described(error)}")
            continue
        for number in found:
            if not close(expected, number):
                said = f"{shown(expected)} of all values, {shown(number)} merged of parts"
                checked.breach("merge", measure.name, said)


def _cuts(values_n: Tensor) -> list[list[Tensor]]:
    """Return all values at once, three parts in both orders, and all beside nothing on either side."""
    parts = list(values_n.tensor_split(3))
    return [[values_n], parts, parts[::-1], [values_n[:0], values_n], [values_n, values_n[:0]]]


def _number(measure: Measure, s: EmbeddingStatistics, parts: list[Tensor]) -> float:
    reducers: list[Reducer] = []
    for part in parts:
        made = measure.reducer(s.n_classes, s.dim).of(1, part.device)
        if len(part):
            made.add(part.unsqueeze(0))
        reducers.append(made)
    first, *others = reducers
    for other in others:
        first.merge(other)
    return float(measure.of(first))
