"""Standard errors of validation measurements, against the samples themselves and a bootstrap over chunks."""

import math

import made_validations as made
import numpy as np
import pytest

import collapse
from collapse import metric
from collapse.measurement.row_tables import ERROR, whole_table_of
from collapse.numerics.standard_errors import influence_of
from collapse.numerics.values import values_of
from collapse.plugin.plugin_manager import add_plugins, plugins
from collapse.testing import check_metric, check_statistic
from collapse_metrics.kappa_groups import PredictionsByGroup, grouped_kappa

GROUPED = "collapse_metrics.kappa_groups"


@pytest.fixture
def grouped(own_plugins):
    """With the plugin of kappa's standard error."""
    add_plugins([GROUPED])


def measured(v):
    """Each measurement with a standard error, directly from the samples."""
    p, q = (np.bincount(v[rule], minlength=made.CLASSES) / len(v["y"]) for rule in ("linear", "ncc"))
    agreement, chance = (v["linear"] == v["ncc"]).mean(), (p * q).sum()
    return {
        "val_loss": v["loss"].mean(),
        "perplexity": math.exp(v["loss"].mean()),
        "val_accuracy": (v["hit"] == v["y"]).mean(),
        "nc4.agreement": agreement,
        "nc4.grouped_kappa": (agreement - chance) / (1 - chance),
    }


def of_chunks(v, chunks):
    """The samples of some chunks, each as often as it is named."""
    rows = np.concatenate([np.flatnonzero(v["chunk"] == chunk) for chunk in chunks])
    return {name: each[rows] for name, each in v.items()}


@pytest.mark.parametrize("name", ["val_loss", "val_accuracy", "nc4.agreement"])
def test_the_error_of_a_share_is_that_of_a_ratio_without_each_block(name):
    v = made.samples(30)
    row = collapse.measure(made.store(v), metrics=name)
    value = {"val_loss": v["loss"], "val_accuracy": v["hit"] == v["y"], "nc4.agreement": v["linear"] == v["ncc"]}[name]
    n = np.bincount(v["chunk"])
    residuals = np.bincount(v["chunk"], value) - value.mean() * n
    expected = math.sqrt(29 / 30 * ((residuals / (n.sum() - n)) ** 2).sum())  # the delete-one jackknife
    assert row[name] == pytest.approx(measured(v)[name], rel=1e-12)
    assert row.standard_errors == pytest.approx({name: expected}, rel=1e-12)


@pytest.mark.usefixtures("grouped")
def test_errors_are_those_of_a_bootstrap_over_chunks():
    v, draw = made.samples(50), np.random.default_rng(0)  # 50 chunks are 50 of the 64 groups
    drawn = [measured(of_chunks(v, draw.integers(0, 50, 50))) for _ in range(600)]
    row = collapse.measure(made.store(v, groups=True), metrics=list(drawn[0]))
    assert set(row.standard_errors) == set(drawn[0])
    for name, error in row.standard_errors.items():
        assert error == pytest.approx(np.std([each[name] for each in drawn]), rel=0.15), name


@pytest.mark.usefixtures("grouped")
@pytest.mark.parametrize("chunks", [3, 200])
def test_kappas_influence_is_its_derivative_in_the_weight_of_a_group(chunks):
    v, step = made.samples(chunks), 1e-4
    store = made.store(v, groups=True)
    row = collapse.measure(store, metrics="nc4")
    assert row["nc4.grouped_kappa"] == pytest.approx(row["nc4.kappa"], rel=1e-12)
    found = influence_of(values_of(store.statistics()), plugins().measurements()["nc4.grouped_kappa"][0])
    assert len(found) == min(chunks, 64)
    assert float(found.sum()) == pytest.approx(0, abs=1e-12)

    def kappa(weight):
        weights = np.where(v["chunk"] % 64 == 1, weight, 1.0)
        p, q = (np.bincount(v[rule], weights, made.CLASSES) / weights.sum() for rule in ("linear", "ncc"))
        return (np.average(v["linear"] == v["ncc"], weights=weights) - p @ q) / (1 - p @ q)

    assert float(found[1]) == pytest.approx((kappa(1 + step) - kappa(1 - step)) / (2 * step), rel=1e-5)


def test_the_plugin_of_kappa_keeps_the_laws():
    check_statistic(PredictionsByGroup)
    check_metric(grouped_kappa)


def test_a_table_has_a_line_for_errors():
    names = ["nc4", "val_loss", "nc2.norm"]
    assert sorted(collapse.measure(made.store(made.samples(8)), metrics=names).standard_errors) == [
        "nc4.agreement",
        "val_loss",
    ]
    assert collapse.measure(made.store(None), metrics=names).standard_errors == {}  # not validated
    rows = [collapse.measure(made.store(v), metrics="nc4.agreement") for v in (made.samples(5), made.samples(1))]
    assert "standard error" in rows[0]._repr_markdown_()
    _, error = whole_table_of(rows).rows
    assert error == ["", ERROR, rows[0].standard_errors["nc4.agreement"], None, ""]
    assert len(whole_table_of(rows[1:]).rows) == 1


@metric("mine.detached", standard_error=True)
def detached(chunks):
    return float(chunks.hits.detach())


@metric("mine.listed", standard_error=lambda chunks: [float(chunks.hits)])
def listed(chunks):
    return chunks.hits


@pytest.mark.parametrize(
    ("function", "why"), [(detached, "the function's parameter `chunks`"), (listed, "shape (S,), got list")]
)
def test_a_failing_standard_error_costs_the_error_only(function, why):
    row = collapse.measure(made.store(made.samples(5)), metrics=[function])
    assert [*row.measurements.values()] != [None]
    assert row.standard_errors == {}
    (note,) = row.notes
    assert note.text.startswith("no standard error: ")
    assert why in note.text


def test_a_functions_error_is_differentiated_through_what_it_asks_for():
    row = collapse.measure(made.store(made.samples(30)), metrics=["val_loss", "perplexity"])
    expected = row["perplexity"] * row.standard_errors["val_loss"]
    assert row.standard_errors["perplexity"] == pytest.approx(expected, rel=1e-12)
