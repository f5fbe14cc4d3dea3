"""Degenerate input: an error, or null with a note, but never a wrong number."""

from dataclasses import replace

import pytest
import torch
from safetensors.torch import save_file

import collapse
from collapse import CollapseError
from collapse.testing import random_features, statistics_of


def statistics(means, classifier=None):
    s = statistics_of(means, classifier)
    return replace(s, counts=s.counts + 2, variances=s.variances + 1, dtype="float64")


def notes(row, name):
    return [note.text for note in row.notes if note.measurement == name]


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), float("-inf"), 1e160])
@pytest.mark.parametrize("name", ["train_features", "validation_features", "classifier", "classifier_bias"])
def test_a_features_file_with_a_value_that_cannot_be_computed_with_is_refused(tmp_path, name, bad):
    features = {
        key: value.double() if value.is_floating_point() else value for key, value in random_features(9, 5, 80).items()
    }
    features.setdefault("classifier_bias", torch.zeros(9).double())
    features[name][4] = bad
    save_file(features, tmp_path / "f.safetensors")
    with pytest.raises(CollapseError, match=r"row 4( of the classifier's \w+)? is (NaN or infinite|too large)"):
        collapse.collect(tmp_path / "f.safetensors")


@pytest.mark.parametrize("value", [0.1, 1 / 3, 1e-3, 1234.567])
def test_equal_constant_classes_are_equal_however_they_are_summed(tmp_path, value):
    draw = torch.Generator().manual_seed(0)
    h = torch.randn(9000, 6, generator=draw, dtype=torch.float64)
    y = torch.randint(2, 6, (9000,), generator=draw)
    constant = torch.rand(9000, generator=draw) < 0.4
    y[constant] = (torch.rand(int(constant.sum()), generator=draw) < 0.1).long()  # classes 0 and 1, of many and of few
    h[constant] = torch.tensor([value, -value, value / 7, 1.0, value * 3, -2 * value]).double()
    save_file(
        {"train_features": h, "train_labels": y, "classifier": torch.randn(6, 6, generator=draw)},
        tmp_path / "f.safetensors",
    )
    store = collapse.collect(tmp_path / "f.safetensors")
    s = store.statistics()
    assert torch.equal(s.means[0], s.means[1])
    assert s.variances[:2].tolist() == [0, 0]
    row = collapse.measure(store, metrics=["nc1"])
    assert row.excluded["nc1.cdnv"] == 1
    assert row.measurements["nc1.cdnv"] < 1e6  # the other classes have means a few hundredths apart


@pytest.mark.parametrize("gap", [1e-12, 1e-9])
def test_what_is_more_than_rounding_apart_stays(gap):
    means = torch.tensor([[1.0, 0, 0], [1.0, gap, 0], [-1.0, 0.5, 1.0], [-1.0, -0.5, -1.0]], dtype=torch.float64)
    row = collapse.measure(statistics(means), metrics=["nc1.cdnv_galanti", "gnc2.log_kernel"])
    assert row.excluded == {}
    assert row.measurements["nc1.cdnv_galanti"] == pytest.approx(1 / gap**2 / 6, rel=1e-3)


def test_without_any_pair_of_classes_a_number_is_null_with_the_reason():
    row = collapse.measure(statistics(torch.ones(4, 3).double()), metrics=["nc1.cdnv", "gnc2.distance"])
    assert row.measurements == {"gnc2.distance": None, "nc1.cdnv": None}
    assert "none of 6 pairs has a value" in notes(row, "nc1.cdnv")


def test_means_equal_to_rounding_are_left_out_with_a_note():
    means = torch.tensor([[0.1, 0.7], [0.1 + 2**-56, 0.7 - 2**-53], [1.0, 0.0], [-1.0, 3.0]], dtype=torch.float64)
    row = collapse.measure(statistics(means), metrics=["nc1.cdnv"])
    assert row.excluded == {"nc1.cdnv": 1}
    assert notes(row, "nc1.cdnv") == ["1 pair excluded as equal up to float64 rounding"]
    assert row.measurements["nc1.cdnv"] < 10


def test_classes_that_all_have_one_mean_but_for_rounding_have_none_of_the_numbers_of_their_means():
    means = torch.full((3, 4), 0.7).double()
    means[0, 0] += 2**-53
    assert (means - means.mean(dim=0)).any()
    s = statistics(means, classifier=torch.randn(3, 4) * 1e20)
    assert not s.centred_means.any()
    names = ["nc1.trace_ratio", "nc2.norm_cov", "nc2.etf_error", "nc3.duality_error"]
    row = collapse.measure(s, metrics=[*names, "nc3.dot", "nc2.norm"])
    assert {name for name, value in row.measurements.items() if value is None} == set(names)
    assert {each.measurement for each in row.notes} >= set(names)
    assert row.measurements["nc3.dot"] == row.measurements["nc2.norm"] == 0


def test_means_whose_squares_are_lost_are_not_taken_for_equal():
    means = torch.tensor([[1.0, 2.0], [3.0, 1.0], [0.0, -3.0]]).double()
    assert statistics(means * 2.0**-600).centred_means.equal(statistics(means).centred_means * 2.0**-600)


def test_a_classifier_row_of_zero_costs_its_class_only():
    draw = torch.Generator().manual_seed(2)
    means, classifier = (torch.randn(6, 4, generator=draw, dtype=torch.float64) for _ in range(2))
    classifier[2] = 0
    row = collapse.measure(statistics(means, classifier=classifier), metrics=["nc3", "unc3"])
    kept = torch.tensor([0, 1, 3, 4, 5])
    centred = (means - means.mean(dim=0))[kept]
    cosines = torch.nn.functional.cosine_similarity(centred, classifier[kept])
    assert row.measurements["nc3.self_duality"] == pytest.approx(float(cosines.mean()), rel=1e-12)
    assert row.measurements["unc3.uniform_duality"] == pytest.approx(float(cosines.std(correction=0) / cosines.mean()))
    assert None not in row.measurements.values()
    for name in ("nc3.self_duality", "nc3.duality_distance_std", "unc3.uniform_duality"):
        assert notes(row, name)[0] == "1 class with a classifier row of zero excluded"
    equal = collapse.measure(
        statistics(means, classifier=torch.full((6, 4), 0.1)), metrics=["nc3.self_duality_centred"]
    )
    assert equal.measurements["nc3.self_duality_centred"] is None


@pytest.mark.parametrize(("classes", "dim"), [(2, 1), (5, 2), (9, 3), (7, 6), (6, 8), (12, 4)])
@pytest.mark.parametrize("common", [0.0, 1.0, 6.0])
def test_no_std_of_the_cosines_is_below_what_is_said_to_be_reachable(classes, dim, common):
    from collapse_metrics.nc2 import least_interference_std

    draw = torch.Generator().manual_seed(3)
    for _ in range(60):
        units = torch.randn(classes, dim, generator=draw, dtype=torch.float64)
        units += common * torch.randn(dim, generator=draw, dtype=torch.float64)
        units /= units.norm(dim=1, keepdim=True)
        rows, columns = torch.triu_indices(classes, classes, 1)
        cosines = (units @ units.T)[rows, columns]
        least = least_interference_std(classes, dim, {"nc2.interference": float(cosines.mean())})
        assert float(cosines.std(correction=0)) >= least - 1e-7
