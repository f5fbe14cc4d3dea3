"""Class moments: any split, merged in any order, equals the single pass, and is accurate."""

from itertools import pairwise

import numpy as np
import pytest
import reference
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from collapse.numerics.class_moments import ClassMoments
from collapse.numerics.finite import NotFinite
from collapse.plugin.plugin_statistics import PluginStatistics
from collapse_metrics.covariance import WithinClassCovariance


def accumulated(h: torch.Tensor, y: torch.Tensor, batches: list[slice]) -> ClassMoments:
    moments = ClassMoments(h.shape[1], plugin_statistics=PluginStatistics([WithinClassCovariance]))
    for batch in batches:
        moments.add(h[batch], y[batch])
    return moments


def agree(a: ClassMoments, b: ClassMoments, tolerance: float) -> None:
    mine, theirs = a.state(), b.state()
    assert mine.keys() == theirs.keys()
    for name in mine:
        scale = float(mine[name].abs().max()) or 1.0
        assert torch.allclose(mine[name].double(), theirs[name].double(), rtol=0, atol=tolerance * scale), name


def assert_direct(s, h, y) -> None:
    expected = reference.class_statistics(h.numpy(), y.numpy())
    for name in ("classes", "counts", "means", "variances"):
        np.testing.assert_allclose(getattr(s, name).numpy(), expected[name], rtol=1e-12, atol=1e-13)
    pooled = s.extra["covariance"]
    within = (pooled["scatter"] / pooled["samples"]).numpy()
    np.testing.assert_allclose(within, expected["within"], rtol=1e-11, atol=1e-13)


@settings(deadline=None, max_examples=60)
@given(
    seed=st.integers(0, 10_000),
    samples=st.integers(1, 300),
    classes=st.integers(1, 40),
    offset=st.sampled_from([0.0, 30.0, 1e4]),
    data=st.data(),
)
def test_any_split_in_any_order_equals_the_single_pass(seed, samples, classes, offset, data):
    draw = torch.Generator().manual_seed(seed)
    h = torch.randn(samples, 5, generator=draw, dtype=torch.float64) + offset
    y = torch.randint(classes, (samples,), generator=draw) * 7
    whole = accumulated(h, y, [slice(0, samples)])
    cuts = sorted({0, samples, *data.draw(st.lists(st.integers(0, samples), max_size=6))})
    runs = [slice(a, b) for a, b in pairwise(cuts)]
    parts = [accumulated(h, y, [run]) for run in data.draw(st.permutations(runs))]
    while len(parts) > 1:
        taken = parts.pop(data.draw(st.integers(0, len(parts) - 1)))
        parts[data.draw(st.integers(0, len(parts) - 1))].merge(taken)
    agree(whole, parts[0], 1e-12 + 1e-15 * offset)  # a mean's own rounding, relative to the spread, which is 1


def test_equals_a_direct_computation():
    draw = torch.Generator().manual_seed(3)
    h, y = torch.randn(2000, 16, generator=draw), torch.randint(60, (2000,), generator=draw)
    moments = accumulated(h, y, [slice(i, i + 129) for i in range(0, 2000, 129)])
    assert_direct(moments.statistics_so_far(), h, y)


def test_keeps_its_digits_where_the_variance_is_a_ten_billionth_of_the_squared_mean():
    draw = torch.Generator().manual_seed(1)
    noise = torch.randn(4000, 8, generator=draw, dtype=torch.float64)
    y = torch.zeros(4000, dtype=torch.int64)
    near = accumulated(noise, y, [slice(i, i + 100) for i in range(0, 4000, 100)])
    far = accumulated(noise * 1e-5 + 1.0, y, [slice(i, i + 100) for i in range(0, 4000, 100)])
    assert float(far.statistics_so_far().variances[0]) == pytest.approx(
        float(near.statistics_so_far().variances[0]) * 1e-10, rel=1e-9
    )


def test_state_goes_on_to_the_same_bits():
    draw = torch.Generator().manual_seed(2)
    h, y = torch.randn(600, 7, generator=draw), torch.randint(300, (600,), generator=draw)
    runs = [slice(i, i + 50) for i in range(0, 600, 50)]
    whole = accumulated(h, y, runs)
    first = accumulated(h, y, runs[:5])
    resumed = ClassMoments.from_state(first.state(), "cpu", [WithinClassCovariance])
    for run in runs[5:]:
        resumed.add(h[run], y[run])
    mine, theirs = whole.state(), resumed.state()
    assert all(torch.equal(mine[name], theirs[name]) for name in mine)


def test_thousands_of_classes_in_any_order():
    draw = torch.Generator().manual_seed(6)
    ids = torch.randperm(100_000, generator=draw)[:2500]
    y = ids[torch.randint(2500, (6000,), generator=draw)]
    h = torch.randn(6000, 3, generator=draw, dtype=torch.float64)
    cuts = [0, 1, 900, 950, 4000, 6000]
    moments = accumulated(h, y, [slice(a, b) for a, b in pairwise(cuts)])
    assert_direct(moments.statistics_so_far(), h, y)
    assert int(moments.state()["counts"].sum()) == 6000
    nothing = ClassMoments(3)
    assert int(nothing.state()["counts"].sum()) == 0
    nothing.merge(ClassMoments(3))
    nothing.merge(moments)
    assert torch.equal(nothing.state()["means"], moments.state()["means"])


@pytest.mark.parametrize(
    ("spread", "tolerance"), [(0.0, 0.0), (1e-12, 1e-3), (3e-10, 1e-5), (3e-9, 1e-6), (1e-6, 1e-9)]
)
@pytest.mark.parametrize("scale", [1.0, 2.0**60, 2.0**-60])
def test_classes_that_are_all_but_constant_keep_their_means_and_variances(spread, tolerance, scale):
    draw = torch.Generator().manual_seed(4)
    noise = torch.randn(5000, 3, generator=draw, dtype=torch.float64) * spread
    noise -= noise.mean(dim=0)
    value = torch.tensor([0.1, 1 / 3, -7.7], dtype=torch.float64)
    others = torch.randn(800, 3, generator=draw, dtype=torch.float64)
    h = torch.cat([others, value + noise, value.unsqueeze(0)])
    y = torch.cat([torch.zeros(800), torch.ones(5000), torch.tensor([2.0])]).long()
    kept = h[800:5800] - value  # exact: Sterbenz
    offset = kept.mean(dim=0)
    s = accumulated(h * scale, y, [slice(0, len(h))]).statistics_so_far()
    means, variances = s.means / scale, s.variances / scale**2
    exact = 3e-16 if spread < 1e-9 else 1e-14
    assert means[1].tolist() == pytest.approx((value + offset).tolist(), rel=exact, abs=0)
    assert torch.equal(means[2], value)
    assert float(variances[1]) == pytest.approx(
        float((kept - offset).square().sum(dim=1).mean()), rel=tolerance or 1e-12, abs=0
    )
    assert float(variances[2]) == 0
    direct = others - others.mean(dim=0)
    assert float(variances[0]) == pytest.approx(float(direct.square().sum(dim=1).mean()), rel=1e-12)
    np.testing.assert_allclose(
        s.extra["covariance"]["scatter"] / scale**2, direct.T @ direct + (kept - offset).T @ (kept - offset), rtol=1e-9
    )


@pytest.mark.parametrize("size", [9e149, 1e150, 1.1e150, 1e154, 1e300])
def test_embeddings_whose_squares_overflow_are_named(size):
    h = torch.ones(4, 2, dtype=torch.float64)
    h[2, 1], h[3, 1] = size, -size  # their mean is small
    add = ClassMoments(2).add
    if size < 1e150:
        add(h, torch.tensor([0, 1, 2, 3]))
    else:
        for y in ([0, 0, 1, 1], [0, 1, 2, 3]):
            with pytest.raises(NotFinite, match="sample 2 is too large"):
                add(h, torch.tensor(y))


def test_equal_embeddings_whose_squares_vanish_keep_their_mean():
    h = torch.full((5000, 3), 0.1, dtype=torch.float64) * 2.0**-550
    s = accumulated(h, torch.zeros(5000).long(), [slice(0, 5000)]).statistics_so_far()
    assert torch.equal(s.means[0], h[0])


def test_embeddings_of_a_training_step_are_taken_without_their_graph():
    h = torch.randn(6, 4, requires_grad=True)
    y = torch.arange(6) % 2
    agree(accumulated(h, y, [slice(None)]), accumulated(h.detach(), y, [slice(None)]), 0)


def test_a_refused_batch_leaves_nothing():
    moments = ClassMoments(2)
    moments.add(torch.randn(4, 2), torch.tensor([0, 0, 1, 1]))
    before = moments.state()
    with pytest.raises(NotFinite, match="sample 1 is NaN"):
        moments.add(torch.tensor([[1.0, 2.0], [torch.nan, 0.0]]), torch.tensor([5, 0]))
    after = moments.state()
    assert all(torch.equal(before[name], after[name]) for name in before)
