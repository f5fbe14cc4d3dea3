"""The nearest class centre compared with exact rational arithmetic, where float32 and float64 are both inaccurate."""

from dataclasses import replace
from fractions import Fraction

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from collapse.numerics.decisions import Decider
from collapse.testing import statistics_of

EPS = torch.finfo(torch.float64).eps


def decider(means: torch.Tensor, classes: torch.Tensor | None = None) -> Decider:
    s = statistics_of(means)
    s = s if classes is None else replace(s, classes=classes)
    return Decider(s, torch.zeros(int(s.classes.max()) + 1, s.dim, dtype=torch.float64), None)


def exact(values: torch.Tensor) -> list[int]:
    """Float64 numbers as integers, in units of the smallest one."""
    ratios = [each.as_integer_ratio() for each in values.tolist()]
    return [above * ((1 << 1074) // below) for above, below in ratios]


def assert_exact(means: torch.Tensor, h: torch.Tensor) -> None:
    """Check that the decision is exact; only means at distances that are equal up to rounding may tie."""
    means, h = means.double(), h.double()
    decided = decider(means).nearest(h).tolist()
    centres, rounding = [exact(mean) for mean in means], Fraction(2 * (means.shape[1] + 8) * EPS)
    for sample, got in zip(map(exact, h), decided, strict=True):
        distances = [sum((a - b) ** 2 for a, b in zip(sample, mean, strict=True)) for mean in centres]
        least = min(distances)
        assert distances[got] <= least * (1 + rounding)
        assert got <= distances.index(least)


@settings(deadline=None, max_examples=100)
@given(
    seed=st.integers(0, 10**6),
    classes=st.integers(2, 12),
    dim=st.integers(1, 6),
    gap=st.integers(2, 60),
    offset=st.sampled_from([0.0, 1.0, 1e6, 1e12]),
    scale=st.sampled_from([0, -60, -200, 100, 400]),
)
def test_near_ties_are_decided_as_in_exact_arithmetic(seed, classes, dim, gap, offset, scale):
    draw = torch.Generator().manual_seed(seed)

    def normal(*shape: int) -> torch.Tensor:
        return torch.randn(*shape, generator=draw, dtype=torch.float64)

    # clusters of means 2^-gap apart, and samples around them and around the midpoints of two
    centres = normal(1 + classes // 3, dim)
    means = centres[torch.randint(len(centres), (classes,), generator=draw)] + normal(classes, dim) * 2.0**-gap
    pairs = torch.randint(classes, (2, 20), generator=draw)
    middle = (means[pairs[0]] + means[pairs[1]]) / 2 + normal(20, dim) * 2.0 ** -(gap + 5)
    h = torch.cat([middle, means + normal(classes, dim) * 2.0 ** -(gap + 1), normal(5, dim)])
    assert_exact((means + offset) * 2.0**scale, (h + offset) * 2.0**scale)


@pytest.mark.parametrize("separation", [1e-5, 3e-7, 1e-9, 1e-12])
def test_means_that_nearly_coincide_far_from_the_others(separation):
    draw = torch.Generator().manual_seed(1)
    d = 300
    first = torch.randn(d, generator=draw, dtype=torch.float64)
    second = first + separation * torch.randn(d, generator=draw, dtype=torch.float64)
    others = torch.randn(4, d, generator=draw, dtype=torch.float64) * 3
    nearest = decider(torch.cat([first[None], second[None], others])).nearest
    noise = torch.randn(50, d, generator=draw, dtype=torch.float64) * separation / 50
    assert nearest(first + noise).tolist() == [0] * 50
    assert nearest(second + noise).tolist() == [1] * 50


def nearly_tied(dim: int, draw: torch.Generator) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Four means, two of them of equal norms; the middle of these two, and the direction between them."""
    mean = torch.rand(dim, generator=draw, dtype=torch.float64) + 1
    across = torch.randn(dim, generator=draw, dtype=torch.float64)
    across -= mean * (across @ mean) / (mean @ mean)
    means = torch.stack([mean + across, mean - across, -2 * mean, 0 * mean])  # their mean is 0
    return means, mean, across


@pytest.mark.parametrize("dim", [2, 3, 8])
@pytest.mark.parametrize("far", [0.0, 1.0, 300.0])
def test_float32_is_not_believed_beyond_its_error(dim, far):
    # Margins of 2^-k of the scores, k = 18…30: from safely within float32 to far below it; samples near 0 and far off.
    draw = torch.Generator().manual_seed(dim)
    for k in range(18, 31):
        means, mean, across = nearly_tied(dim, draw)
        along = torch.randn(40, 1, generator=draw, dtype=torch.float64) * far
        h = along * mean + torch.randn(40, 1, generator=draw, dtype=torch.float64) * 2.0**-k * across
        assert_exact(means, h)


@pytest.mark.parametrize("k", range(16, 30, 2))
def test_the_bound_holds_where_every_rounding_goes_the_same_way(k):
    # entries just below the middle of two float32 numbers are all rounded down: the error of a score is the largest
    dim, low = 32, 1 + 2.0**-24 * (1 - 2.0**-10)
    mean = torch.full((dim,), low, dtype=torch.float64)
    other = torch.full((dim,), 1 + 2.0**-23, dtype=torch.float64)  # a float32 number: not rounded
    other[0] += 2.0**-k
    for means in ([mean, other, -mean], [other, mean, -other]):
        stacked = torch.stack(means)
        middle = (stacked[0] + stacked[1]) / 2
        shifts = torch.linspace(-1, 1, 21, dtype=torch.float64).unsqueeze(1)
        assert_exact(stacked, middle + shifts * (stacked[1] - stacked[0]))
        assert_exact(stacked * 3, (shifts * 2.0**-20).expand(-1, dim))


@pytest.mark.parametrize("entry", [0.1, 0.3, 0.7, 1.1])
def test_the_bound_grows_with_the_dimension(entry):
    # the running sum of equal entries drifts in float32, that of their neighbour drifts otherwise
    dim, draw = 2048, torch.Generator().manual_seed(8)
    even = torch.full((dim,), entry, dtype=torch.float64)
    for size in (1e-2, 3e-3, 1e-3, 3e-4):
        uneven = even + size * torch.randn(dim, generator=draw, dtype=torch.float64)
        means = torch.stack([even, uneven, -even, -uneven])
        samples = torch.linspace(0.9, 1.1, 5, dtype=torch.float64).unsqueeze(1) * (even + uneven) / 2
        assert_exact(means, samples)


def test_a_partial_sum_beyond_float32_decides_nothing():
    means = torch.tensor([[1.0, 1, 1, 1], [-1, 1, 0.5, -0.45], [-1, -1, -1, -1], [1, -1, -0.5, 0.45]])
    assert_exact(means, torch.tensor([[-1.0, -1, 1, 1.05], [-1, -1, -1, 3.2], [1, 1, 1, -3.2]]).double() * 3e38)


@pytest.mark.parametrize("k", [1, 10, 20, 24, 28])
@pytest.mark.parametrize("far", [1e9, 1e12, 1e20])
def test_samples_far_beyond_all_means_go_to_the_nearest_one(far, k):
    # their distances to two means are equal to rounding, their scores are not
    means, mean, across = nearly_tied(6, torch.Generator().manual_seed(9))
    signs = torch.tensor([1.0, -1.0] * 10, dtype=torch.float64).unsqueeze(1)
    h = far * (torch.linspace(0.6, 1.4, 20, dtype=torch.float64).unsqueeze(1) * mean + signs * 2.0**-k * across)
    assert decider(means).nearest(h).tolist() == [0, 1] * 10


@pytest.mark.parametrize("exponent", [-600, -130, -73, 73, 130, 480])
def test_the_scale_of_the_embeddings_does_not_matter(exponent):
    draw = torch.Generator().manual_seed(5)
    means, h = (torch.randn(n, 12, generator=draw, dtype=torch.float64) for n in (30, 400))
    factor = 2.0**exponent
    assert torch.equal(decider(means * factor).nearest(h * factor), decider(means).nearest(h))


@pytest.mark.parametrize("small", [1e-50, 1e-40, 1e-38, 1e-25, 1e-10])
def test_a_sample_far_off_does_not_spoil_those_of_its_batch(small):
    draw = torch.Generator().manual_seed(6)
    means, h = (torch.randn(n, 5, generator=draw, dtype=torch.float64) * small for n in (10, 30))
    assert_exact(means, torch.cat([h, torch.full((1, 5), 1e3, dtype=torch.float64)]))


def test_equal_means_and_mirrored_ones_go_to_the_lowest_id():
    means = torch.tensor([[3.0, 0.1], [0.1, 0.2], [0.1, 0.2], [-3.0, 0.1]], dtype=torch.float64)
    classes = torch.tensor([2, 5, 7, 11])
    h = torch.tensor([[0.1, 0.2], [0.0, 90.0], [0.15, 0.15]], dtype=torch.float64)
    assert decider(means, classes).nearest(h).tolist() == [5, 5, 5]
    draw = torch.Generator().manual_seed(7)
    vector = torch.randn(200, generator=draw, dtype=torch.float64)
    mirrored = torch.stack([vector[torch.randperm(200, generator=draw)] for _ in range(6)])  # equally far from h = 0
    assert decider(mirrored, torch.arange(3, 9)).nearest(torch.zeros(2, 200).double()).tolist() == [3, 3]
    equal = torch.full((4, 3), 0.7, dtype=torch.float64)
    assert decider(equal).nearest(torch.randn(9, 3, generator=draw).double()).tolist() == [0] * 9


@pytest.mark.parametrize(("share", "decided"), [(0.8, 0), (1.2, 1)])
@pytest.mark.parametrize("samples", [1, 500])
def test_distances_equal_to_the_rounding_of_so_many_dimensions_go_to_the_lowest_id(share, decided, samples):
    far = torch.ones(200, dtype=torch.float64)
    near = far.clone()
    near[7] -= share * 208 * EPS * 200 / 2
    means = torch.stack([far, near, -far, -near])
    assert decider(means).nearest(torch.zeros(samples, 200).double()).tolist() == [decided] * samples
