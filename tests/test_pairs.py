"""The pair sweep against all pairs at once, its closed forms, exclusions and near pairs."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import collapse
from collapse import EmbeddingStatistics, Mean, MeanLog, Std, pair_metric
from collapse.measurement.measuring import vectors
from collapse.numerics.pairs import sweep
from collapse.plugin.metrics import declaration
from collapse.plugin.plugin_manager import plugins
from collapse_metrics import gnc2


def statistics(means: torch.Tensor, variances: torch.Tensor | None = None) -> EmbeddingStatistics:
    C = len(means)
    return EmbeddingStatistics(
        classes=torch.arange(C),
        counts=torch.full((C,), 3),
        means=means.double(),
        variances=torch.ones(C).double() if variances is None else variances.double(),
        classifier=means.double(),
    )


def swept(s: EmbeddingStatistics, *names: str, **options: object) -> dict[str, float]:
    known = plugins().measurements()
    wanted = [(known[name][0], [known[name][1]]) for name in names]
    return {
        name: result.all.number(name)
        for name, result in zip(names, sweep(s, wanted, **options).metrics, strict=True)  # type: ignore[arg-type]
    }


PAIRWISE = [name for name, (metric, _) in plugins().measurements().items() if metric.kind == "pair"]


@settings(deadline=None, max_examples=15)
@given(
    seed=st.integers(0, 10_000),
    classes=st.integers(2, 70),
    dim=st.integers(3, 9),
    tile=st.integers(1, 80),
    offset=st.sampled_from([0.0, 5.0]),
)
def test_any_tiling_equals_all_pairs_at_once(reference, seed, classes, dim, tile, offset):
    draw = torch.Generator().manual_seed(seed)
    means = torch.randn(classes, dim, generator=draw, dtype=torch.float64) + offset
    s = statistics(means, torch.rand(classes, generator=draw))
    values = swept(s, *PAIRWISE, tile=tile)
    raw = {
        "means": s.means.numpy(),
        "variances": s.variances.numpy(),
        "counts": s.counts.numpy(),
        "within": np.eye(dim),
    }
    expected = reference.geometry(raw, s.means.numpy())
    for name, value in values.items():
        assert value == pytest.approx(expected[name], rel=1e-9, abs=1e-12), name


def test_interference_has_closed_forms():
    draw = torch.Generator().manual_seed(0)
    s = statistics(torch.randn(333, 17, generator=draw))
    C, units = 333, s.centred_means / s.norms.unsqueeze(1)
    row = collapse.measure(s, metrics=["nc2.interference", "nc2.interference_std"]).measurements
    mean = (float(units.sum(0).square().sum()) - C) / (C * (C - 1))
    mean_square = (float((units.T @ units).square().sum()) - C) / (C * (C - 1))
    assert row["nc2.interference"] == pytest.approx(mean, rel=1e-10)
    assert row["nc2.interference_std"] == pytest.approx(math.sqrt(mean_square - mean**2), rel=1e-10)
    ids, rows = vectors(s, "nc2.interference")
    np.testing.assert_allclose(rows, (units @ units.sum(0) - 1) / (C - 1), atol=1e-12)
    assert float(rows.mean()) == pytest.approx(mean, abs=1e-12)
    assert torch.equal(ids, s.classes)


def test_float32_agrees_with_float64():
    draw = torch.Generator().manual_seed(5)
    s = statistics(torch.randn(300, 24, generator=draw) + 20, torch.rand(300, generator=draw))
    single, double = swept(s, *PAIRWISE, dtype=torch.float32), swept(s, *PAIRWISE)
    for name in PAIRWISE:
        rel = 1e-2 if name == "nc2.equiangularity" else 1e-4  # divides by a mean near 0
        assert single[name] == pytest.approx(double[name], rel=rel, abs=1e-6), name


def test_equal_means_are_left_out_and_counted():
    means = torch.tensor([[1.0, 0.0], [1.0, 0.0], [0.0, 1.0], [-1.0, 3.0]])
    row = collapse.measure(statistics(means), metrics=["nc1.cdnv", "gnc2.log_kernel", "nc2.interference"])
    assert row.excluded == {"nc1.cdnv": 1, "gnc2.log_kernel": 1}
    without = [
        2 / (2 * float((means[i] - means[j]).square().sum()) ** 2) for i, j in ((0, 2), (0, 3), (1, 2), (1, 3), (2, 3))
    ]
    assert row.measurements["nc1.cdnv"] == pytest.approx(np.mean(without), rel=1e-12)


def test_a_zero_centred_mean_has_no_direction():
    means = torch.tensor([[1.0, 0.0], [-1.0, 0.0], [0.0, 1.0], [0.0, -1.0], [0.0, 0.0]])
    row = collapse.measure(
        statistics(means), metrics=["nc2.interference", "nc2.log_norm", "nc2.norm", "nc3.self_duality"]
    )
    assert row.measurements["nc2.interference"] == pytest.approx(-1 / 3)
    assert row.measurements["nc2.log_norm"] == 0
    assert row.measurements["nc2.norm"] == pytest.approx(0.8)
    assert row.excluded == {"nc2.interference": 4}
    assert {note.measurement for note in row.notes if note.kind == "zero_mean"} == {
        "nc2.interference",
        "nc2.log_norm",
        "nc3.self_duality",
    }


@pytest.mark.parametrize("gap", [1e-3, 1e-6, 1e-9, 1e-12])
def test_near_pairs_keep_their_digits(gap):
    base = torch.tensor([[3.0, 4.0, 0.0], [-5.0, 1.0, 2.0], [0.5, -2.0, 1.0]], dtype=torch.float64)
    near = base[0] + torch.tensor([0.0, 0.0, gap])
    s = statistics(torch.cat([base, near.unsqueeze(0)]))
    expected = np.mean(
        [1 / float((s.means[i] - s.means[j]).square().sum()) ** 2 for i in range(4) for j in range(i + 1, 4)]
    )
    assert collapse.measure(s, metrics=["nc1.cdnv"]).measurements["nc1.cdnv"] == pytest.approx(
        expected, rel=1e-3 * 1e-6
    )


def test_pairs_closer_than_the_rounding_are_noted():
    means = torch.tensor([[1.0, 0.0], [1.0, 1e-9], [0.0, 1.0], [-1.0, 3.0]], dtype=torch.float64)
    row = collapse.measure(statistics(means), metrics=["nc1.cdnv_galanti"])
    assert [note.text for note in row.notes if note.kind == "close"] == [
        "1 pair of means is closer than the rounding of float32 embeddings"
    ]


def test_values_of_zero_are_left_out_of_the_log_and_counted():
    s = statistics(torch.eye(4), torch.tensor([0.0, 0.0, 1.0, 2.0]))
    row = collapse.measure(s, metrics=["nc1.log_cdnv", "nc1.cdnv"])
    assert row.excluded == {"nc1.log_cdnv": 1}
    assert row.measurements["nc1.cdnv"] == pytest.approx((1 + 2 + 1 + 2 + 3) / 6 / 8)
    assert row.measurements["nc1.log_cdnv"] == pytest.approx(np.log(np.array([1, 2, 1, 2, 3]) / 8).mean())


def test_a_pair_function_that_returns_something_else_costs_only_itself():
    @pair_metric(Mean("mine.a"), Std("mine.b"))
    def wrong(sqdist):
        return sqdist.sum()

    known = plugins().measurements()["gnc2.distance"]
    wrong_one, right = sweep(statistics(torch.eye(3)), [(declaration(wrong), []), (known[0], [known[1]])]).metrics
    assert "shape (3, 3)" in str(wrong_one.failed)
    assert right.all.number("gnc2.distance") == pytest.approx(math.sqrt(3))


def test_vectors_are_the_measure_over_each_classes_pairs():
    draw = torch.Generator().manual_seed(4)
    s = statistics(torch.randn(30, 6, generator=draw), torch.rand(30, generator=draw) + 0.1)
    units = s.centred_means / s.norms.unsqueeze(1)
    others = ~torch.eye(30, dtype=torch.bool)
    cosines = (units @ units.T)[others].view(30, 29)
    kernel = -torch.cdist(units, units, compute_mode="donot_use_mm_for_euclid_dist")[others].view(30, 29).log()
    sums = s.variances.unsqueeze(1) + s.variances
    cdnv = (sums / 2 / torch.cdist(s.means, s.means).pow(4))[others].view(30, 29)
    expected = {
        "nc2.interference": cosines.mean(dim=1),
        "nc2.interference_std": cosines.std(dim=1, correction=0),
        "gnc2.hyperspherical_uniformity": kernel.std(dim=1, correction=0) / kernel.mean(dim=1),
        "nc1.log_cdnv": cdnv.log().mean(dim=1),
        "nc1.cdnv_scaled": cdnv.mean(dim=1) * s.norms.square().mean(),
    }
    for name, values in expected.items():
        torch.testing.assert_close(vectors(s, name)[1], values, rtol=1e-9, atol=1e-12)
    s_of = s.dim - 2
    expected = (kernel * s_of).exp().mean(dim=1).log() / s_of
    torch.testing.assert_close(vectors(s, "gnc2.log_riesz")[1], expected, rtol=1e-9, atol=1e-12)


def test_vectors_of_a_mean_log_leave_out_pairs_of_value_0():
    s = statistics(torch.eye(4), torch.tensor([0.0, 0.0, 1.0, 2.0]))
    logs = np.log(np.array([1, 2, 3]) / 8)
    expected = [logs[:2].mean(), logs[:2].mean(), logs[[0, 0, 2]].mean(), logs[[1, 1, 2]].mean()]
    assert vectors(s, "nc1.log_cdnv")[1].tolist() == pytest.approx(expected)
    alike = statistics(torch.eye(3), torch.tensor([0.0, 0.0, 0.0]))
    assert vectors(alike, "nc1.log_cdnv")[1].isnan().all()


@pytest.mark.parametrize(("dtype", "near"), [(torch.float64, 1e-9), (torch.float32, 1e-4)])
@pytest.mark.parametrize(("far", "scale"), [(1.0, 1.0), (1e3, 1.0), (1e9, 1.0), (1e9, 1e-6)])
def test_directions_of_short_means_keep_their_digits_beside_a_long_one(far, scale, dtype, near):
    means = scale * torch.randn(20, 8, generator=torch.Generator().manual_seed(5)).double()
    means[7] *= far
    units = means / means.norm(dim=1, keepdim=True)
    others = torch.ones(20, 20).triu(1).bool()
    expected = -torch.cdist(units, units, compute_mode="donot_use_mm_for_euclid_dist")[others].log()
    mean, std = Mean("mean"), Std("std")
    wanted = [(declaration(gnc2.uncentred_log_kernel), [mean, std])]
    for tile in (20, 6):
        (kernel,) = sweep(statistics(means), wanted, tile=tile, dtype=dtype).metrics
        rel = 1e-9 if dtype == torch.float64 else 1e-4
        assert kernel.all.number("mean") == pytest.approx(float(expected.mean()), rel=rel)
        assert kernel.all.number("std") == pytest.approx(float(expected.std(correction=0)), rel=rel)


def test_a_class_whose_pairs_are_all_alike_has_a_std_of_zero():
    @pair_metric(Std("mine.std"))
    def sums(variance_sum):
        return variance_sum

    for C in range(4, 20):
        variances = torch.full((C,), 1 / 3).double()
        variances[0] = 0.1
        wanted = [(declaration(sums), declaration(sums).measures)]
        (found,) = sweep(statistics(torch.eye(C), variances), wanted, by_class=True).metrics
        stds = found.by_class.numbers("mine.std")
        assert float(stds[0]) == pytest.approx(0, abs=1e-7)  # neither more than rounding nor the root of less than 0
        assert stds[1:].tolist() == pytest.approx([(1 / 3 - 0.1) * math.sqrt(C - 2) / (C - 1)] * (C - 1))


@pytest.mark.parametrize("scale", [1e-100, 1.0, 1e60])
def test_values_of_any_size_keep_their_digits(scale):
    @pair_metric(Mean("mine.mean"), Std("mine.std"))
    def sums(variance_sum):
        return variance_sum * scale

    s = statistics(torch.eye(9), torch.arange(9))
    values = [float(i + j) * scale for i in range(9) for j in range(i)]
    for tile in (1, 4, 9):
        (found,) = sweep(s, [(declaration(sums), declaration(sums).measures)], tile=tile).metrics
        expected = {"mine.mean": np.mean(values), "mine.std": np.std(np.array(values) / scale) * scale}
        assert {name: found.all.number(name) for name in expected} == pytest.approx(expected, rel=1e-12, abs=0)


def test_a_function_that_writes_costs_a_second_sweep_without_it():
    @pair_metric(Mean("mine.late"))
    def late(row_means, gram):
        if len(gram) > 12:
            row_means.mul_(2)
        return gram

    s = statistics(torch.randn(20, 4, generator=torch.Generator().manual_seed(0)))
    (metric, measure), own = plugins().measurements()["nc1.cdnv"], declaration(late)
    found, failed = sweep(s, [(metric, [measure]), (own, own.measures)]).metrics
    assert "late failed: it wrote to row_means" in str(failed.failed)
    assert found.all.number("nc1.cdnv") == swept(s, "nc1.cdnv")["nc1.cdnv"]
    nothing = sweep(statistics(torch.eye(3)), [])
    assert (nothing.metrics, nothing.close_pairs, set(nothing.rounded.values())) == ([], 0, {0})


def test_zeros_among_negative_values_are_counted_too():
    @pair_metric(MeanLog("mine.log"))
    def sums(variance_sum):
        return variance_sum

    s = statistics(torch.eye(4), torch.tensor([-1.0, 0.0, 1.0, -2.0]))
    for tile in (1, 2, 4):
        (found,) = sweep(s, [(declaration(sums), declaration(sums).measures)], tile=tile).metrics
        assert math.isnan(found.all.number("mine.log"))
        assert found.all.left_out("mine.log") == 1


def test_every_pair_is_reduced_once():
    class Counting(Mean):
        def result(self, state):
            return state[0]

    @pair_metric(Counting("t.n"))
    def everywhere(sqdist):
        return sqdist

    draw = torch.Generator().manual_seed(0)
    s = statistics(torch.randn(9, 3, generator=draw, dtype=torch.float64))
    metric = declaration(everywhere)
    for tile in (1, 4, 9, 20):
        (taken,) = sweep(s, [(metric, metric.measures)], tile=tile).metrics
        assert taken.all.number("t.n") == 9 * 8 / 2


def test_a_mean_that_nearly_vanishes_costs_nothing():
    means = torch.tensor([[1e-158, 0.0], [1.0, 0.0], [0.0, 1.0]], dtype=torch.float64)
    row = collapse.measure(statistics(means), metrics=["nc2", "gnc2"])
    assert row.measurements["nc2.interference"] is not None
