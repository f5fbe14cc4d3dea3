"""The pair sweep compared with all pairs at once, for any tile size: numbers, exclusions, counts, near pairs."""

import math
from dataclasses import replace
from itertools import combinations

import numpy as np
import pytest
import reference
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import collapse
from collapse import CoV, LogMeanExp, Mean, MeanLog, Std, pair_metric
from collapse.measurement.measuring import vectors
from collapse.numerics.evaluating_metrics import evaluate
from collapse.numerics.pair_fields import ClassGeometry, Tile
from collapse.numerics.values import values_of
from collapse.plugin.metrics import declaration
from collapse.plugin.parameter_names import OF_PAIRS
from collapse.plugin.plugin_manager import plugins
from collapse.testing import statistics_of
from collapse_metrics import gnc2

TINY, GAP = 2.0**-50, 2.0**-30
# Their mean is exactly 0. Classes 0 and 1 are equal, 5, 6 and 7 nearly, 2 and 3 have one direction, 4 has none.
MEANS = torch.tensor(
    [*[[1, 0, 0]] * 2, [-1, 0, 0], [-2, 0, 0], [0, 0, 0], [0, 1, 0], [0, 1, TINY], [0, 1, GAP], [1, -3, -TINY - GAP]],
    dtype=torch.float64,
)
EQUAL = {(0, 1), (5, 6)}
DIRECTIONLESS = {pair for pair in combinations(range(9), 2) if 4 in pair}
ALIKE = {(0, 1), (2, 3), (5, 6)}
PAIRWISE = [name for name, (metric, _) in plugins().chosen(None).items() if metric.kind == "pair"]


def statistics(means=MEANS, variances=None):
    s = statistics_of(means, means)
    variances = s.classes // 2 if variances is None else variances
    return replace(s, counts=s.counts + 2, variances=variances.double())


def double(*rows):
    return torch.tensor(rows, dtype=torch.float64)


def random_statistics(classes, dim, seed=0, offset=0.0):
    draw = torch.Generator().manual_seed(seed)
    means = torch.randn(classes, dim, generator=draw, dtype=torch.float64) + offset
    return statistics(means, torch.rand(classes, generator=draw) + 0.1)


def everywhere(variance_sum):
    return variance_sum


def distinct(variance_sum, sqdist):
    return variance_sum + 0 * sqdist.log()  # NaN for equal means


def directed(variance_sum, cosine):
    return variance_sum + 0 * cosine


def distinct_directions(variance_sum, unit_sqdist):
    return variance_sum + 0 * unit_sqdist.log()


def distinct_uncentred(variance_sum, uncentred_unit_sqdist):
    return variance_sum + 0 * uncentred_unit_sqdist.log()


FIELD = {distinct: "sqdist", distinct_directions: "unit_sqdist", distinct_uncentred: "uncentred_unit_sqdist"}
LEFT_OUT = {
    everywhere: set(),
    distinct: EQUAL,
    directed: DIRECTIONLESS,
    distinct_directions: DIRECTIONLESS | ALIKE,
    distinct_uncentred: DIRECTIONLESS | ALIKE,
}


def swept(s, *functions, measures=None, **options):
    """What functions of pairs give, each with these measures."""
    measures = measures or [
        Mean("m.mean"),
        Std("m.std"),
        CoV("m.cov"),
        MeanLog("m.log"),
        LogMeanExp("m.exp", exponent=lambda d: d - 2.0),
        LogMeanExp("m.none", exponent=lambda d: d - 3.0),
    ]
    metrics = [declaration(pair_metric(*measures)(function)) for function in functions]
    return evaluate(lambda: values_of(s), [(metric, metric.measures) for metric in metrics], **options)


@settings(deadline=None, max_examples=15)
@given(
    seed=st.integers(0, 10_000),
    classes=st.integers(2, 70),
    dim=st.integers(3, 9),
    side=st.integers(1, 80),
    offset=st.sampled_from([0.0, 5.0]),
)
def test_any_tiling_equals_all_pairs_at_once(seed, classes, dim, side, offset):
    s = random_statistics(classes, dim, seed, offset)
    known = plugins().measurements()
    wanted = [(known[name][0], [known[name][1]]) for name in PAIRWISE]
    found = evaluate(lambda: values_of(s), wanted, tile_side=side).results
    raw = {name: getattr(s, name).numpy() for name in ("means", "variances", "counts")} | {"within": np.eye(dim)}
    expected = reference.geometry(raw, s.means.numpy())
    for name, each in zip(PAIRWISE, found, strict=True):
        assert each.numbers[name] == pytest.approx(expected[name], rel=1e-9, abs=1e-12), name


def test_any_tiling_leaves_out_the_same_pairs():
    s = statistics()
    for side in (1, 2, 3, 4, 8, 9, 100):
        found = swept(s, *LEFT_OUT, tile_side=side, by_class=True)
        # equal bits are no rounding
        assert found.pair_counts == {"sqdist": 1, "unit_sqdist": 1, "uncentred_unit_sqdist": 1}
        for left_out, each in zip(LEFT_OUT.values(), found.results, strict=True):
            kept = [pair for pair in combinations(range(9), 2) if pair not in left_out]
            values = torch.stack([s.variances[i] + s.variances[j] for i, j in kept])
            zeros = int((values == 0).sum())
            mean, std = float(values.mean()), float(values.std(correction=0))
            expected = {
                "m.mean": mean,
                "m.std": std,
                "m.cov": std / mean,
                "m.log": float(values[values > 0].log().mean()),
                "m.exp": float(values.exp().mean().log()),
                "m.none": math.nan,
            }
            assert each.numbers == pytest.approx(expected, rel=1e-12, nan_ok=True)
            assert each.left_out == dict.fromkeys(expected, len(left_out)) | {"m.log": len(left_out) + zeros}
            rows = [
                [value for pair, value in zip(kept, values.tolist(), strict=True) if c in pair] or [math.nan]
                for c in range(9)
            ]
            means = [sum(row) / len(row) for row in rows]
            assert each.by_class["m.mean"][1].tolist() == pytest.approx(means, rel=1e-12, nan_ok=True)


@pytest.mark.parametrize("value", [0.0, 1.0])
def test_of_means_that_are_all_the_same_no_pair_is_left(value):
    functions = [each for each in LEFT_OUT if each is not everywhere]
    for side in (1, 3):
        for each in swept(statistics(torch.full((3, 2), value)), *functions, tile_side=side, by_class=True).results:
            assert set(each.left_out.values()) == {3}
            assert all(math.isnan(number) for number in each.numbers.values())
            assert all(bool(values.isnan().all()) for _, values in each.by_class.values())


@pytest.mark.parametrize("scale", [1.0, 2.0**20, 2.0**-20])
def test_distances_keep_their_digits_far_from_the_origin(scale):
    draw = torch.Generator().manual_seed(0)
    base = torch.randn(4, 3, generator=draw, dtype=torch.float64)
    gaps = torch.tensor([0.0, 0, 0, 0, 1e-2, 1e-4, 1e-6, 1e-9]).double().unsqueeze(1)
    s = statistics((base.repeat(2, 1) + gaps * torch.randn(8, 3, generator=draw, dtype=torch.float64) + 3) * scale)
    centred = s.means - s.means.mean(dim=0)
    units, uncentred = (each / each.norm(dim=1, keepdim=True) for each in (centred, s.means))
    for rows, columns in ((slice(0, 8), slice(0, 8)), (slice(0, 4), slice(4, 8)), (slice(0, 3), slice(4, 7))):
        pair = Tile(ClassGeometry(s), values_of(s), rows, columns)
        assert {tuple(pair.field(name).shape) for name in OF_PAIRS} == {tuple(pair.gram.shape)}
        for name, of in (("sqdist", s.means / scale), ("unit_sqdist", units), ("uncentred_unit_sqdist", uncentred)):
            expected = (of[rows].unsqueeze(1) - of[columns]).square().sum(dim=2)
            found = pair.field(name) / (scale**2 if name == "sqdist" else 1)
            torch.testing.assert_close(found, expected, rtol=1e-6, atol=1e-25)
            if rows == columns:
                assert found.diagonal().tolist() == [0.0] * 8


@pytest.mark.parametrize(("far", "scale"), [(1.0, 1.0), (1e9, 1.0), (1e9, 1e-6)])
def test_directions_of_short_means_keep_their_digits_beside_a_long_one(far, scale):
    means = scale * torch.randn(20, 8, generator=torch.Generator().manual_seed(5)).double()
    means[7] *= far
    units = means / means.norm(dim=1, keepdim=True)
    others = torch.ones(20, 20).triu(1).bool()
    kernel = -torch.cdist(units, units, compute_mode="donot_use_mm_for_euclid_dist")[others].log()
    wanted = [(declaration(gnc2.uncentred_log_kernel), [Mean("mean"), Std("std")])]
    s = statistics(means)
    for side in (20, 6):
        (found,) = evaluate(lambda: values_of(s), wanted, tile_side=side).results
        expected = {"mean": float(kernel.mean()), "std": float(kernel.std(correction=0))}
        assert found.numbers == pytest.approx(expected, rel=1e-9)


def nearly_equal():
    """A function that leaves out equal points, means of which two are just equal, or not quite, and what it counts."""
    for factor, equal in ((0.9, 1), (1.1, 0)):
        gap = factor * 2.0**-48 * 3  # 16 ulp of their lengths
        means = double([3, 0, 0], [3, gap, 0], [-3, 4, 0], [-3, -4 - gap, 0])
        # so that the product of two equal means is not exactly their squared length
        turned = (means + double([0, 0, 0.1], [0, 0, 0.1], [0, 0, 0.3], [0, 0, -0.7])).flip(1)
        for scale in (1.0, 2.0**100, 2.0**-100):
            yield from ((distinct, scale * each, equal, equal) for each in (means, turned))
        turn = factor * 2 * 2.0**-48  # lengths 1 and 2, the global mean is 0: each direction is off by 2^-48
        means = double([1, 0, 0], [2, 2 * turn, 0], [-3, -2 * turn, 1], [0, 0, -1])
        yield from ((function, means, equal, equal) for function in (distinct_directions, distinct_uncentred))
    for steps, equal in ((59, 1), (70, 0)):
        # The means are off by 2^-48 of 2 * 2^40, so the directions of two centred ones of length 1 by 2^-7 each. A step
        # of 2^-12 is an ulp of 2^40: 64 steps are twice 2^-7.
        turn = steps * 2.0**-12
        means = double([1, 0, 0], [1, turn, 0], [-2, 1, 0], [0, -1 - turn, 0]) + double([0, 0, 2.0**40])
        yield distinct_directions, means, equal, equal
    # Of means off by 2^-37 the direction of length 1 is off by 2^-37, that of length 2^-10 by 2^-27: 2^-28 is between.
    short, turn = 2.0**-10, 2.0**-38
    means = double([1, 0, 0], [short, turn, 0], [-1 - short, -turn, 0]) + double([0, 0, 2.0**10])
    yield from ((distinct_directions, means[order], 1, 1) for order in ([0, 1, 2], [1, 0, 2], [2, 1, 0]))
    # two classes without a direction have not one direction
    yield distinct_directions, double([0, 0], [0, 0], [1, 2], [-1, -2], [2, -1], [-2, 1]), 0, 9
    yield distinct_directions, double([0, 0], [0, 0], [1, 2], [2, 4], [-3, -6]), 0, 8  # two to the last bit
    draw = torch.Generator().manual_seed(0)
    for _ in range(10):  # a product that rounds up hides no equal means
        means = torch.randn(4, 50, generator=draw, dtype=torch.float64)
        means[1] = means[0]
        means[1, 3] += 2.0**-46  # of a length of about 7: half of what is rounding
        yield distinct, means, 1, 1


@pytest.mark.parametrize(("function", "means", "rounded", "left_out"), [*nearly_equal()])
def test_points_are_equal_up_to_the_rounding_of_float64(function, means, rounded, left_out):
    for side in (1, 2, 3, 4, 6):
        found = swept(statistics(means), function, tile_side=side)
        assert found.pair_counts[FIELD[function]] == rounded
        assert found.results[0].left_out["m.mean"] == left_out


def test_vectors_are_the_measure_over_each_classes_pairs():
    s = random_statistics(30, 6, seed=4)
    units = s.centred_means / s.norms.unsqueeze(1)
    others = ~torch.eye(30, dtype=torch.bool)
    kernel = -torch.cdist(units, units, compute_mode="donot_use_mm_for_euclid_dist")[others].view(30, 29).log()
    cosines = (units @ units.T)[others].view(30, 29)
    sums = s.variances.unsqueeze(1) + s.variances
    cdnv = (sums / 2 / torch.cdist(s.means, s.means).pow(4))[others].view(30, 29)
    expected = {
        "nc2.interference": cosines.mean(dim=1),
        "nc2.interference_std": cosines.std(dim=1, correction=0),
        "gnc2.hyperspherical_uniformity": kernel.std(dim=1, correction=0) / kernel.mean(dim=1),
        "gnc2.log_riesz": (kernel * (s.dim - 2)).exp().mean(dim=1).log() / (s.dim - 2),
        "nc1.log_cdnv": cdnv.log().mean(dim=1),
        "nc1.cdnv_scaled": cdnv.mean(dim=1) * s.norms.square().mean(),
    }
    for name, values in expected.items():
        ids, found = vectors(s, name)
        assert torch.equal(ids, s.classes)
        torch.testing.assert_close(found, values, rtol=1e-9, atol=1e-12)


def test_vectors_of_a_mean_log_leave_out_pairs_of_value_0():
    s = statistics(torch.eye(4), torch.tensor([0.0, 0.0, 1.0, 2.0]))
    logs = np.log(np.array([1, 2, 3]) / 8)
    expected = [logs[:2].mean(), logs[:2].mean(), logs[[0, 0, 2]].mean(), logs[[1, 1, 2]].mean()]
    assert vectors(s, "nc1.log_cdnv")[1].tolist() == pytest.approx(expected)
    assert vectors(statistics(torch.eye(3), torch.zeros(3)), "nc1.log_cdnv")[1].isnan().all()


def test_a_class_whose_pairs_are_all_alike_has_a_std_of_zero():
    for C in range(4, 20):
        variances = torch.full((C,), 1 / 3).double()
        variances[0] = 0.1
        (found,) = swept(statistics(torch.eye(C), variances), everywhere, by_class=True).results
        stds = found.by_class["m.std"][1]
        assert float(stds[0]) == pytest.approx(0, abs=1e-7)  # neither more than rounding nor the root of less than 0
        assert stds[1:].tolist() == pytest.approx([(1 / 3 - 0.1) * math.sqrt(C - 2) / (C - 1)] * (C - 1))


@pytest.mark.parametrize("scale", [1e-100, 1.0, 1e60])
def test_values_of_any_size_keep_their_digits(scale):
    def sums(variance_sum):
        return variance_sum * scale

    values = [float(i + j) for i in range(9) for j in range(i)]
    expected = {"m.mean": np.mean(values) * scale, "m.std": np.std(values) * scale}
    for side in (1, 4, 9):
        s = statistics(torch.eye(9), torch.arange(9))
        (found,) = swept(s, sums, measures=[Mean("m.mean"), Std("m.std")], tile_side=side).results
        assert found.numbers == pytest.approx(expected, rel=1e-12, abs=0)


def test_a_mean_that_nearly_vanishes_costs_nothing():
    means = torch.tensor([[1e-158, 0.0], [1.0, 0.0], [0.0, 1.0]], dtype=torch.float64)
    row = collapse.measure(statistics(means), metrics=["nc2", "gnc2"])
    assert row.measurements["nc2.interference"] is not None
