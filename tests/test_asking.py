"""What a plugin's functions ask for by the names of their parameters."""

import pytest
import torch

import collapse
from collapse import Mean, Noted, class_metric, derived, metric, pair_metric
from collapse.errors import PluginError
from collapse.plugin import plugin_manager
from collapse.plugin.asking import HELD, OF_CLASSES, OF_PAIRS, ask, needs_of
from collapse.plugin.metrics import declaration
from collapse.plugin.plugin_manager import plugins
from collapse.testing import random_features, tiny_statistics, value

CALLS: list[str] = []


@derived
def spread(variances):
    CALLS.append("spread")
    return variances.sqrt()


@derived
def nothing(spread):
    return Noted(None, f"no value of {len(spread)} classes")


@derived
def remarked(spread):
    return Noted(spread.max(), "the largest")


@metric("asking.most")
def most(spread, remarked):
    return float(remarked)


@metric("asking.none")
def none(nothing):
    raise AssertionError("it is not called")


@metric("asking.twice")
def twice(most):
    return 2 * most


@derived
def broken(counts):
    return counts / {}["absent"]


@metric("asking.broken")
def of_broken(broken):
    return 1.0


@metric("asking.optional")
def optional(counts, absent_statistic=None):
    return float(counts.sum()) if absent_statistic is None else 0.0


@metric("asking.writes")
def writes(spread):
    spread.zero_()
    return 0.0


@class_metric(Mean("asking.lengths"))
def lengths(norms, d, C):
    return norms / d * C / C


@pair_metric(Mean("asking.counts"), Mean("asking.negative"))
def of_counts(row_counts, column_counts, gram):
    return row_counts[:, None] + column_counts[None, :] + 0 * gram


def test_a_derived_value_is_computed_once_and_its_remark_passed_on():
    s = tiny_statistics()
    CALLS.clear()
    assert ask(most, s) == Noted(1.0, "the largest")
    assert value(twice, s) == 2.0
    assert ask(twice, s).text == "the largest"
    assert CALLS == ["spread"]
    CALLS.clear()
    ask(most, tiny_statistics())
    assert CALLS == ["spread"]


def test_without_a_derived_value_there_is_no_number():
    assert ask(none, tiny_statistics()) == Noted(None, "no value of 3 classes")


def test_an_error_names_the_function_that_raised():
    with pytest.raises(PluginError, match=r"test_asking\.broken, which it asks for, failed: KeyError: 'absent'"):
        ask(of_broken, tiny_statistics())


@pytest.mark.parametrize(
    ("function", "needs"),
    [
        (most, ("variances",)),
        (twice, ("variances",)),
        (optional, ("counts",)),
        (lengths, ("means",)),
        (of_counts, ("counts", "means")),
    ],
)
def test_what_a_store_needs_follows_from_the_names(function, needs):
    assert needs_of(function) == declaration(function).needs == needs


def test_names_are_those_of_the_statistics():
    s = tiny_statistics()
    assert value(lambda C, d, counts, left_out: (C, d, counts.tolist(), left_out), s) == (3, 2, [4, 2, 2], 0)
    for name in (*HELD, *OF_CLASSES):
        given = value(eval(f"lambda {name}: {name}"), s)
        assert given is not None or name == "bias"
    assert value(optional, s) == 8.0


def test_every_field_of_pairs_has_its_name():
    from collapse.numerics.tiles import Pair

    fields = {name for name, each in vars(Pair).items() if type(each).__name__ == "_Field"}
    assert fields | {"gram", "pair"} == set(OF_PAIRS)


FILE = """
from collapse import Mean, derived, metric, pair_metric

@derived
def shared(means):
    return means.clone()

@metric("mine.writes")
def writes(shared):
    shared.zero_()
    return 0.0

@metric("mine.reads")
def reads(shared):
    return shared.abs().sum()

@pair_metric(Mean("mine.pairs"))
def pairs(row_counts, column_counts, gram, reads):
    return row_counts[:, None] * column_counts[None, :] + 0 * gram + 0 * reads
"""


def test_a_write_to_a_derived_value_costs_its_metric_only(tmp_path, monkeypatch):
    monkeypatch.setattr(plugin_manager, "_extra", [])
    (tmp_path / "mine.py").write_text(FILE)
    plugin_manager.add_plugins([str(tmp_path / "mine.py")])
    try:
        features = random_features(6, 3, 60)
        made = collapse.collect_arrays(features["train_features"], features["train_labels"], features["classifier"])
        row = collapse.measure(made, metrics="mine")
        assert row.measurements["mine.writes"] is None
        assert "it wrote to shared" in next(note.text for note in row.notes if note.measurement == "mine.writes")
        assert row.measurements["mine.reads"] == pytest.approx(float(made.statistics().means.abs().sum()))
        n = made.statistics().counts.double()
        products = n.outer(n)[*torch.triu_indices(6, 6, 1)]
        assert row.measurements["mine.pairs"] == pytest.approx(float(products.mean()))
    finally:
        monkeypatch.undo()
        plugins.cache_clear()
