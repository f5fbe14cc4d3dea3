"""Notes and exclusions of a row."""

import math
from dataclasses import replace

import pytest
import torch

import collapse
from collapse.testing import statistics_of, tiny_statistics

PLUGIN = """
from collapse import CoV, LogMeanExp, Mean, MeanLog, Noted, State, Statistic, Std, class_metric, metric, pair_metric

def measures(name):
    return [
        Mean(f"{name}.mean", towards=float("inf")), Std(f"{name}.std"), CoV(f"{name}.cov"), MeanLog(f"{name}.log"),
        LogMeanExp(f"{name}.exp", exponent=lambda d: d), LogMeanExp(f"{name}.none", exponent=lambda d: 0.0),
    ]

@class_metric(*measures("c"))
def of_classes(variances): return variances

@pair_metric(*measures("p"))
def of_pairs(variance_sum): return variance_sum

@pair_metric(Mean("q.ratio"))
def ratio(variance_sum, row_variances, column_variances):
    return variance_sum / (row_variances * column_variances)

@metric("s.noted")
def noted(means, counts): return Noted(float(counts.sum()), "why", "odd")

@metric("s.nothing")
def nothing(counts): return Noted(None, "not here")

@metric("s.asks")
def asks(noted): return noted / 2

@metric("s.asks_nothing")
def asks_nothing(nothing): return 1.0

@metric("s.infinite", towards=float("inf"))
def infinite(counts): return float("inf")

@metric("s.minus", towards=float("inf"))
def minus(counts): return -float("inf")

class Each(Statistic):
    name, per_class, state = "each", True, {"x": State()}

class Pooled(Statistic):
    name, state = "pooled", {"x": State()}

@metric("r.each")
def of_each(each): return float(each["x"])

@metric("r.pooled")
def of_pooled(pooled): return float(pooled["x"])
"""


@pytest.fixture
def measured(load_plugin):
    load_plugin(PLUGIN)

    def measured(s, *metrics, **options):
        row = collapse.measure(s, metrics=metrics, **options)
        return row, {(note.measurement, note.kind): note.text for note in row.notes}

    return measured


def of_variances(*variances):
    s = statistics_of(torch.randn(len(variances), 2, generator=torch.Generator().manual_seed(0)))
    return replace(s, counts=s.counts + 1, variances=torch.tensor(variances, dtype=torch.float64))


def test_values_of_classes_and_of_pairs_are_reduced_alike(measured):
    variances = torch.tensor([0.0, 0.0, 1.0, 2.0, 4.0]).double()
    row, notes = measured(of_variances(*variances.tolist()), "c", "p")
    i, j = torch.triu_indices(5, 5, 1)
    for name, values, zeros in (("c", variances, 2), ("p", variances[i] + variances[j], 1)):
        mean, std = float(values.mean()), float(values.std(correction=0))
        expected = {
            "mean": mean,
            "std": std,
            "cov": std / mean,
            "log": float(values[values > 0].log().mean()),
            "exp": math.log(float((2 * values).exp().mean())) / 2,
        }
        for key, value in expected.items():
            assert row.measurements[f"{name}.{key}"] == pytest.approx(value, rel=1e-12), key
        assert row.measurements[f"{name}.none"] is None
        assert " gave nan" in notes[f"{name}.none", "not_finite"]
        assert row.excluded[f"{name}.log"] == zeros
    assert len(row.excluded) == len(notes) == 2


@pytest.mark.parametrize(
    ("variances", "kind"), [((1.0, -1.0), "zero"), ((1.0, -0.961), "near_zero_mean"), ((1.0, -0.960), None)]
)
def test_a_cov_about_a_mean_near_zero_is_noted(measured, variances, kind):
    row, notes = measured(of_variances(*variances), "c.cov", "c.mean", "c.std")
    assert list(notes) == ([("c.cov", kind)] if kind else [])
    assert (row.measurements["c.cov"] is None) == (kind == "zero")


def test_numbers_and_notes_of_scalars(measured):
    row, notes = measured(tiny_statistics(), "s")
    assert row.measurements == {
        "s.noted": 8.0,
        "s.nothing": None,
        "s.asks": 4.0,
        "s.asks_nothing": None,
        "s.infinite": math.inf,
        "s.minus": None,
    }
    assert notes.pop(("s.noted", "odd")) == notes.pop(("s.asks", "odd")) == "why"
    assert notes.pop(("s.nothing", "note")) == notes.pop(("s.asks_nothing", "note")) == "not here"
    assert " gave -inf" in notes.pop(("s.minus", "not_finite"))
    assert notes == {}
    assert (row.classes, row.dim, row.samples, row.min_count) == (3, 2, 8, 1)


def test_classes_of_one_sample_are_noted_where_variances_count(measured):
    s = replace(tiny_statistics(), counts=torch.tensor([4, 1, 2]))
    _, notes = measured(s, "nc1.cdnv", "nc2.norm", "nc1.trace_ratio")
    assert set(notes) == {("nc1.cdnv", "singletons"), ("nc1.trace_ratio", "singletons")}
    assert notes["nc1.cdnv", "singletons"].startswith("1 of 3 classes (33.3%) have one sample, so variance 0")


def test_values_that_are_not_finite_are_left_out_and_counted_by_kind(measured):
    row, notes = measured(of_variances(0.0, 0.0, 0.0, 2.0, 4.0), "q.ratio")
    assert row.measurements == {"q.ratio": 0.75}
    assert row.excluded == {"q.ratio": 9}
    assert notes == {("q.ratio", "left_out"): "9 pairs excluded: 3 NaN, 6 infinite"}


def test_what_lacks_is_noted(measured):
    row, notes = measured(of_variances(1.0, 2.0, 3.0), "nc3.dot", "nc1.covariance_ratio", "nc2.norm")
    assert {name for name, value in row.measurements.items() if value is None} == {"nc3.dot", "nc1.covariance_ratio"}
    assert notes["nc3.dot", "missing"] == "no classifier in these statistics"


def test_vectors_are_of_classes():
    s = of_variances(1.0, 2.0)
    with pytest.raises(collapse.CollapseError, match=r"nc3\.dot is not available: no classifier"):
        collapse.vectors(s, "nc3.dot")
    with pytest.raises(collapse.CollapseError, match="'perplexity' is not a measurement with a value per class"):
        collapse.vectors(tiny_statistics(), "perplexity")


def test_classes_without_a_sample_are_left_out():
    s = replace(tiny_statistics(), counts=torch.tensor([1, 0, 4]))
    row = collapse.measure(s, metrics=["nc2.norm"])
    assert (row.classes, row.samples, row.min_count) == (2, 5, 1)
    assert row.measurements["nc2.norm"] == pytest.approx(math.sqrt(5))  # half the distance of (2, 0) and (-2, -2)
    ids, values = collapse.vectors(s, "nc2.norm")
    assert ids.tolist() == [0, 3]
    assert values.tolist() == pytest.approx([math.sqrt(5)] * 2)


class Unreadable(dict):
    """Plugin statistics whose file was altered."""

    def __getitem__(self, name):
        raise collapse.CollapseError(f"{name} was altered")


def test_plugin_statistics_are_read_where_they_can_be_used(measured):
    s = replace(tiny_statistics(), extra={"each": {"x": torch.tensor(3.0)}, "pooled": {"x": torch.tensor(5.0)}})
    row, notes = measured(s, "r")
    assert (row.measurements, notes) == ({"r.each": 3.0, "r.pooled": 5.0}, {})
    row, notes = measured(replace(s, counts=torch.tensor([4, 2, 1])), "r", min_count=2)
    assert row.measurements == {"r.each": 3.0, "r.pooled": None}
    assert list(notes.values()) == [
        "pooled covers all classes, because it has no row per class (x): not available with --min-count, "
        "--classes-of or --group-by"
    ]
    row, notes = measured(replace(s, versions={"each": 1, "pooled": 7}), "r")
    assert row.measurements == {"r.each": 3.0, "r.pooled": None}
    stale = "pooled: the collection has version 7 of it, but the installed plugin has version 1"
    stale += "; collect again with --recollect"
    assert list(notes.values()) == [stale]
    altered = replace(s, extra=Unreadable(s.extra))
    with pytest.raises(collapse.CollapseError, match="pooled was altered"):
        measured(altered, "r.pooled")
    _, notes = measured(replace(altered, versions={"pooled": 7}), "r.pooled")
    assert list(notes.values()) == [stale]  # it is not even read
