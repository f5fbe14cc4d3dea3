"""What tiles leave out, count and redo is the same however the classes are cut, and as counted one pair at a time."""

import math
from itertools import combinations

import pytest
import torch

from collapse import CoV, EmbeddingStatistics, LogMeanExp, Mean, MeanLog, Std, pair_metric
from collapse.numerics import near_pairs
from collapse.numerics.pairs import sweep
from collapse.numerics.tiles import Points, Tile
from collapse.numerics.values import values_of
from collapse.plugin.metrics import declaration
from collapse.plugin.names import OF_PAIRS

TINY, GAP = 2.0**-50, 2.0**-30
# Their mean is exactly 0. Classes 0 and 1 are equal, 5, 6 and 7 nearly, 2 and 3 have one direction, 4 has none.
MEANS = torch.tensor(
    [
        [1, 0, 0],
        [1, 0, 0],
        [-1, 0, 0],
        [-2, 0, 0],
        [0, 0, 0],
        [0, 1, 0],
        [0, 1, TINY],
        [0, 1, GAP],
        [1, -3, -TINY - GAP],
    ],
    dtype=torch.float64,
)
EQUAL = {(0, 1), (5, 6)}
CLOSE = {(5, 7), (6, 7)}
DIRECTIONLESS = {pair for pair in combinations(range(9), 2) if 4 in pair}
ALIKE = {(0, 1), (2, 3), (5, 6)}


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


LEFT_OUT = {
    everywhere: set(),
    distinct: EQUAL,
    directed: DIRECTIONLESS,
    distinct_directions: DIRECTIONLESS | ALIKE,
    distinct_uncentred: DIRECTIONLESS | ALIKE,
}
ROUNDED = {"sqdist": 1, "unit_sqdist": 1, "uncentred_unit_sqdist": 1}  # of equal bits is no rounding


def statistics(means=MEANS, dtype="float32"):
    C = len(means)
    return EmbeddingStatistics(
        classes=torch.arange(C),
        counts=torch.arange(1, C + 1),
        means=means,
        variances=torch.arange(C).double() // 2,  # those of the first two classes are 0
        dtype=dtype,
    )


def declared(function):
    measures = [
        Mean("m.mean"),
        Std("m.std"),
        CoV("m.cov"),
        MeanLog("m.log"),
        LogMeanExp("m.exp", exponent=lambda d: d - 2.0),
        LogMeanExp("m.none", exponent=lambda d: d - 3.0),
    ]
    return declaration(pair_metric(*measures)(function))


def tile_of(points, s, rows, columns):
    return Tile(points, values_of(s), rows, columns, points.means[rows] @ points.means[columns].T)


def test_any_tiling_leaves_out_the_same_pairs():
    s = statistics()
    metrics = [declared(function) for function in LEFT_OUT]
    wanted = [(metric, metric.measures) for metric in metrics]
    for tile in (1, 2, 3, 4, 8, 9, 100):
        swept = sweep(s, wanted, tile=tile, by_class=True)
        assert swept.close_pairs == len(CLOSE)
        assert swept.rounded == ROUNDED
        for (over, left_out), found in zip(LEFT_OUT.items(), swept.metrics, strict=True):
            kept = [pair for pair in combinations(range(9), 2) if pair not in left_out]
            values = torch.stack([s.variances[i] + s.variances[j] for i, j in kept])
            zeros = int((values == 0).sum())
            assert zeros == (over in (everywhere, directed))
            mean, std = float(values.mean()), float(values.std(correction=0))
            expected = {
                "m.mean": mean,
                "m.std": std,
                "m.cov": std / mean,
                "m.log": float(values[values > 0].log().mean()),
                "m.exp": float(values.exp().mean().log()),
            }
            taken = found.all
            assert math.isnan(taken.number("m.none"))
            assert {name: taken.number(name) for name in expected} == pytest.approx(expected, rel=1e-12)
            counts = dict.fromkeys([*expected, "m.none"], len(left_out)) | {"m.log": len(left_out) + zeros}
            assert {name: taken.left_out(name) for name in counts} == counts
            rows = [
                [value for pair, value in zip(kept, values.tolist(), strict=True) if c in pair] or [math.nan]
                for c in range(9)
            ]
            means = [sum(row) / len(row) for row in rows]
            assert found.by_class.numbers("m.mean").tolist() == pytest.approx(means, rel=1e-12, nan_ok=True)


def test_where_no_pair_is_left_everything_is_nan():
    s = statistics(torch.tensor([[1.0, 2.0], [1.0, 2.0]]).double())
    metric = declared(distinct)
    for tile in (1, 2):
        (found,) = sweep(s, [(metric, metric.measures)], tile=tile, by_class=True).metrics
        for name in ("m.mean", "m.std", "m.cov", "m.log", "m.exp"):
            assert found.all.numbers(name).isnan().all()
            assert found.by_class.numbers(name).isnan().all()
            assert found.all.left_out(name) == 1


@pytest.mark.parametrize(("dtype", "bits"), [("float64", 51), ("float32", 22), ("float16", 9), ("bfloat16", 7)])
def test_close_is_what_the_dtype_of_the_embeddings_rounds(dtype, bits):
    near = 4 * 2.0**-bits  # 4: the largest norm of a mean
    for factor, close in ((0.7, 1), (1.4, 0)):
        means = torch.tensor([[0, 4.0], [0, 0], [factor * near, 0], [0, -3]], dtype=torch.float64)
        metric = declared(distinct)
        for tile in (1, 4):
            assert sweep(statistics(means, dtype), [(metric, metric.measures)], tile=tile).close_pairs == close


@pytest.mark.parametrize(("dtype", "bits"), [("float64", 51), ("float32", 22)])
def test_means_apart_by_just_the_rounding_are_not_close(dtype, bits):
    means = torch.tensor([[0, 4.0], [0, 0], [4 * 2.0**-bits, 0], [0, -3]], dtype=torch.float64)
    metric = declared(distinct)
    for tile in (1, 4):
        assert sweep(statistics(means, dtype), [(metric, metric.measures)], tile=tile).close_pairs == 0


@pytest.mark.parametrize("sizes", [{}, {"_GATHER": 1}, {"_GATHER": 7}])
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize("scale", [1.0, 2.0**20, 2.0**-20])
def test_distances_keep_their_digits_far_from_the_origin(monkeypatch, sizes, dtype, scale):
    for name, size in sizes.items():
        monkeypatch.setattr(near_pairs, name, size)
    draw = torch.Generator().manual_seed(0)
    base = torch.randn(4, 3, generator=draw, dtype=torch.float64)
    gaps = torch.tensor([0.0, 0, 0, 0, 1e-2, 1e-4, 1e-6, 1e-9]).double().unsqueeze(1)
    s = statistics((base.repeat(2, 1) + gaps * torch.randn(8, 3, generator=draw, dtype=torch.float64) + 3) * scale)
    points = Points.of(s, dtype)
    centred = s.means - s.means.mean(dim=0)
    units, uncentred = (each / each.norm(dim=1, keepdim=True) for each in (centred, s.means))
    for rows, columns in ((slice(0, 8), slice(0, 8)), (slice(0, 4), slice(4, 8)), (slice(0, 3), slice(4, 7))):
        pair = tile_of(points, s, rows, columns)
        for name, of in (("sqdist", s.means / scale), ("unit_sqdist", units), ("uncentred_unit_sqdist", uncentred)):
            expected = (of[rows].unsqueeze(1) - of[columns]).square().sum(dim=2)
            found = pair.field(name).double() / (scale**2 if name == "sqdist" else 1)
            # float32: rows of 1e-2 and above may come from the product, with the digits that REDO leaves it
            torch.testing.assert_close(found, expected, rtol=1e-6 if dtype == torch.float64 else 1e-4, atol=1e-25)
            if rows == columns:
                assert found.diagonal().tolist() == [0.0] * 8
        assert pair.shared.written() == []


def test_a_tile_knows_what_was_written_to_it():
    s = statistics()
    pair = tile_of(Points.of(s), s, slice(0, 4), slice(0, 4))
    assert pair.field("cosine")[0, 2] == -1
    pair.field("cosine").mul_(1)
    assert pair.shared.written() == ["cosine"]


def test_every_field_has_its_name():
    s = statistics()
    pair = tile_of(Points.of(s), s, slice(0, 2), slice(4, 9))
    assert {tuple(pair.field(name).shape) for name in OF_PAIRS} == {(2, 5)}


SHAPES = {
    "row_counts": (1, 1),
    "column_counts": (1, 1),
    "row_means": (1, 3),
    "column_variances": (1, 1),
    "row_norms": (1, 1),
}


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_blocks_of_class_values_have_the_shape_of_a_tile(dtype):
    seen = {}

    def look(row_counts, column_counts, row_means, column_variances, row_norms, d, gram):
        blocks = [row_counts, column_counts, row_means, column_variances, row_norms]
        seen.update(zip(SHAPES, blocks, strict=True), d=d)
        return gram

    metric = declared(look)
    sweep(statistics(), [(metric, metric.measures)], tile=4, dtype=dtype)  # the last tile is of class 8 alone
    assert {name: tuple(seen[name].shape) for name in SHAPES} == SHAPES
    assert (seen["row_counts"].dtype, seen["row_means"].dtype, seen["d"]) == (torch.int64, dtype, 3)


def test_values_of_a_sweep_are_reported_as_it_goes():
    told = []
    metric = declared(everywhere)
    sweep(statistics(), [(metric, metric.measures)], tile=4, progress=lambda *words: told.append(words))
    assert told == [("sweeping pairs", n, 6) for n in range(1, 7)]


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("turned", [False, True])
@pytest.mark.parametrize(("factor", "equal"), [(0.9, 1), (1.1, 0)])
def test_means_are_equal_up_to_16_ulp_of_their_lengths(factor, equal, turned, dtype):
    gap = factor * 2.0**-48 * (3 + 3) / 2
    means = torch.tensor([[3, 0, 0], [3, gap, 0], [-3, 4, 0], [-3, -4 - gap, 0]], dtype=torch.float64)
    if turned:  # so that the product of two equal means is not exactly their squared length
        means = (means + torch.tensor([[0, 0, 0.1], [0, 0, 0.1], [0, 0, 0.3], [0, 0, -0.7]]).double()).flip(1)
    s = statistics(means, dtype)
    pair = tile_of(Points.of(s), s, slice(0, 4), slice(0, 4))
    assert (float(pair.field("sqdist")[0, 1]) == 0) == bool(equal)
    metric = declared(distinct)
    for tile in (1, 4):
        swept = sweep(s, [(metric, metric.measures)], tile=tile)
        assert swept.rounded["sqdist"] == equal
        assert swept.metrics[0].all.left_out("m.mean") == equal


@pytest.mark.parametrize(("factor", "equal"), [(0.9, 1), (1.1, 0)])
def test_directions_are_equal_up_to_the_rounding_of_their_means(factor, equal):
    # lengths 1 and 2, the global mean is 0: each direction is off by 2^-48
    turn = factor * 2 * 2.0**-48
    means = torch.tensor([[1, 0, 0], [2, 2 * turn, 0], [-3, -2 * turn, 1], [0, 0, -1]], dtype=torch.float64)
    for over, field in ((distinct_directions, "unit_sqdist"), (distinct_uncentred, "uncentred_unit_sqdist")):
        metric = declared(over)
        for tile in (1, 4):
            swept = sweep(statistics(means), [(metric, metric.measures)], tile=tile)
            assert swept.rounded[field] == equal
            assert swept.metrics[0].all.left_out("m.mean") == equal


@pytest.mark.parametrize("scale", [1.0, 2.0**100, 2.0**-100])
@pytest.mark.parametrize(("factor", "equal"), [(0.9, 1), (1.0, 1), (1.1, 0)])
def test_the_longest_means_are_equal_up_to_16_ulp_too(factor, equal, scale):
    gap = factor * 2.0**-48 * (4 + 4) / 2
    means = torch.tensor([[4, 0, 0], [4, gap, 0], [-1, 2, 0], [-2, -3, 0]], dtype=torch.float64)
    metric = declared(distinct)
    for tile in (1, 4):
        swept = sweep(statistics(means * scale, "float64"), [(metric, metric.measures)], tile=tile)
        assert swept.rounded["sqdist"] == equal
        assert swept.metrics[0].all.left_out("m.mean") == equal


@pytest.mark.parametrize(("steps", "equal"), [(59, 1), (70, 0)])
def test_directions_far_from_the_origin_are_equal_up_to_a_wide_angle(steps, equal):
    # The means are off by 2^-48 of 2 * 2^40, so the directions of two centred ones of length 1 by 2^-7 each. A step of
    # 2^-12 is an ulp of 2^40: 64 steps are twice 2^-7.
    turn = steps * 2.0**-12
    means = torch.tensor([[1, 0, 0], [1, turn, 0], [-2, 1, 0], [0, -1 - turn, 0]], dtype=torch.float64)
    metric = declared(distinct_directions)
    for tile in (1, 4):
        s = statistics(means + torch.tensor([0, 0, 2.0**40], dtype=torch.float64))
        swept = sweep(s, [(metric, metric.measures)], tile=tile)
        assert swept.rounded["unit_sqdist"] == equal
        assert swept.metrics[0].all.left_out("m.mean") == equal


def test_directions_that_differ_by_just_their_rounding_are_equal():
    # lengths 1 and a global mean of 2^46: each direction is off by a half, and the first two are 1 apart
    means = [[1, 0, 0, 0], [0.5, 0.5, 0.5, 0.5], [-1.5, 0.5, -1.5, -0.5], [0, -1, 1, 0]]
    s = statistics(torch.tensor([[*mean, 2.0**46] for mean in means], dtype=torch.float64))
    metric = declared(distinct_directions)
    for tile in (1, 4):
        swept = sweep(s, [(metric, metric.measures)], tile=tile)
        assert swept.rounded["unit_sqdist"] == 1
        assert swept.metrics[0].all.left_out("m.mean") == 1


def test_a_short_mean_makes_the_rounding_of_its_pair_whichever_comes_first():
    # Of means off by 2^-37 the direction of length 1 is off by 2^-37, that of length 2^-10 by 2^-27: 2^-28 is between.
    short, turn = 2.0**-10, 2.0**-38
    metric = declared(distinct_directions)
    for order in ([0, 1, 2], [1, 0, 2], [2, 1, 0]):
        means = torch.tensor([[1, 0, 0], [short, turn, 0], [-1 - short, -turn, 0]], dtype=torch.float64)[order]
        s = statistics(means + torch.tensor([0, 0, 2.0**10], dtype=torch.float64))
        for tile in (1, 3):
            swept = sweep(s, [(metric, metric.measures)], tile=tile)
            assert swept.rounded["unit_sqdist"] == 1
            assert swept.metrics[0].all.left_out("m.mean") == 1


@pytest.mark.parametrize("value", [0.0, 1.0])
def test_of_means_that_are_all_the_same_no_pair_is_left(value):
    for over in LEFT_OUT.keys() - {everywhere}:
        metric = declared(over)
        for tile in (1, 3):
            s = statistics(torch.full((3, 2), value).double())
            (found,) = sweep(s, [(metric, metric.measures)], tile=tile).metrics
            assert found.all.left_out("m.mean") == 3
            assert math.isnan(found.all.number("m.mean"))


def test_two_classes_without_a_direction_are_not_said_to_have_one_direction():
    s = statistics(torch.tensor([[0, 0], [0, 0], [1, 2], [-1, -2], [2, -1], [-2, 1]], dtype=torch.float64))
    metric = declared(distinct_directions)
    for tile in (1, 6):
        swept = sweep(s, [(metric, metric.measures)], tile=tile)
        assert swept.rounded["unit_sqdist"] == 0
        assert swept.metrics[0].all.left_out("m.mean") == 9


def test_two_classes_without_a_direction_beside_two_that_share_one():
    s = statistics(torch.tensor([[0, 0], [0, 0], [1, 2], [2, 4], [-3, -6]], dtype=torch.float64))
    metric = declared(distinct_directions)
    for tile in (1, 2, 5):
        swept = sweep(s, [(metric, metric.measures)], tile=tile)
        assert swept.rounded["unit_sqdist"] == 0  # the two have one direction to the last bit
        assert swept.metrics[0].all.left_out("m.mean") == 8


def test_a_product_that_rounds_up_hides_no_equal_means():
    draw = torch.Generator().manual_seed(0)
    metric = declared(distinct)
    for _ in range(10):
        means = torch.randn(4, 50, generator=draw, dtype=torch.float64)
        means[1] = means[0]
        means[1, 3] += 2.0**-46  # of a length of about 7: half of what is rounding
        for tile in (1, 4):
            assert sweep(statistics(means, "float64"), [(metric, metric.measures)], tile=tile).rounded["sqdist"] == 1
