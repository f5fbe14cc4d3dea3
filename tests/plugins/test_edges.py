"""Edge cases of built-in metrics: remarks, excluded classes and pairs, and reachable values."""

import math
import sys
from dataclasses import replace

import numpy as np
import pytest
import torch

import collapse
from collapse import Noted
from collapse.numerics.values import values_of
from collapse.testing import statistics_of, tiny_statistics
from collapse_metrics import gnc2, nc2, nc3
from collapse_metrics.generalization import perplexity
from collapse_metrics.nc1 import covariance_ratio
from collapse_metrics.nc4 import agreement, kappa


def validated(**changes):
    s = tiny_statistics()
    tensors = {name: torch.from_numpy(np.array(value)) for name, value in changes.items()}  # float64
    v = replace(s.validation, **tensors)
    totals = [each.sum() for each in (v.counts, v.agreements, v.vocabulary_hits, v.loss_sum, torch.tensor(0.0))]
    return replace(s, validation=replace(v, block_totals=torch.stack(totals).double().unsqueeze(0)))


def given(function, s):
    """Return a function's value with its remark."""
    return values_of(s).value(function)


def test_agreement_says_for_how_many_samples_there_is_no_mean():
    assert given(agreement, tiny_statistics()) == 0.75
    several = given(agreement, validated(classes=[0, 2], argmax_without_mean=[1]))
    assert (several.value, several.text) == (
        0.75,
        "the 4 validation samples include 2 whose label does not occur in training "
        "and 1 whose most probable token has no class mean "
        "(the classifier then decides for its most probable token that has one)",
    )
    assert given(agreement, validated(classes=[0, 2], counts=[4, 0])) == 0.75  # predicted only
    three = replace(statistics_of(torch.eye(3)), validation=validated(classes=[1, 7]).validation)
    of_two = three.keep(1, torch.tensor([0, 2]))
    assert given(agreement, of_two) == given(agreement, three)  # of all classes in training
    assert "2 whose label does not occur in training" in given(agreement, of_two).text


def test_kappa_of_two_rules_that_always_say_the_same_class_is_undefined():
    alike = given(kappa, validated(linear_predictions=[4, 0], ncc_predictions=[4, 0], agreements=[2, 2]))
    assert alike == Noted(None, "both rules always predict the same class: chance agreement is 1")
    assert given(kappa, validated(linear_predictions=[4, 0], ncc_predictions=[0, 4], agreements=[0, 0])) == 0


def test_perplexity_up_to_the_largest_number():
    for loss in (709.0, math.log(sys.float_info.max)):
        assert given(perplexity, validated(loss_sum=[4 * loss, 0.0])).isfinite()
    value = given(perplexity, validated(loss_sum=[4 * 710.0, 0.0]))
    assert (value.value, value.kind) == (None, "not_finite")


@pytest.mark.parametrize(
    ("dtype", "means", "rank"),
    [
        ("float32", [[2, 1], [0, 1], [-2, 1]], 1),
        # the third direction's std over classes, squared, is around d·ε of the largest eigenvalue, 8/3
        ("float64", [[2, 0], [-2, 0], [0, 3.3e-8 * math.sqrt(4.5)]], 1),
        ("float64", [[2, 0], [-2, 0], [0, 3.6e-8 * math.sqrt(4.5)]], 2),
        # around 2⁻²²·max‖μ_c‖
        ("float32", [[2, 0], [-2, 0], [0, 4.5e-7 * math.sqrt(4.5)]], 1),
        ("bfloat16", [[2, 0], [-2, 0], [0, 5e-7 * math.sqrt(4.5)]], 2),
        ("float64", [[2, 5e3], [-2, 5e3], [0, 5e3 + 1e-3]], 2),
        ("float32", [[2, 5e3], [-2, 5e3], [0, 5e3 + 1e-3]], 1),
    ],
)
def test_the_covariance_ratio_drops_directions_without_means(dtype, means, rank):
    s = replace(tiny_statistics(), means=torch.tensor(means).double(), dtype=dtype)
    found = given(covariance_ratio, s)
    assert found.text == f"the between-class covariance has rank {rank} of d = 2"
    if rank == 1:
        assert found.value == pytest.approx((4 / 8) / (8 / 3) / 3)
    alike = given(covariance_ratio, replace(s, means=torch.zeros(3, 2).double()))
    assert alike.value is None
    assert "do not differ" in alike.text


def test_what_is_reachable_in_few_dimensions():
    assert gnc2.uniform_log_kernel(9, 1) is gnc2.uniform_log_kernel_std(9, 1) is gnc2.uniform_cov(9, 1) is None
    assert gnc2.uniform_log_kernel(9, 2) == 0.0
    assert gnc2.uniform_log_kernel_std(9, 2) == pytest.approx(math.pi / math.sqrt(12))
    assert gnc2.uniform_log_kernel(9, 5) == pytest.approx(5 / 12 - math.log(2))
    assert gnc2.uniform_log_kernel_std(9, 5) == pytest.approx(math.sqrt(13) / 12)
    assert gnc2.uniform_cov(4, 3) == 0.0
    for classes, dim in ((2, 1), (3, 2), (4, 3), (4, 9)):  # a simplex
        assert gnc2.uniform_log_kernel_std(classes, dim) == 0.0
        assert gnc2.uniform_log_kernel(classes, dim) == pytest.approx(-math.log(math.sqrt(2 * classes / (classes - 1))))
    assert gnc2.uniform_cov(5, 3) == pytest.approx(0.5 / (0.5 - math.log(2)))
    assert nc2.least_etf_error(4, 3) == 0.0
    assert nc2.least_etf_error(5, 3) == pytest.approx(math.sqrt(2 - 2 * math.sqrt(3 / 4)))
    assert nc2.simplex_interference(5) == -0.25


def test_the_uncentred_kernel_leaves_out_pairs_of_one_direction():
    s = replace(tiny_statistics(), means=torch.tensor([[3.0, 0.0], [0.0, 2.0], [0.0, 0.1]]).double())
    row = collapse.measure(s, metrics="gnc2.uncentred_log_kernel")
    assert row["gnc2.uncentred_log_kernel"] == pytest.approx(-math.log(2) / 2)  # of two pairs, at right angles


def test_a_row_that_is_the_mean_row_to_rounding_has_no_direction():
    means = torch.tensor([[1.0, 0.0], [0.0, 1.0], [-1.0, 0.0], [0.0, -1.0]]).double()
    for off, expected in ((2.0**-47, [0, -1, math.nan, math.nan]), (2.0**-46, [0, -1, 0, 1])):
        classifier = torch.tensor([[1.0, 1.0], [1.0, -1.0], [1.0, off], [1.0, -off]]).double()
        s = statistics_of(means, classifier)
        assert given(nc3.centred_duality_cosines, s).tolist() == pytest.approx(expected, nan_ok=True)


@pytest.mark.parametrize(
    ("classes", "dim", "mean", "least"),
    [
        (4, 3, None, 0.0),  # a simplex
        (3, 2, -0.5, 0.0),
        (6, 3, -1 / 5, math.sqrt(1 / 5 - 1 / 25)),  # three orthogonal lines
        (4, 4, 0.0, 0.0),  # orthogonal
        (5, 9, 1.0, 0.0),  # all of one direction
        (2, 1, 1.0, 0.0),
        (4, 2, 0.0, math.sqrt(1 / 3)),
        (4, 2, 0.5, math.sqrt(1 / 8)),  # eigenvalues of 2.5 and 1.5
        (6, 3, 0.5, 0.25),  # one eigenvalue of 3.5, two of 1.25
        (5, 2, 0.1, math.sqrt(7.5 / 20 - 0.01)),
        (5, 4, 0.1, math.sqrt(0.054)),  # one eigenvalue of 1.4, three of 1.2
        (5, 9, 0.1, 0.0),
        (3, 1, 1 + 1e-15, 0.0),  # a mean cosine of 1, rounded
        (3, 1, -1 / 3, math.sqrt(8) / 3),  # two of one direction, one of the other
    ],
)
def test_the_least_std_of_cosines_where_it_is_known(classes, dim, mean, least):
    measured = {} if mean is None else {"nc2.interference": mean}
    assert nc2.least_interference_std(classes, dim, measured) == pytest.approx(least, abs=1e-7)


@pytest.mark.parametrize("dim", [4, 5, 6])
def test_the_distance_to_an_etf_keeps_its_digits_where_it_is_small(dim):
    etf = torch.eye(5).double() - 1 / 5
    vertices = torch.linalg.svd(etf).U * torch.tensor([1.0, 1.0, 1.0, 1.0, 0.0]).double()
    means = torch.cat([vertices, torch.zeros(5, 1).double()], dim=1)[:, :dim]
    assert nc2.etf_distance(means, means) == pytest.approx(0, abs=1e-14)
    means[0] *= 1 + 1e-9
    gram = means @ means.T
    expected = float((gram / gram.norm() - etf / 2).norm())
    assert 1e-10 < expected < 1e-9
    assert nc2.etf_distance(means, means) == pytest.approx(expected, rel=1e-5)


def test_rows_of_orthogonal_spaces_have_no_distance_to_an_etf():
    draw = torch.Generator().manual_seed(0)
    a = torch.randn(9, 1, generator=draw).double() * torch.tensor([1.0, 1.0, 0.0]).double()
    b = torch.randn(9, 1, generator=draw).double() * torch.tensor([1.0, -1.0, 0.0]).double()
    for _ in range(20):  # the products cancel to a little more or less than 0
        turn = torch.linalg.qr(torch.randn(3, 3, generator=draw).double()).Q
        assert math.isnan(nc2.etf_distance(a @ turn, b @ turn))
    assert nc2.etf_distance(a, 1e-6 * (b + 1e-5 * a)) == pytest.approx(nc2.etf_distance(a, a), rel=1e-4)


@pytest.mark.parametrize("classes", [3, 6])  # at most d + 1, and more
def test_the_distances_of_equal_means_to_an_etf_are_null(classes):
    s = statistics_of(torch.ones(classes, 3).double(), torch.eye(classes, 3))
    row = collapse.measure(s, metrics=["nc2.etf_error", "nc3.duality_error", "nc3.duality_error_centred"])
    assert set(row.measurements.values()) == {None}
    assert {note.measurement for note in row.notes} >= {*row.measurements}
