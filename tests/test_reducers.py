"""Reducers: any cut, any order, any weights give the number that all values at once give."""

import math
import re
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import collapse
from collapse import (
    CoV,
    LogMeanExp,
    Max,
    Mean,
    MeanLog,
    Measure,
    Min,
    Std,
    class_metric,
    pair_metric,
)
from collapse.errors import PluginError
from collapse.numerics.pairs import sweep
from collapse.numerics.reducing import Taking
from collapse.plugin.metrics import declaration
from collapse.plugin.plugin_manager import plugins
from collapse.plugin.reducers import Extreme, Logs, Moments, PowerMean, Reducer
from collapse.testing import LawBroken, check_metric, tiny_statistics


def log_mean_exp(x: np.ndarray, w: np.ndarray, s: float) -> float:
    top = (s * x).max()
    return float((math.log((w * np.exp(s * x - top)).sum() / w.sum()) + top) / s)


def std(x: np.ndarray, w: np.ndarray) -> float:
    return math.sqrt(np.average((x - np.average(x, weights=w)) ** 2, weights=w))


# name: the reducer, how it is read, and the same from all values x with weights w
REDUCERS = {
    "mean": (Moments, Moments.result, lambda x, w: np.average(x, weights=w)),
    "std": (Moments, Moments.std, std),
    "mean log": (Logs, Logs.result, lambda x, w: np.average(np.log(x), weights=w)),
    "power mean": (lambda: PowerMean(1.5), PowerMean.result, lambda x, w: log_mean_exp(x, w, 1.5)),
    "min": (lambda: Extreme(-1), Extreme.result, lambda x, w: x.min()),
    "max": (lambda: Extreme(1), Extreme.result, lambda x, w: x.max()),
}


def values_of(seed: int, n: int, spread: float, offset: float) -> tuple[torch.Tensor, torch.Tensor]:
    draw = torch.Generator().manual_seed(seed)
    values = offset + spread * torch.rand(1, n, generator=draw, dtype=torch.float64)
    return values, torch.randint(0, 4, (1, n), generator=draw).double()


@pytest.mark.parametrize("name", REDUCERS)
@settings(deadline=None, max_examples=40)
@given(
    seed=st.integers(0, 10_000),
    n=st.integers(1, 60),
    spread=st.sampled_from([1e-9, 1.0, 3.0]),
    offset=st.sampled_from([0.5, 1.0, 1e6]),
    cuts=st.lists(st.integers(0, 60), max_size=5),
    weighted=st.booleans(),
)
def test_any_cut_merged_in_any_order_equals_all_values_at_once(name, seed, n, spread, offset, cuts, weighted):
    make, read, direct = REDUCERS[name]
    values, weights = values_of(seed, n, spread, offset)
    if not weighted:
        weights = torch.ones_like(values)
    bounds = sorted({0, *(cut for cut in cuts if cut < n), n})
    parts = []
    for start, stop in pairwise(bounds):
        part = make().of(1, "cpu")
        part.add(values[:, start:stop], weights[:, start:stop] if weighted else None)
        parts.append(part)
    total = make().of(1, "cpu")
    for part in reversed(parts):
        total.merge(part)
    x, w = values[0].numpy(), weights[0].numpy()
    if not w.any():
        assert math.isnan(read(total))
        return
    assert float(read(total)) == pytest.approx(
        float(direct(x[w > 0], w[w > 0])), rel=1e-9, abs=1e-12 * spread + 4e-16 * offset
    )


@pytest.mark.parametrize("name", REDUCERS)
def test_groups_are_reduced_each_for_itself(name):
    make, read, direct = REDUCERS[name]
    draw = torch.Generator().manual_seed(1)
    values = torch.rand(4, 9, generator=draw, dtype=torch.float64) + 0.5
    weights = torch.randint(0, 2, (4, 9), generator=draw).double()
    weights[2] = 0
    grouped = make().of(6, "cpu")
    grouped.rows(slice(1, 5)).add(values[:, :4], weights[:, :4])
    grouped.rows(slice(1, 5)).add(values[:, 4:], weights[:, 4:])
    found = read(grouped)
    assert found[[0, 3, 5]].isnan().all()
    for row in (0, 1, 3):
        x, w = values[row].numpy(), weights[row].numpy()
        assert float(found[row + 1]) == pytest.approx(float(direct(x[w > 0], w[w > 0])), rel=1e-12)


def test_what_is_not_weighed_is_not_looked_at():
    values = torch.tensor([[math.inf, 1.0, math.nan, 2.0, -math.inf, 0.0]], dtype=torch.float64)
    weights = torch.tensor([[0, 1, 0, 1, 0, 0]], dtype=torch.float64)
    for name, (make, read, direct) in REDUCERS.items():
        reducer = make().of(1, "cpu")
        reducer.add(values, weights)
        assert float(read(reducer)) == pytest.approx(float(direct(np.array([1.0, 2.0]), np.ones(2)))), name


def test_equal_parameters_share_and_others_do_not():
    assert Moments().key == Moments().key
    assert PowerMean(1.0).key == PowerMean(1.0).key != PowerMean(2.0).key
    assert Extreme(1).key != Extreme(-1).key
    measures = [Mean("m.a"), Std("m.b"), CoV("m.c"), Min("m.d"), Max("m.e")]
    taking = Taking(measures, tiny_statistics())
    assert len(taking._shared) == 3


def test_zeros_of_a_mean_log_are_counted_and_negative_values_are_not_a_number():
    logs = Logs()
    logs.add(torch.tensor([[0.0, 1.0, math.e, 0.0]], dtype=torch.float64))
    assert (float(logs.result()), float(logs.left_out())) == (0.5, 2)
    logs.add(torch.tensor([[-1.0, 0.0]]).double())
    assert math.isnan(logs.result())
    assert float(logs.left_out()) == 3


def test_a_power_mean_without_a_positive_exponent_is_not_a_number():
    for s in (0.0, -1.0):
        power = PowerMean(s)
        power.add(torch.ones(1, 3).double())
        assert math.isnan(power.result())


def test_a_power_mean_of_infinity_is_infinite():
    power = PowerMean(2.0)
    power.add(torch.tensor([[1.0, math.inf]]).double())
    assert float(power.result()) == math.inf


class Geometric(Reducer):
    """A plugin's own: the geometric mean."""

    def __init__(self) -> None:
        self.n, self.total = torch.zeros(1).double(), torch.zeros(1).double()

    def add(self, values, weights=None):
        weights = torch.ones_like(values) if weights is None else weights
        self.n += weights.sum(dim=1)
        self.total += (values.log().where(weights > 0, 0) * weights).sum(dim=1)

    def merge(self, other):
        self.n += other.n
        self.total += other.total

    def result(self):
        return (self.total / self.n).exp()


class GeometricMean(Measure):
    """The geometric mean of positive values."""

    def reducer(self, classes, dim):
        return Geometric()


def test_a_plugin_brings_a_reducer_of_its_own():
    @class_metric(GeometricMean("mine.counts"), needs=["counts"], scale=0.0)
    def counts(s):
        return s.counts.double()

    s = tiny_statistics()
    taking = Taking(declaration(counts).measures, s)
    taking.add(s.counts.double().unsqueeze(0), None)
    assert taking.taken(3).number("mine.counts") == pytest.approx(float(s.counts.double().log().mean().exp()))


class Replacing(Geometric):
    """Replaces its tensors instead of adding to them."""

    def add(self, values, weights=None):
        weights = torch.ones_like(values) if weights is None else weights
        self.n = self.n + weights.sum(dim=1)
        self.total = self.total + (values.log().where(weights > 0, 0) * weights).sum(dim=1)


class Counting(Geometric):
    """Keeps a number outside of tensors."""

    batches = 0

    def add(self, values, weights=None):
        super().add(values, weights)
        self.batches += 1


class Writing(Geometric):
    """Writes to the values, which other reducers read too."""

    def add(self, values, weights=None):
        super().add(values.mul_(2), weights)


class Late(Geometric):
    """Fails at its end."""

    def result(self):
        raise ValueError("no result")


class Short(Geometric):
    """Gives one number for all groups."""

    def result(self):
        return super().result()[:1]


def of_distances(kind, *more):
    class Kind(Measure):
        """A measure of this reducer."""

        def reducer(self, classes, dim):
            return kind()

    return pair_metric(Kind("mine.a"), *more, needs=["means"], over="distinct", scale=1.0)(lambda pair: pair.distance)


@pytest.mark.parametrize("kind", [Geometric, Replacing])
def test_a_reducer_of_pairs_has_a_value_a_class(kind):
    s = tiny_statistics()
    own = declaration(of_distances(kind))
    distances = torch.cdist(s.means, s.means)
    others = distances + torch.eye(s.n_classes)  # the log of 1 is 0
    of_all = (others.log().sum() / (s.n_classes * (s.n_classes - 1))).exp()
    (swept,) = sweep(s, [(own, list(own.measures))], tile=2, by_class=True).metrics
    assert swept.taken.number("mine.a") == pytest.approx(float(of_all))
    torch.testing.assert_close(swept.by_class.numbers["mine.a"], (others.log().sum(dim=1) / (s.n_classes - 1)).exp())


@pytest.mark.parametrize(
    ("kind", "said"),
    [
        (Counting, "Counting.add.. changes batches"),
        (Writing, "wrote"),
        (Late, "no result"),
        (Short, r"Short gives \(1,\) numbers"),
    ],
)
def test_a_reducer_that_fails_ends_neither_the_sweep_nor_other_metrics(kind, said):
    s = tiny_statistics()
    bad, good = declaration(of_distances(kind)), declaration(of_distances(Geometric))
    failed, swept = sweep(s, [(bad, list(bad.measures)), (good, list(good.measures))], tile=2, by_class=True).metrics
    assert isinstance(failed, Exception)
    assert re.search(said, str(failed))
    assert swept.taken.number("mine.a") > 0


def test_a_reducer_that_is_none_costs_its_own_metric_only():
    class Wrong(Measure):
        def reducer(self, classes, dim):
            return "median"

    @class_metric(Wrong("mine.a"), needs=["counts"])
    def counts(s):
        return s.counts.double()

    with pytest.raises(PluginError, match=r"Wrong\.reducer\(\) of mine.a must give a .*Reducer, not str"):
        Taking(declaration(counts).measures, tiny_statistics())


def test_measures_through_the_front_door(monkeypatch):
    s = tiny_statistics()
    measures = [Min("mine.min"), Max("mine.max"), MeanLog("mine.log"), LogMeanExp("mine.exp")]

    @class_metric(*measures, needs=["counts"])
    def counts(s):
        return s.counts.double()

    x = s.counts.double().numpy()
    taking = Taking(declaration(counts).measures, s)
    taking.add(s.counts.double().unsqueeze(0), None)
    taken = taking.taken(len(x))
    assert taken.number("mine.min") == x.min()
    assert taken.number("mine.max") == x.max()
    assert taken.number("mine.log") == pytest.approx(np.log(x).mean())
    assert taken.number("mine.exp") == pytest.approx(log_mean_exp(x, np.ones_like(x), 1.0))
    assert isinstance(collapse.Measure, type)


class Unmerged(Geometric):
    """Forgets the other side."""

    def merge(self, other):
        self.n += other.n


class Raises(Geometric):
    """Cannot merge."""

    def merge(self, other):
        raise ValueError("lost")


@pytest.mark.parametrize(
    ("kind", "said"),
    [
        (Unmerged, r"law of merge: .* of all values, .* merged of three parts"),
        (Raises, "law of merge: its reducer fails"),
    ],
)
@pytest.mark.parametrize("of_pairs", [True, False])
def test_a_reducer_that_does_not_merge_is_told_so(kind, said, of_pairs):
    class Kind(Measure):
        """A measure of this reducer."""

        def reducer(self, classes, dim):
            return kind()

    measures = [Kind("mine.a")]
    function = (
        pair_metric(*measures, needs=["means"], over="distinct", scale=1.0)(lambda pair: pair.distance)
        if of_pairs
        else class_metric(*measures, needs=["means"], scale=1.0)(lambda s: s.norms)
    )
    with pytest.raises(LawBroken, match=said) as raised:
        check_metric(function)
    assert raised.value.laws == {"merge"}


@pytest.mark.parametrize(
    ("over", "without"),
    [("all", []), ("directions", [2]), ("dual_directions", [0, 2]), (lambda s: s.counts > 2, [1])],
)
def test_the_values_of_excluded_classes_are_nan(over, without, monkeypatch):
    s = replace(
        tiny_statistics(),
        means=torch.tensor([[3.0, 0, 0], [0, 3, 0], [1.5, 1.5, 0]]).double(),
        counts=torch.tensor([5, 2, 4]),
        classifier=torch.tensor([[0.0, 0, 0], [0, 1, 0], [1, 1, 1]]).double(),
    )

    @class_metric(Mean("mine.cosine"), needs=["means", "classifier"], over=over)
    def cosines(s):
        if over != "dual_directions":
            return s.norms
        return torch.nn.functional.cosine_similarity(s.classifier, s.means, eps=0)

    monkeypatch.setattr(plugins(), "metrics", [*plugins().metrics, declaration(cosines)])
    ids, values = collapse.vectors(s, "mine.cosine")
    assert ids.tolist() == s.classes.tolist()
    assert values.isnan().nonzero().flatten().tolist() == without
