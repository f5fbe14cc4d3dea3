"""What metrics are given of a store: which classes are kept, what is there, and which sizes can be computed with."""

import math
from dataclasses import replace

import pytest
import torch

from collapse import CollapseError, EmbeddingStatistics
from collapse.numerics.statistics import cov, row_cosine, unit_rows
from collapse.testing import statistics_of, tiny_statistics


def of_size(means=1.0, apart=1.0, variances=1.0, classifier=1.0):
    directions = torch.tensor([[1.0, 0], [0, 1], [-1, -1]], dtype=torch.float64)
    directions /= directions.norm(dim=1).max()
    return EmbeddingStatistics(
        classes=torch.arange(3),
        counts=torch.ones(3).long(),
        means=torch.tensor([means, 0.0], dtype=torch.float64) + directions * apart,
        variances=torch.full((3,), variances, dtype=torch.float64),
        classifier=torch.full((3, 2), -classifier, dtype=torch.float64),
    )


@pytest.mark.parametrize(
    ("sizes", "need", "fits"),
    [
        ({}, "means", True),
        ({"means": 0.9e60}, "means", True),
        ({"means": 1.1e60}, "means", False),
        ({"means": -1.1e60}, "means", False),
        ({"means": 0.0, "apart": 1.5e-60}, "means", True),
        ({"means": 0.0, "apart": 0.9e-60}, "means", False),
        ({"means": 0.0, "apart": 0.0}, "means", True),
        ({"means": 0.9e-60, "apart": 0.0}, "means", False),
        ({"means": 1.1e60}, "classifier", True),
        ({"classifier": 1e60}, "classifier", True),
        ({"classifier": 1.1e60}, "classifier", False),
        ({"classifier": 1e-60}, "classifier", True),
        ({"classifier": 0.9e-60}, "classifier", False),
        ({"classifier": 0.0}, "classifier", True),
        ({"variances": 0.9e120}, "variances", True),
        ({"variances": 1.1e120}, "variances", False),
        ({"variances": 1.1e-120}, "variances", True),
        ({"variances": 0.9e-120}, "variances", False),
        ({"variances": 0.0}, "variances", True),
    ],
)
def test_sizes_whose_fourth_powers_lose_digits_are_out_of_scale(sizes, need, fits):
    said = of_size(**sizes).out_of_scale(["counts", need])
    assert (said is None) == fits
    if said:
        assert said.startswith(f"sizes of the {need} reach ")


def test_what_is_not_there_has_no_scale():
    assert replace(of_size(), classifier=None).out_of_scale(["classifier"]) is None


def test_equal_means_of_the_least_size_are_in_scale():
    means = torch.tensor([[1e-60, 0.0], [1e-60, 0.0]], dtype=torch.float64)
    s = statistics_of(means)
    assert s.out_of_scale(["means"]) is None


def test_classes_are_kept_by_their_count():
    s = tiny_statistics()  # counts 4, 2, 2
    assert s.keep(2).counts.tolist() == [4, 2, 2]
    assert s.keep(2).min_count == 2
    with pytest.raises(CollapseError, match=r"classes with 3 samples or more: 1 of 3.*largest class has 4"):
        s.keep(3)
    more = EmbeddingStatistics(
        classes=torch.tensor([2, 5, 9]),
        counts=torch.tensor([4, 1, 3]),
        means=torch.arange(6).view(3, 2).double(),
        variances=torch.arange(3).double(),
        classifier=torch.arange(6, 12).view(3, 2).double(),
        bias=torch.arange(12, 15).double(),
        left_out=3,
    ).keep(2)
    assert more.classes.tolist() == [2, 9]
    assert more.counts.tolist() == [4, 3]
    assert more.means.tolist() == [[0, 1], [4, 5]]
    assert more.variances.tolist() == [0, 2]
    assert more.classifier.tolist() == [[6, 7], [10, 11]]
    assert more.bias.tolist() == [12, 14]
    assert (more.min_count, more.left_out) == (2, 4)
    assert (more.n_classes, more.dim) == (2, 2)
    assert s.keep(1).validation is s.validation


@pytest.mark.parametrize(
    ("n", "said"), [(2, r"needs two: lower --min-count \(the largest class has 4\)"), (1, "needs two$")]
)
def test_too_few_classes_of_one_class_have_no_remedy(n, said):
    counts, of_classes = torch.full((n,), 4), torch.ones(n).double()
    with pytest.raises(CollapseError, match=rf"classes with 9 samples or more: 0 of {n}, .* {said}"):
        EmbeddingStatistics(
            classes=torch.arange(n), counts=counts, means=torch.ones(n, 3).double(), variances=of_classes
        ).keep(9)


def test_what_is_there():
    s = tiny_statistics()
    having = ["counts", "means", "variances", "classifier", "validation", "n_params", "covariance"]
    assert all(s.has(need) for need in having)
    bare = of_size()
    assert [need for need in having if bare.has(need)] == ["counts", "means", "variances", "classifier"]
    assert s.statistic("covariance")["samples"].tolist() == [8]
    with pytest.raises(CollapseError, match="this store holds no statistic 'largest': collect again"):
        s.statistic("largest")
    assert s.validation.samples == 4
    moved = s.to("meta")
    for name in ("classes", "counts", "means", "variances", "classifier"):
        assert getattr(moved, name).device.type == "meta"
    assert moved.bias is None
    assert moved.validation is s.validation


def test_a_direction_is_more_than_the_rounding_of_the_means():
    for offset in (1.0, 1000.0):
        rounding = 2.0**-48 * 2 * offset
        for factor, has in ((0.9, False), (1.2, True)):
            means = torch.tensor([[offset, 0], [offset, factor * rounding], [offset, -factor * rounding]]).double()
            s = statistics_of(means)
            assert (s.norms > 0).tolist() == [False, has, has]


def test_rows_of_zero_have_no_cosine():
    a, b = torch.tensor([[3.0, 4], [0, 0], [1, 0]]), torch.tensor([[-6.0, -8], [1, 0], [0, 2]])
    assert row_cosine(a, b).tolist() == pytest.approx([-1, math.nan, 0], nan_ok=True)
    assert unit_rows(a)[0].tolist() == pytest.approx([0.6, 0.8])
    assert float(cov(torch.tensor([-1.0, -3.0]))) == -0.5
