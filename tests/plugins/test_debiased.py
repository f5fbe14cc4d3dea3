"""Debiased measurements: close to the truth where biased ones are not, and equal to the direct computation."""

import sys
from dataclasses import replace
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path

import numpy as np
import pytest
import reference
import torch
from golden_store import GOLDEN

import collapse
from collapse.testing import statistics_of

SCRIPT = Path(__file__).parents[2] / "benchmarks" / "debiasing.py"


@pytest.fixture(scope="module")
def simulation():
    spec = spec_from_file_location("debiasing", SCRIPT)
    module = sys.modules[spec.name] = module_from_spec(spec)  # where its dataclasses look for it
    spec.loader.exec_module(module)
    yield module
    del sys.modules[spec.name]


@pytest.fixture(scope="module")
def simulated(simulation):
    return simulation.simulate()


def test_the_truth_is_recovered_within_the_standard_error_and_biased_numbers_miss_it(simulation, simulated):
    truth, estimates = simulated
    for biased, debiased in simulation.PAIRS.items():
        for count, of_count in estimates.items():
            mean, error = of_count[debiased]
            assert abs(mean - truth[debiased]) < error, (debiased, count)
            mean, error = of_count[biased]
            assert abs(mean - truth[biased]) > (3 if count <= 5 else 2) * error, (biased, count)


def test_the_table_in_the_docs_is_what_the_script_prints(simulation, simulated):
    page = (SCRIPT.parents[1] / "docs" / "concepts" / "baselines.md").read_text("utf-8")
    assert f"python benchmarks/{SCRIPT.name}" in page
    for line in simulation.table(*simulated).splitlines()[2:]:
        name, *made = line.strip("| ").split(" | ")
        (said,) = [each.strip("| ").split(" | ")[1:] for each in page.splitlines() if each.startswith(f"| {name} | 0.")]
        for shown, cell in zip(said, made, strict=True):
            (a, error), (b, _) = ([*map(float, each.split(" ± ")), 1e-3][:2] for each in (shown, cell))
            assert abs(a - b) < error, (name, shown, cell)  # no digit of random numbers is promised


def test_the_numbers_of_a_real_store_are_the_direct_ones():
    store = collapse.load(GOLDEN)
    s = store.statistics()
    arrays = {name: getattr(s, name).numpy() for name in ("counts", "means", "variances")}
    assert (arrays["counts"] == 1).any()
    assert (arrays["counts"] > 1).any()
    expected = reference.debiased(arrays, s.classifier.numpy())
    row = collapse.measure(store, metrics=list(expected))
    for name, value in expected.items():
        assert row.measurements[name] == pytest.approx(value, rel=1e-9), name


def test_classes_of_one_sample_are_left_out_and_counted(simulation):
    s = collapse.load(GOLDEN).statistics()
    names = [*simulation.PAIRS.values()]
    row, without = (collapse.measure(s, metrics=names, min_count=least) for least in (1, 2))
    for name, value in without.measurements.items():
        assert row.measurements[name] == (value and pytest.approx(value, rel=1e-12)), name
    alone = int((s.counts == 1).sum())
    for name in [name for name in names if name != "nc2.interference_debiased"]:  # has no number, with a reason
        (text,) = [note.text for note in row.notes if note.measurement == name]
        assert text.startswith(f"{alone} of {s.n_classes} classes have one sample and are excluded"), name
    assert not [note for note in without.notes if "one sample" in note.text]


@pytest.mark.parametrize(("counts", "reason"), [([1, 1, 5], "two samples"), ([2, 2, 2], "no farther apart")])
def test_a_number_that_samples_cannot_give_is_null_with_a_reason(counts, reason):
    means = [[0.0, 1.0], [1.0, 0.0], [1.0, 1.0]]
    s = statistics_of(means, means)
    s = replace(s, counts=torch.tensor(counts), variances=s.variances + 50)
    row = collapse.measure(s, metrics=["nc1.cdnv_ratio_debiased", "nc3.self_duality_ratio_debiased"])
    assert set(row.measurements.values()) == {None}
    for name in row.measurements:
        assert reason in next(note.text for note in row.notes if note.measurement == name)
    if counts[0] == 2:  # an unbiased square can be negative; then no root is taken of it
        norm = collapse.measure(s, metrics="nc2.scaled_norm_debiased").measurements["nc2.scaled_norm_debiased"]
        assert norm < 0


def _heavy_tailed(draw, classes, samples, dim):
    """Embeddings with heavy tails in few directions, and labels with Zipf's frequencies that they do not depend on."""
    chances = 1 / np.arange(1, classes + 1)
    labels = np.concatenate([np.tile(np.arange(classes), 2), draw.choice(classes, samples, p=chances / chances.sum())])
    features = draw.normal(size=(len(labels), dim)) * np.arange(1, dim + 1) ** -0.8
    return features * np.exp(0.8 * draw.normal(size=(len(labels), 1))), labels


@pytest.mark.parametrize("classes", [2, 5, 300])
def test_labels_without_relation_to_the_embeddings_give_a_number_in_one_draw_of_twenty_at_most(classes):
    draw, name = np.random.default_rng(classes), "nc1.cdnv_ratio_debiased"
    measured = [
        collapse.measure(features=features, labels=labels, metrics=name)[name]
        for features, labels in (_heavy_tailed(draw, classes, 6 * classes, 32) for _ in range(100))
    ]
    assert sum(value is not None for value in measured) <= 5  # without the guard about 50


def test_one_class_far_from_all_others_is_enough_for_a_number():
    draw = np.random.default_rng(0)
    labels = np.repeat(np.arange(200), 20)
    features = draw.normal(size=(len(labels), 16)) + 100.0 * (labels == 7)[:, None]
    found = collapse.measure(features=features, labels=labels, metrics="nc1.trace_ratio_debiased").measurements
    truth = 16 / (16 * 100**2 * (1 / 200) * (1 - 1 / 200))
    assert found["nc1.trace_ratio_debiased"] == pytest.approx(truth, rel=0.05)


def test_heavy_noise_leaves_no_debiased_interference_and_the_right_self_duality(simulation):
    drawn, draw = simulation.Population.drawn(), torch.Generator().manual_seed(2)
    names = ["nc2.interference_debiased", "nc3.self_duality_ratio_debiased"]
    population = simulation.Population(drawn.means, drawn.stds * 2.6, drawn.rows)  # a trace ratio of 2.8
    rows = [collapse.measure(population.sampled(2, draw), metrics=names) for _ in range(40)]
    assert {row[names[0]] for row in rows} == {None}
    assert "are within their noise" in rows[0].notes[0].text
    found = [row[names[1]] for row in rows]
    truth = collapse.measure(population.truth(), metrics=names)[names[1]]
    error = np.std(found) / len(rows) ** 0.5
    assert abs(np.mean(found) - truth) < max(3 * error, 0.02 * abs(truth))
