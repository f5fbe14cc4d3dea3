"""Measures: values in any pieces and any order give the same number as all values at once."""

import math
import re
from itertools import pairwise

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import collapse
from collapse import CoV, LogMeanExp, Max, Mean, MeanLog, Measure, Min, Std, class_metric, pair_metric
from collapse.numerics.evaluating_metrics import evaluate
from collapse.numerics.reducing import Tally
from collapse.numerics.values import values_of
from collapse.plugin.metrics import declaration
from collapse.plugin.plugin_manager import plugins
from collapse.testing import tiny_statistics


def log_mean_exp(x: np.ndarray, s: float) -> float:
    top = (s * x).max()
    return float((math.log(np.exp(s * x - top).mean()) + top) / s)


class Geometric(Measure):
    """A plugin's own measure: the geometric mean of positive values."""

    empty = (0.0, 0.0)

    def state(self, values, sums):
        return torch.stack([torch.full_like(sums, values.shape[1]), values.log().sum(dim=1)])

    def result(self, state):
        return (state[1] / state[0]).exp()


# the measure, and its number directly from all values
MEASURES = {
    "mean": (Mean("m.a"), np.mean),
    "std": (Std("m.a"), np.std),
    "cov": (CoV("m.a"), lambda x: np.std(x) / np.mean(x)),
    "mean log": (MeanLog("m.a"), lambda x: np.log(x).mean()),
    "power mean": (LogMeanExp("m.a", exponent=lambda C: C / 2), lambda x: log_mean_exp(x, 1.5)),
    "min": (Min("m.a"), np.min),
    "max": (Max("m.a"), np.max),
    "own": (Geometric("m.a"), lambda x: np.exp(np.log(x).mean())),
}


@pytest.mark.parametrize("name", MEASURES)
@settings(deadline=None, max_examples=40)
@given(
    seed=st.integers(0, 10_000),
    n=st.integers(1, 60),
    spread=st.sampled_from([1e-9, 1.0, 3.0]),
    offset=st.sampled_from([0.5, 1.0, 1e6]),
    cuts=st.lists(st.integers(0, 60), max_size=5),
)
def test_any_cut_in_any_order_equals_all_values_at_once(name, seed, n, spread, offset, cuts):
    measure, direct = MEASURES[name]
    draw = torch.Generator().manual_seed(seed)
    values = offset + spread * torch.rand(1, n, generator=draw, dtype=torch.float64)
    bounds = sorted({0, *(cut for cut in cuts if cut < n), n})
    tally = Tally([measure], 3, 2)
    for start, stop in [*pairwise(bounds)][::-1]:
        tally.add(values[:, start:stop])
    rounding = 1e-12 * spread + 4e-16 * offset
    assert tally.number("m.a") == pytest.approx(float(direct(values[0].numpy())), rel=1e-9, abs=rounding)


@pytest.mark.parametrize("name", MEASURES)
def test_groups_are_reduced_each_for_itself(name):
    measure, direct = MEASURES[name]
    values = torch.rand(4, 9, generator=torch.Generator().manual_seed(1), dtype=torch.float64) + 0.5
    tally = Tally([measure], 3, 2, groups=6)
    tally.add(values[:, :4], slice(1, 5))
    tally.add(values[:, 4:], slice(1, 5))
    found = tally.numbers("m.a")
    assert found[[0, 5]].isnan().all()
    assert found[1:5].tolist() == pytest.approx([float(direct(row.numpy())) for row in values], rel=1e-12)


def test_measures_share_a_state_if_they_are_alike():
    keys = {Mean("m.a").key, Std("m.b").key, CoV("m.c").key}
    assert len(keys) == 1
    assert len(keys | {Min("m.d").key, Max("m.e").key, LogMeanExp("m.f").key, LogMeanExp("m.g", exponent=2).key}) == 5


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
    tally = Tally([MeanLog("m.a")], 4, 2)
    tally.add(torch.tensor([[0.0, 1.0, math.e, 0.0]], dtype=torch.float64))
    assert (tally.number("m.a"), tally.left_out("m.a")) == (0.5, 2)
    tally.add(torch.tensor([[-1.0, 0.0]]).double())
    assert math.isnan(tally.number("m.a"))
    assert tally.left_out("m.a") == 3


class Late(Geometric):
    """Fails in ``result``."""

    def result(self, state):
        raise ValueError("no result")


def test_a_measure_of_its_own_has_a_value_a_class_and_a_failing_one_costs_its_metric():
    @pair_metric(Geometric("mine.a"), Mean("mine.b"), Late("mine.c"), scale=1)
    def function(distance):
        return distance

    own, s = declaration(function), tiny_statistics()
    others = torch.cdist(s.means, s.means) + torch.eye(s.n_classes)  # the log of 1 is 0
    (found,) = evaluate(lambda: values_of(s), [(own, own.measures[:1])], tile_side=2, by_class=True).results
    of_all = (others.log().sum() / (s.n_classes * (s.n_classes - 1))).exp()
    assert found.numbers["mine.a"] == pytest.approx(float(of_all))
    torch.testing.assert_close(found.by_class["mine.a"][1], (others.log().sum(dim=1) / (s.n_classes - 1)).exp())
    row = collapse.measure(s, metrics=[function, "nc2.norm"])
    assert [row[name] for name in ("mine.a", "mine.b", "mine.c")] == [None] * 3
    assert row["nc2.norm"] > 0
    assert any(re.search("no result", note.text) for note in row.notes)


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
    assert [note.text for note in row.notes] == ["2 classes excluded: 2 infinite"]
