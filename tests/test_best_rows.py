"""Decisions of the linear classifier compared with float64 where float32 cannot decide; and its loss."""

import math
from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from collapse.numerics import best_rows
from collapse.numerics.decisions import Decider
from collapse.numerics.devices import work_sizes
from collapse.numerics.products import product
from collapse.testing import statistics_of


def decider(weight, classes=None, bias=None, **options) -> Decider:
    classes = torch.arange(len(weight)) if classes is None else classes
    s = replace(statistics_of(torch.eye(len(classes), weight.shape[1])), classes=classes)
    return Decider(s, weight, bias, **options)


def direct(weight, h, bias=None):
    """Logits in float64, a row at a time, so that equal rows have equal logits."""
    logits = torch.stack([(weight.double() * each.double()).sum(dim=1) for each in h])
    return logits if bias is None else logits + bias.double()


def losses(logits, y):
    return logits.logsumexp(dim=1) - logits.gather(1, y.unsqueeze(1)).squeeze(1)


def assert_decided(weight, h, classes, bias=None, **options):
    """Decisions over some classes and over all rows are those of float64, the first of equal scores."""
    found = decider(weight, classes, bias, **options).linear(h, torch.zeros(len(h)).long())
    logits = direct(weight, h, bias)
    assert torch.equal(found.vocabulary, logits.argmax(dim=1))
    assert torch.equal(found.with_mean, classes[logits[:, classes].argmax(dim=1)])


@settings(deadline=None, max_examples=60)
@given(
    seed=st.integers(0, 10**6),
    rows=st.integers(1, 90),
    dim=st.integers(1, 40),
    gap=st.integers(10, 40),
    kind=st.sampled_from([torch.float64, torch.float32, torch.bfloat16]),
    with_bias=st.booleans(),
    scale=st.sampled_from([0, 40, -40, 110]),
)
def test_near_ties_are_decided_as_in_float64(seed, rows, dim, gap, kind, with_bias, scale):
    draw = torch.Generator().manual_seed(seed)
    few = torch.randn(1 + rows // 8, dim, generator=draw, dtype=torch.float64)
    near = few[torch.randint(len(few), (rows,), generator=draw)]  # clusters of rows 2^-gap apart, and equal ones
    far = torch.randint(2, (rows, 1), generator=draw)
    weight = ((near + far * torch.randn(rows, dim, generator=draw) * 2.0**-gap) * 2.0 ** (scale / 2)).to(kind)
    bias = torch.randn(rows, generator=draw) if with_bias else None
    h = torch.cat([few, torch.randn(20, dim, generator=draw, dtype=torch.float64) * 3]) * 2.0 ** (scale / 2)
    classes = torch.randperm(rows, generator=draw)[: 1 + rows // 2].sort().values
    decided, everywhere, confidence, loss = decider(weight, classes, bias).linear(h, torch.arange(len(h)) % rows)
    logits = direct(weight, h, bias)
    rounding = 4 * (dim + 8) * torch.finfo(torch.float64).eps
    size = logits.abs().amax(dim=1) + h.norm(dim=1) * weight.double().norm(dim=1).max()
    for found, among in ((decided, classes), (everywhere, torch.arange(rows))):
        best = logits[:, among].amax(dim=1)
        got = logits.gather(1, found.unsqueeze(1)).squeeze(1)
        assert bool((got >= best - rounding * size).all())
    assert bool((confidence <= 1).all())
    assert bool((loss >= 0).all())


@pytest.mark.parametrize("kind", [torch.float64, torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("size", [1e-3, 1.0, 30.0])
def test_the_loss_is_that_of_float64_to_a_millionth(kind, size):
    draw = torch.Generator().manual_seed(3)
    weight = torch.randn(3000, 96, generator=draw).to(kind)
    h = torch.randn(300, 96, generator=draw).double() * size / 10
    y = torch.randint(3000, (300,), generator=draw)
    expected = losses(direct(weight, h), y)
    loss = decider(weight).linear(h, y)[3]
    assert float((loss.mean() / expected.mean() - 1).abs()) < 1e-6
    torch.testing.assert_close(loss, expected, rtol=2e-5, atol=2e-5)
    exact = decider(weight, exact_loss=True).linear(h, y)[3]
    torch.testing.assert_close(exact, expected, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("sure", [10, 16, 20, 24, 30])
@pytest.mark.parametrize("exact", [True, False])
def test_the_loss_of_a_sure_model_keeps_its_digits(sure, exact):
    """The highest logit is the label's, and all others together are small beside it."""
    draw = torch.Generator().manual_seed(1)
    weight = torch.nn.functional.normalize(torch.randn(2500, 64, generator=draw), dim=1)
    y = torch.randint(2500, (400,), generator=draw)
    h = sure * weight[y].double() + 0.01 * torch.randn(400, 64, generator=draw).double()
    logits = direct(weight, h)
    own = logits.gather(1, y.unsqueeze(1))
    expected = (logits - own).exp().scatter(1, y.unsqueeze(1), 0).sum(dim=1).log1p()
    classes = torch.arange(0, 2500, 2)
    _, _, confidence, loss = decider(weight, classes, exact_loss=exact).linear(h, y)
    assert float(expected.max()) < 1.5
    assert float((loss.mean() / expected.mean() - 1).abs()) < (1e-9 if exact else 1e-6)
    torch.testing.assert_close(loss, expected, rtol=1e-7 if exact else 2e-5, atol=0)
    torch.testing.assert_close(confidence, (-expected).exp(), rtol=1e-5, atol=0)


def test_the_loss_of_logits_too_large_for_float32_is_summed_in_float64():
    draw = torch.Generator().manual_seed(2)
    weight = torch.randn(700, 20, generator=draw) * 3e3
    h = torch.randn(60, 20, generator=draw).double() * 3e3
    weight[1::2] = weight[::2] + torch.randn(350, 20, generator=draw) * 1e-4
    y = torch.randint(700, (60,), generator=draw)
    expected = losses(direct(weight, h), y)
    loss = decider(weight).linear(h, y)[3]
    torch.testing.assert_close(loss, expected, rtol=1e-7, atol=1e-7)


@pytest.mark.parametrize("kinds", [1, 3])
@pytest.mark.parametrize("exact", [True, False])
def test_of_very_many_equal_rows_the_first_is_decided(kinds, exact):
    """More groups than are looked at one by one; a matrix product gives equal rows unequal scores at its edges."""
    draw = torch.Generator().manual_seed(4)
    some = torch.randn(kinds, 768, generator=draw)
    weight = some[torch.randint(kinds, (2049,), generator=draw)]
    bias = torch.zeros(2049)
    bias[5] = 1e-9
    h = torch.randn(64, 768, generator=draw).double()
    classes = torch.arange(1, 2049, 2)
    for of_rows in (None, bias):
        assert_decided(weight, h, classes, of_rows, exact_loss=exact)


@pytest.mark.parametrize("apart", [1e-8, 1e-10, 1e-12])
@pytest.mark.parametrize("with_bias", [True, False])
def test_many_rows_that_differ_by_less_than_float32_are_told_apart(apart, with_bias):
    """Rows in two clusters, so that the mean row is far from both; float32 leaves all rows of one as candidates."""
    draw = torch.Generator().manual_seed(11)
    two = torch.randn(2, 32, generator=draw, dtype=torch.float64)
    noise = torch.randn(3000, 32, generator=draw, dtype=torch.float64)
    weight = two[torch.randint(2, (3000,), generator=draw)] + apart * noise
    bias = apart * torch.randn(3000, generator=draw, dtype=torch.float64) if with_bias else None
    h = torch.randn(40, 32, generator=draw, dtype=torch.float64)
    assert_decided(weight, h, torch.arange(0, 3000, 2), bias)


@pytest.mark.parametrize("kind", [torch.float64, torch.float32, torch.bfloat16])
@pytest.mark.parametrize("offset", [50, 500, 5000, -5000])
@pytest.mark.parametrize("sure", [10, 20])
def test_an_offset_of_all_logits_costs_the_loss_no_digits(kind, offset, sure):
    """A row that is added to all rows, and a number added to all biases, change neither decisions nor the loss."""
    draw = torch.Generator().manual_seed(6)
    weight = torch.nn.functional.normalize(torch.randn(2500, 64, generator=draw), dim=1)
    common = torch.nn.functional.normalize(torch.randn(64, generator=draw), dim=0)
    y = torch.randint(2500, (400,), generator=draw)
    h = sure * weight[y].double() + 0.01 * torch.randn(400, 64, generator=draw).double() + 9 * common
    weight = (weight + common * offset / 18).to(kind)
    bias = torch.randn(2500, generator=draw) + offset / 2
    for of_rows in (None, bias):
        logits = direct(weight, h, of_rows)
        own = logits.gather(1, y.unsqueeze(1))
        others = logits.scatter(1, y.unsqueeze(1), -torch.inf).logsumexp(dim=1, keepdim=True)
        expected = torch.nn.functional.softplus(others - own).squeeze(1)
        decided, everywhere, _, loss = decider(weight, torch.arange(0, 2500, 2), of_rows).linear(h, y)
        assert torch.equal(everywhere, logits.argmax(dim=1))
        assert torch.equal(decided, 2 * logits[:, ::2].argmax(dim=1))
        assert float((loss.mean() / expected.mean() - 1).abs()) < 1e-6


@pytest.mark.parametrize("below", [10.0, 24.0, 40.0, 60.0])
@pytest.mark.parametrize("exact", [True, False])
def test_the_loss_of_a_sure_model_keeps_its_digits_beside_many_equal_rows(below, exact):
    """Rows of tokens that are never trained are alike: rounding beside a 1 would go the same way for all of them."""
    weight = torch.zeros(50_257, 1)
    weight[7] = below
    loss = decider(weight, torch.arange(20), exact_loss=exact).linear(torch.ones(3, 1).double(), torch.full((3,), 7))[3]
    expected = math.log1p(50_256 * math.exp(-below))
    assert loss.tolist() == pytest.approx([expected] * 3, rel=1e-12 if exact else 5e-6)


@pytest.mark.parametrize("rows", [4, 64, 1000])
@pytest.mark.parametrize("masked", [-1000.0, -15_000.0, -1e9])
def test_a_mask_of_very_negative_biases_costs_the_loss_no_digits(rows, masked):
    draw = torch.Generator().manual_seed(9)
    weight, bias = torch.randn(rows, 16, generator=draw), torch.randn(rows, generator=draw)
    bias[::2] = masked
    h = torch.randn(200, 16, generator=draw).double()
    y = 1 + 2 * torch.randint(rows // 2, (200,), generator=draw)
    logits = direct(weight, h, bias)
    expected = losses(logits, y)
    _, everywhere, _, loss = decider(weight, None, bias).linear(h, y)
    assert torch.equal(everywhere, logits.argmax(dim=1))
    assert float((loss.mean() / expected.mean() - 1).abs()) < 5e-7
    torch.testing.assert_close(loss, expected, rtol=2e-6, atol=2e-6)


def test_numbers_beyond_float32_are_multiplied_in_float64():
    weight = torch.tensor([[1e25, 1.0], [1e25, 2.0], [-1e25, 3.0]], dtype=torch.float64)
    h = torch.tensor([[1e20, 1e30], [1e20, -1e30], [-1e20, 0.0]], dtype=torch.float64)
    assert_decided(weight, h, torch.arange(3))


@pytest.mark.parametrize(("of_h", "of_w"), [(-149, 95), (60, -140), (95, -149), (-140, 60)])
def test_numbers_too_small_for_float32_are_decided_in_float64(of_h, of_w):
    draw = torch.Generator().manual_seed(5)
    weight = torch.randn(500, 64, generator=draw, dtype=torch.float64) * 2.0**of_w
    h = torch.randn(50, 64, generator=draw, dtype=torch.float64) * 2.0**of_h
    assert_decided(weight, h, torch.arange(0, 500, 2))


def test_memory_does_not_grow_with_samples_times_vocabulary(monkeypatch):
    largest = 0

    def seen(*given):
        nonlocal largest
        made = product(*given)
        largest = max(largest, made.numel())
        return made

    monkeypatch.setattr(best_rows, "product", seen)
    draw = torch.Generator().manual_seed(0)
    made = decider(torch.randn(5000, 8, generator=draw))
    made.linear(torch.randn(3000, 8, generator=draw).double(), torch.zeros(3000).long())
    sizes = work_sizes(torch.device("cpu"))
    assert 0 < largest <= sizes.batch * sizes.rows


@pytest.mark.parametrize("classes", [40, 600])
def test_means_that_are_equal_only_after_the_global_mean_is_subtracted_are_told_apart(classes):
    """One mean is so far away that the others round to few values beside it."""
    means = torch.arange(classes).double().unsqueeze(1) / classes
    means[-1] = 1e16
    nearest = Decider(statistics_of(means), torch.ones(classes, 1), None).nearest(means.clone())
    assert torch.equal(nearest, torch.arange(classes))
