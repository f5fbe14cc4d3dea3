"""Reducers: any cut, any order, any choice of values give the number that all values at once give."""

import math
import re
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
from collapse.numerics.reducing import Tally
from collapse.plugin.metrics import declaration
from collapse.plugin.plugin_manager import plugins
from collapse.plugin.reducers import Extreme, Logs, Moments, PowerMean, Reducer
from collapse.testing import LawBroken, check_metric, tiny_statistics


def log_mean_exp(x: np.ndarray, w: np.ndarray, s: float) -> float:
    top = (s * x).max()
    return float((math.log((w * np.exp(s * x - top)).sum() / w.sum()) + top) / s)


def std(x: np.ndarray, w: np.ndarray) -> float:
    return math.sqrt(np.average((x - np.average(x, weights=w)) ** 2, weights=w))


# name: the reducer, how it is read, and the same from all values x, each with weight w = 1
REDUCERS = {
    "mean": (Moments, Moments.result, lambda x, w: np.average(x, weights=w)),
    "std": (Moments, Moments.std, std),
    "mean log": (Logs, Logs.result, lambda x, w: np.average(np.log(x), weights=w)),
    "power mean": (lambda: PowerMean(1.5), PowerMean.result, lambda x, w: log_mean_exp(x, w, 1.5)),
    "min": (lambda: Extreme(-1), Extreme.result, lambda x, w: x.min()),
    "max": (lambda: Extreme(1), Extreme.result, lambda x, w: x.max()),
}


def values_of(seed: int, n: int, spread: float, offset: float) -> torch.Tensor:
    draw = torch.Generator().manual_seed(seed)
    return offset + spread * torch.rand(1, n, generator=draw, dtype=torch.float64)


@pytest.mark.parametrize("name", REDUCERS)
@settings(deadline=None, max_examples=40)
@given(
    seed=st.integers(0, 10_000),
    n=st.integers(1, 60),
    spread=st.sampled_from([1e-9, 1.0, 3.0]),
    offset=st.sampled_from([0.5, 1.0, 1e6]),
    cuts=st.lists(st.integers(0, 60), max_size=5),
)
def test_any_cut_merged_in_any_order_equals_all_values_at_once(name, seed, n, spread, offset, cuts):
    make, read, direct = REDUCERS[name]
    values = values_of(seed, n, spread, offset)
    bounds = sorted({0, *(cut for cut in cuts if cut < n), n})
    parts = []
    for start, stop in pairwise(bounds):
        part = make().of(1, "cpu")
        part.add(values[:, start:stop])
        parts.append(part)
    total = make().of(1, "cpu")
    for part in reversed(parts):
        total.merge(part)
    x = values[0].numpy()
    assert float(read(total)) == pytest.approx(
        float(direct(x, np.ones_like(x))), rel=1e-9, abs=1e-12 * spread + 4e-16 * offset
    )


@pytest.mark.parametrize("name", REDUCERS)
def test_groups_are_reduced_each_for_itself(name):
    make, read, direct = REDUCERS[name]
    draw = torch.Generator().manual_seed(1)
    values = torch.rand(4, 9, generator=draw, dtype=torch.float64) + 0.5
    grouped = make().of(6, "cpu")
    grouped.rows(slice(1, 5)).add(values[:, :4])
    grouped.rows(slice(1, 5)).add(values[:, 4:])
    found = read(grouped)
    assert found[[0, 5]].isnan().all()
    for row in range(4):
        x = values[row].numpy()
        assert float(found[row + 1]) == pytest.approx(float(direct(x, np.ones_like(x))), rel=1e-12)


def test_equal_parameters_share_and_others_do_not():
    assert Moments().key == Moments().key
    assert PowerMean(1.0).key == PowerMean(1.0).key != PowerMean(2.0).key
    assert Extreme(1).key != Extreme(-1).key
    measures = [Mean("m.a"), Std("m.b"), CoV("m.c"), Min("m.d"), Max("m.e")]
    assert len(Tally(measures, 3, 2)._shared) == 3


def test_values_that_are_not_finite_are_left_out_and_counted():
    values = torch.tensor([[1.0, math.nan, 3.0, math.inf], [2.0, 5.0, -math.inf, math.nan]], dtype=torch.float64)
    for groups in (values, values[:1]):
        tally = Tally([Mean("m.a"), Max("m.b")], 4, 2, groups=len(groups))
        tally.add(groups)
        assert tally.numbers("m.a").tolist() == [2.0, 3.5][: len(groups)]
        assert tally.numbers("m.b").tolist() == [3.0, 5.0][: len(groups)]
        assert (tally.nan, tally.infinite, tally.added) == (len(groups), len(groups), 4 * len(groups))
        assert tally.left_out("m.a") == 2 * len(groups)


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


class Geometric(Reducer):
    """A plugin's own: the geometric mean."""

    def __init__(self) -> None:
        self.n, self.total = torch.zeros(1).double(), torch.zeros(1).double()

    def add(self, values):
        self.n += values.shape[1]
        self.total += values.log().sum(dim=1)

    def merge(self, other):
        self.n += other.n
        self.total += other.total

    def result(self):
        return (self.total / self.n).exp()


class GeometricMean(Measure):
    """The geometric mean of positive values."""

    def reducer(self, C, d):
        return Geometric()


def test_a_plugin_brings_a_reducer_of_its_own():
    values = tiny_statistics().counts.double()
    tally = Tally([GeometricMean("mine.counts")], 3, 2)
    tally.add(values.unsqueeze(0))
    assert tally.number("mine.counts") == pytest.approx(float(values.log().mean().exp()))


class Replacing(Geometric):
    """Replaces its tensors instead of adding to them."""

    def add(self, values):
        self.n = self.n + values.shape[1]
        self.total = self.total + values.log().sum(dim=1)


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

        def reducer(self, C, d):
            return kind()

    def function(distance):
        return distance

    return pair_metric(Kind("mine.a"), *more, scale=1)(function)


@pytest.mark.parametrize("kind", [Geometric, Replacing])
def test_a_reducer_of_pairs_has_a_value_a_class(kind):
    s = tiny_statistics()
    own = declaration(of_distances(kind))
    distances = torch.cdist(s.means, s.means)
    others = distances + torch.eye(s.n_classes)  # the log of 1 is 0
    of_all = (others.log().sum() / (s.n_classes * (s.n_classes - 1))).exp()
    (swept,) = sweep(s, [(own, list(own.measures))], tile=2, by_class=True).metrics
    assert swept.all.number("mine.a") == pytest.approx(float(of_all))
    torch.testing.assert_close(swept.by_class.numbers("mine.a"), (others.log().sum(dim=1) / (s.n_classes - 1)).exp())


@pytest.mark.parametrize(("kind", "said"), [(Late, "no result"), (Short, r"Short gives \(1,\) numbers")])
def test_a_reducer_that_fails_costs_its_own_measure_only(monkeypatch, kind, said):
    monkeypatch.setattr(plugins(), "metrics", [*plugins().metrics, declaration(of_distances(kind, Mean("mine.b")))])
    if kind is Short:
        with pytest.raises(PluginError, match=said):
            collapse.vectors(tiny_statistics(), "mine.a")
        return
    row = collapse.measure(tiny_statistics(), metrics=["mine"])
    assert row.measurements["mine.a"] is None
    assert row.measurements["mine.b"] > 0
    assert any(re.search(said, note.text) for note in row.notes)


def test_a_reducer_that_is_none_is_refused():
    class Wrong(Measure):
        def reducer(self, C, d):
            return "median"

    with pytest.raises(PluginError, match=r"Wrong\.reducer\(\) of mine.a must give a Reducer"):
        Tally([Wrong("mine.a")], 3, 2)


def test_measures_of_values():
    x = tiny_statistics().counts.double()
    tally = Tally([Min("mine.min"), Max("mine.max"), MeanLog("mine.log"), LogMeanExp("mine.exp")], 3, 2)
    tally.add(x.unsqueeze(0))
    x = x.numpy()
    assert tally.number("mine.min") == x.min()
    assert tally.number("mine.max") == x.max()
    assert tally.number("mine.log") == pytest.approx(np.log(x).mean())
    assert tally.number("mine.exp") == pytest.approx(log_mean_exp(x, np.ones_like(x), 1.0))


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
        (Unmerged, r"law of merge: .* of all values, .* merged of parts"),
        (Raises, "law of merge: its reducer fails"),
    ],
)
@pytest.mark.parametrize("of_pairs", [True, False])
def test_a_reducer_that_does_not_merge_is_told_so(kind, said, of_pairs):
    class Kind(Measure):
        """A measure of this reducer."""

        def reducer(self, C, d):
            return kind()

    def pairs(distance):
        return distance

    def classes(norms):
        return norms

    declare = pair_metric if of_pairs else class_metric
    function = declare(Kind("mine.a"), scale=1)(pairs if of_pairs else classes)
    with pytest.raises(LawBroken, match=said) as raised:
        check_metric(function)
    assert raised.value.laws == {"merge"}


def test_the_values_of_excluded_classes_are_nan(monkeypatch):
    @class_metric(Mean("mine.ratio"))
    def ratio(norms, counts):
        return norms / (counts - 2)

    monkeypatch.setattr(plugins(), "metrics", [*plugins().metrics, declaration(ratio)])
    s = tiny_statistics()  # of 4, 2 and 2 samples
    ids, values = collapse.vectors(s, "mine.ratio")
    assert ids.tolist() == s.classes.tolist()
    assert values.isnan().tolist() == [False, True, True]
    row = collapse.measure(s, metrics=["mine"])
    assert row.measurements["mine.ratio"] == float(values[0])
    assert [note.text for note in row.notes] == ["2 classes left out: 2 infinite"]
