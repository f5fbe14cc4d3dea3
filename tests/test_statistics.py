"""The statistics that metrics read: which classes are kept, what is available, and which classes have a direction."""

import math

import pytest
import torch

from collapse import CollapseError, EmbeddingStatistics
from collapse.numerics.statistics import cov, row_cosine, unit_rows
from collapse.testing import statistics_of, tiny_statistics


def test_classes_are_kept_by_their_count():
    s = tiny_statistics()  # counts 4, 2, 2
    assert s.keep(2).counts.tolist() == [4, 2, 2]
    assert s.keep(1).validation is s.validation
    more = EmbeddingStatistics(
        classes=torch.tensor([2, 5, 9]),
        counts=torch.tensor([4, 1, 3]),
        means=torch.arange(6).view(3, 2).double(),
        variances=torch.arange(3).double(),
        classifier=torch.arange(6, 12).view(3, 2).double(),
        bias=torch.arange(12, 15).double(),
        left_out=3,
    ).keep(2)
    kept = {
        "classes": [2, 9],
        "counts": [4, 3],
        "means": [[0, 1], [4, 5]],
        "variances": [0, 2],
        "classifier": [[6, 7], [10, 11]],
        "bias": [12, 14],
    }
    assert {name: getattr(more, name).tolist() for name in kept} == kept
    assert (more.min_count, more.left_out, more.n_classes, more.dim) == (2, 4, 2, 2)


def test_too_few_classes_are_refused():
    with pytest.raises(CollapseError, match=r"0 of 2 classes kept, .* lower --min-count \(the largest class has 1\)"):
        statistics_of(torch.ones(2, 3)).keep(9)


def test_what_is_there():
    s = tiny_statistics()
    having = ["counts", "means", "variances", "classifier", "validation", "n_params", "covariance"]
    assert all(s.has(need) for need in having)
    bare = statistics_of(torch.eye(3), torch.eye(3))
    assert [need for need in having if bare.has(need)] == ["counts", "means", "variances", "classifier"]
    assert s.statistic("covariance")["samples"].tolist() == [8]
    with pytest.raises(CollapseError, match="this store holds no statistic 'largest': collect the store again"):
        s.statistic("largest")
    moved = s.to("meta")
    for name in ("classes", "counts", "means", "variances", "classifier"):
        assert getattr(moved, name).device.type == "meta"
    assert (moved.bias, moved.validation) == (None, s.validation)


@pytest.mark.parametrize("offset", [1.0, 1000.0])
@pytest.mark.parametrize(("factor", "has"), [(0.9, False), (1.2, True)])
def test_a_direction_is_more_than_the_rounding_of_the_means(offset, factor, has):
    step = factor * 2.0**-48 * 2 * offset
    s = statistics_of(torch.tensor([[offset, 0], [offset, step], [offset, -step]]).double())
    assert (s.norms > 0).tolist() == [False, has, has]


def test_rows_of_zero_have_no_cosine():
    a, b = torch.tensor([[3.0, 4], [0, 0], [1, 0]]), torch.tensor([[-6.0, -8], [1, 0], [0, 2]])
    assert row_cosine(a, b).tolist() == pytest.approx([-1, math.nan, 0], nan_ok=True)
    assert unit_rows(a)[0].tolist() == pytest.approx([0.6, 0.8])
    assert float(cov(torch.tensor([-1.0, -3.0]))) == -0.5
