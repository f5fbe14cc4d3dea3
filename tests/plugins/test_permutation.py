"""The permutation test: against the published Table 1, brute force, numpy and scipy; and its command."""

import dataclasses
import json
import math
import subprocess
import sys
import time
from collections.abc import Callable
from itertools import permutations
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from scipy.stats import permutation_test

import collapse
from collapse import CollapseError, Results, Row, Table
from collapse.errors import UsageError
from collapse_analyses.correlation import correlation
from collapse_analyses.permutation import Floats, permutation, shuffle
from collapse_analyses.scaling import scaling

TABLE_1 = [  # column as the data README names it, R², p with 6 million permutations, max-T p, predicted sign
    ("nc1.cdnv=cdnv_mean", 0.192011, 0.0476, 0.202, "r > 0"),
    ("nc2.equinormness=norms_log_std/norms_log_mean", 0.026174, 0.4814, 0.942, "r > 0"),
    ("nc2.equiangularity=interfere_std/interfere_mean", 0.218574, 0.0322, 0.148, None),  # its mean nears 0
    ("gnc2.uncentred_uniformity=log_dist_std/log_dist_mean", 0.487935, 0.00051, 0.003, "r < 0"),
    ("nc3.self_duality=sims_mean", 0.322210, 0.0073, 0.040, "r < 0"),
    ("unc3.uniform_duality=sims_std/sims_mean", 0.000036, 0.9791, 1.000, "r > 0"),
    ("nc4.agreement=matches/(matches+misses)", 0.490278, 0.00036, 0.003, "r < 0"),
]
SEEDS = "model=02x0768_01d*@0"


def table(*, classes: int = 9, dim: int = 4, **columns: list[float | None]) -> Results:
    """Results with these measurement columns (``__`` in a name stands for a dot)."""
    names = [name.replace("__", ".") for name in columns]
    rows = zip(*columns.values(), strict=True)
    return Results(
        Row(f"m{i}", None, "text", "", 1, classes, dim, 99, dict(zip(names, row, strict=True)))
        for i, row in enumerate(rows)
    )


@pytest.mark.parametrize("suffix", [".csv", ".json", ".parquet"])
def test_rows_are_chosen_by_counts_that_some_rows_lack(suffix: str, tmp_path: Path) -> None:
    columns = {"nc1__cdnv": [0.1, 0.4, 0.2, 0.7, 0.3, 0.9], "val_loss": [1.0, 3.0, 2.0, 4.0, 3.0, 5.0]}
    rows = [
        dataclasses.replace(each, chunk_length=16 if i % 2 else None, max_chunks=None if i % 2 else 24)
        for i, each in enumerate(table(**columns))
    ]
    path = tmp_path / f"t{suffix}"
    Results(rows).write(path)
    for where in ("max_chunks=", "chunk_length=16", "max_chunks=24", "chunk_length="):
        assert permutation(Results.read(path), where=where, n=10).title.endswith(", 3 rows"), where
    with pytest.raises(UsageError, match=r"max_chunks holds 24, \(nothing\)"):
        permutation(Results.read(path), where="max_chunks=25", n=10)


def brute_force(y_n: Floats, x_nk: Floats) -> tuple[Floats, Floats]:
    """p and max-T p over all orders of y, from the definitions."""
    observed = np.array([abs(np.corrcoef(y_n, x)[0, 1]) for x in x_nk.T])
    every = [[abs(np.corrcoef(order, x)[0, 1]) for x in x_nk.T] for order in permutations(y_n)]
    null = np.array(every)
    p = (null >= observed - 1e-9).mean(axis=0)
    return p, (null.max(axis=1)[:, None] >= observed - 1e-9).mean(axis=0)


def test_table_1(shared: Path) -> None:
    published = Results.read(shared / "data" / "published" / "lc-2024_05_18.csv")
    columns = [column for column, *_ in TABLE_1]
    permutation(published, columns=columns, where=SEEDS, n=10)  # imports scipy.stats
    started = time.perf_counter()
    found = permutation(published, columns=columns, where=SEEDS, n=10_000)
    assert time.perf_counter() - started < 1
    ordered = sorted(TABLE_1, key=lambda each: each[2])
    for row, (column, r2, p, max_t_p, predicted) in zip(found.records(), ordered, strict=True):
        assert row["column"] == column.partition("=")[0]
        sure = row["r_low"] * row["r_high"] > 0
        assert row["agrees"] == (True if sure and predicted else None)
        assert f"{row['R2']:.6f}" == f"{r2:.6f}"
        assert abs(row["p"] - p) < 4 * math.sqrt(p * (1 - p) / 1e4)
        assert row["p_error"] == pytest.approx(math.sqrt(row["p"] * (1 - row["p"]) / 1e4))
        assert abs(row["max_t_p"] - max_t_p) < 4 * math.sqrt(max_t_p * (1 - max_t_p) / 1e4) + 5e-4  # 3 decimals known
        assert row["predicted"] == predicted
    assert found.notes[0] == "21 of 230 rows, with model=02x0768_01d*@0"
    assert "10,000 random permutations of val_loss (seed 0)" in found.notes[1]


values = st.floats(-1e6, 1e6, width=32)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(values, values, values), min_size=3, max_size=12))
def test_r_is_numpys(rows: list[tuple[float, float, float]]) -> None:
    y_n, x_nk = (lambda a: (a[:, 0], a[:, 1:]))(np.array(rows))
    assume(all(np.std(each) > 1e-6 * np.abs(each).max() for each in [y_n, *x_nk.T]))
    found = shuffle(y_n, x_nk, n=3, seed=0)
    want = [np.corrcoef(y_n, x)[0, 1] for x in x_nk.T]
    np.testing.assert_allclose(found.r, want, atol=1e-9)


@settings(max_examples=15, deadline=None)
@given(
    st.permutations([0.0, 1.0, 2.0, 4.0, 4.0]),
    st.lists(st.permutations([1.0, 1.0, 2.0, 3.0, 7.0]), min_size=1, max_size=3),
)
def test_five_rows_are_enumerated(y: list[float], xs: list[list[float]]) -> None:
    y_n, x_nk = np.array(y), np.array(xs).T
    found = shuffle(y_n, x_nk, n=120, seed=0)
    p, max_t_p = brute_force(y_n, x_nk)
    assert found.exact
    assert found.permutations == 120
    np.testing.assert_array_equal(found.p, p)
    np.testing.assert_array_equal(found.max_t_p, max_t_p)
    assert found.p_error.tolist() == [0.0] * len(xs)


def test_a_correlation_of_nothing_ties_with_every_other() -> None:
    y_n, x_nk = np.array([0.1, 0.2, 0.3]), np.array([[0.1], [0.3], [0.1]])
    assert shuffle(y_n, x_nk, n=6, seed=0).p.tolist() == [1.0]  # r is 1e-16 or so, not exactly 0


def test_random_permutations_are_scipys() -> None:
    generator = np.random.default_rng(7)
    y_n, x_nk = generator.normal(size=15), generator.normal(size=(15, 3))
    found = shuffle(y_n, x_nk, n=500, seed=3)
    assert not found.exact

    def statistic(y: Floats, axis: int) -> Floats:
        y = (y - y.mean(axis=-1, keepdims=True)) / y.std(axis=-1, keepdims=True)
        return np.abs(y @ ((x_nk - x_nk.mean(axis=0)) / x_nk.std(axis=0)) / 15)

    theirs = permutation_test(
        (y_n,),
        statistic,
        permutation_type="pairings",
        alternative="greater",
        vectorized=True,
        n_resamples=500,
        axis=-1,
        rng=np.random.default_rng(3),
    )
    np.testing.assert_array_equal(found.p, theirs.pvalue)
    largest = theirs.null_distribution.max(axis=1)
    max_t_p = [(np.count_nonzero(largest >= each) + 1) / 501 for each in theirs.statistic]
    np.testing.assert_allclose(found.max_t_p, max_t_p)
    np.testing.assert_allclose(found.p_error, np.sqrt(found.p * (1 - found.p) / 500))
    again = shuffle(y_n, x_nk, n=500, seed=3)
    np.testing.assert_array_equal(again.p, found.p)
    np.testing.assert_array_equal(shuffle(y_n, x_nk[:, :1], n=500, seed=3).p, found.p[:1])  # one shuffle for all
    assert shuffle(y_n, x_nk, n=500, seed=4).p.tolist() != found.p.tolist()
    assert (found.max_t_p >= found.p).all()
    with pytest.raises(dataclasses.FrozenInstanceError):
        found.exact = True


def test_many_rows_are_permuted_in_batches() -> None:
    generator = np.random.default_rng(0)
    y_n = generator.normal(size=30_000)
    found = shuffle(y_n, y_n[:, None] + generator.normal(size=(30_000, 1)), n=99, seed=0)
    assert found.permutations == 99
    assert found.p.tolist() == [0.01]


def test_extreme_magnitudes() -> None:
    y_n = np.array([1.0, 2.0, 3.0, 5.0])
    x_nk = np.stack([y_n * 1e300, y_n * 1e-300, 1e8 + y_n * 1e-3], axis=1)
    np.testing.assert_allclose(shuffle(y_n=y_n, x_nk=x_nk, n=24, seed=0).r, 1, atol=1e-9)


def test_values_that_differ_in_their_last_digits() -> None:
    ulps, y_n = np.array([0.0, 1.0, 2.0, 4.0]), np.array([1.0, 2.0, 4.0, 3.0])
    found = shuffle(y_n, (1 - ulps * 2**-53)[:, None], n=24, seed=0)
    np.testing.assert_allclose(found.r, -np.corrcoef(y_n, ulps)[0, 1], rtol=1e-12)


def test_no_correlation_is_beyond_one() -> None:
    generator = np.random.default_rng(1)
    for _ in range(40):  # of unit vectors, some are longer than 1 by a last digit
        y_n = generator.normal(size=9)
        found = shuffle(y_n, np.stack([y_n, -y_n], axis=1), n=1, seed=0)
        assert found.r.min() >= -1
        assert found.r.max() <= 1


def test_by_default_99_999_permutations_and_seed_0() -> None:
    generator = np.random.default_rng(2)
    results = table(val_loss=generator.normal(size=9).tolist(), nc1__cdnv=generator.normal(size=9).tolist())
    found = permutation(results=results)
    assert "share of 99,999 random permutations of val_loss (seed 0), and of the order observed" in found.notes[0]
    assert found.records() == permutation(results, n=99_999, seed=0).records()
    assert permutation(results, n=1).records()[0]["p"] in (0.5, 1)


LOSS = [1.0, 2.0, 3.0, 4.0]


@pytest.mark.parametrize(
    ("columns", "against", "predicted"),
    [
        ({"nc1.cdnv": [3.0, 2.0, 1.0, 4.0]}, "val_loss", "r > 0"),  # above its limit, 0
        ({"nc1.cdnv": [3.0, 2.0, 0.0, 4.0]}, "val_loss", "r > 0"),  # or at it
        ({"nc3.self_duality": [0.5, 0.6, 0.1, 0.4]}, "val_loss", "r < 0"),  # below its limit, 1
        ({"nc3.self_duality": [0.5, 0.6, 1.0, 0.4]}, "val_loss", "r < 0"),
        ({"nc1.log_cdnv": [-3.0, -2.0, -1.0, 4.0]}, "val_loss", "r > 0"),  # its limit is −∞
        ({"nc2.interference": [0.5, 0.6, 0.1, 0.4]}, "val_loss", "r > 0"),  # above −1/(C−1)
        ({"nc2.interference": [-0.5, -0.6, -0.2, -0.4]}, "val_loss", "r < 0"),
        ({"nc2.interference": [0.5, -0.6, 0.1, 0.4]}, "val_loss", None),  # some above, some below
        ({"nc2.equiangularity": [0.5, 0.6, 0.1, 0.4]}, "val_loss", None),  # std over a mean that nears 0
        ({"nc2.norm": [0.5, 0.6, 0.1, 0.4]}, "val_loss", None),  # no limit
        ({"unheard_of": [0.5, 0.6, 0.1, 0.4]}, "val_loss", None),
        ({"nc1.cdnv": [3.0, 2.0, 1.0, 4.0]}, "val_accuracy=val_loss", "r > 0"),  # a label says nothing
        ({"nc1.cdnv": [3.0, 2.0, 1.0, 4.0], "val_accuracy": LOSS}, "x=val_accuracy", "r < 0"),  # higher is better
        ({"nc4.ncc_accuracy": [0.5, 0.6, 0.1, 0.4]}, "val_loss", "r < 0"),  # as declared: higher is better
        ({"nc1.cdnv": [3.0, 2.0, 1.0, 4.0]}, "x=val_loss", "r > 0"),
        ({"nc1.cdnv": [3.0, 2.0, 1.0, 4.0]}, "2*val_loss", None),
        ({"nc1.cdnv": [3.0, 2.0, 1.0, 4.0], "nc1.cdnv_galanti": LOSS}, "nc1.cdnv_galanti", "r > 0"),  # two ways
    ],
)
def test_the_predicted_sign(columns: dict[str, list[float | None]], against: str, predicted: str | None) -> None:
    found = permutation(table(val_loss=[*LOSS], **columns), columns=list(columns)[:1], against=against)
    assert found.records()[0]["predicted"] == predicted
    assert any("no sign is predicted" in note for note in found.notes) == (predicted is None)


@pytest.mark.parametrize(
    ("column", "one", "two"),
    [
        ("nc1.cdnv=log(nc1.cdnv)", "r > 0", None),  # in units of h, which differ between widths
        ("nc2.norm_std", "r > 0", None),
        ("nc2.equinormness", "r > 0", None),
        ("x=nc2.norm_cov", "r > 0", "r > 0"),  # without a unit
        ("nc4.agreement", "r < 0", "r < 0"),
        ("nc3.self_duality=nc2.norm_cov", "r > 0", "r > 0"),
        ("nc2.norm_cov=2*nc2.norm_cov", None, None),
        ("nc3.self_duality=sims_mean", "r < 0", "r < 0"),  # the paper's formula
    ],
)
def test_the_expression_is_judged_and_units_of_h_only_in_one_width(column, one, two) -> None:
    values = [0.4, 0.3, 0.1, 0.2, 0.35, 0.15]
    names = ("nc1.cdnv", "nc2.norm_std", "nc2.equinormness", "nc2.norm_cov", "nc4.agreement", "sims_mean")
    frame = pd.DataFrame({"val_loss": range(6), "dim": 8, "classes": 9, **dict.fromkeys(names, values)})
    mixed = Results.from_frame(frame.assign(dim=[8, 8, 8, 16, 16, 16]))
    for results, within, sign in ((Results.from_frame(frame), None, one), (mixed, None, two), (mixed, "dim", one)):
        for analysis in (permutation, correlation):
            assert analysis(results, columns=[column], within=within).records()[0]["predicted"] == sign


def test_a_limit_of_c_and_d_needs_them_in_the_table(tmp_path: Path) -> None:
    path = tmp_path / "theirs.csv"
    path.write_text("val_loss,nc2.interference\n1,0.1\n2,0.2\n3,0.4\n", encoding="utf-8")
    assert permutation(Results.read(path)).records()[0]["predicted"] is None


def test_a_column_with_a_text_is_left_out_with_its_cell() -> None:
    cells = {"nc1.cdnv": ["1.0", "n/a?", "2.0", "4.0"], "nc2.norm": [3.0, 1.0, 2.0, 4.0]}
    results = Results.from_frame(pd.DataFrame({"val_loss": [*LOSS], **cells}))
    assert "not tested: nc1.cdnv (it holds 'n/a?' in row 2)" in permutation(results).notes


@pytest.mark.parametrize("analysis", [permutation, scaling, correlation])
def test_two_columns_of_one_label_are_refused(analysis: Callable[..., Table]) -> None:
    cells = {"nc1.cdnv": [1.0, 3.0, 2.0, 4.0], "nc2.norm": [3.0, 1.0, 2.0, 4.0]}
    results = Results.from_frame(pd.DataFrame({"width": [1, 2, 3, 4], "val_loss": [*LOSS], **cells}))
    with pytest.raises(UsageError, match=r"two columns have the label 'x': nc1\.cdnv and nc2\.norm"):
        analysis(results, columns=["x=nc1.cdnv,x=nc2.norm"])


def test_by_default_all_measurements_that_vary() -> None:
    results = table(
        val_loss=[*LOSS],
        val_accuracy=[0.5, 0.4, 0.3, 0.2],
        perplexity=[2.0, 3.0, 4.0, 5.0],
        n_params=[1, 2, 3, 4],
        nc1__cdnv=[1.0, 3.0, 2.0, 4.0],
        nc2__norm=[3.0, 3.0, 3.0, 3.0],
        nc1__covariance_ratio=[None] * 4,
        nc1__log_cdnv=[1.0, -math.inf, 2.0, 3.0],
        unheard_of=[1.0, 3.0, 2.0, 4.0],
    )
    found = permutation(results)
    assert [row["column"] for row in found.records()] == ["log(nc1.cdnv)", "nc1.cdnv"]  # positive, over decades
    assert (found.records()[1]["r"], found.records()[1]["R2"]) == pytest.approx((0.8, 0.64))
    assert "not tested: nc1.covariance_ratio (null), nc1.log_cdnv (not finite), nc2.norm (constant)" in found.notes
    assert "all 24 orders of val_loss (4!)" in " ".join(found.notes)
    assert found.title == "Permutation test against val_loss, 4 rows"


def test_rows_with_a_missing_value_are_left_out_of_all_columns() -> None:
    results = table(
        val_loss=[1.0, 2.0, 3.0, 4.0, None],
        nc1__cdnv=[1.0, 3.0, 2.0, 4.0, 5.0],
        nc4__agreement=[0.9, None, 0.7, 0.5, 0.4],
    )
    found = permutation(results, columns=["nc1.cdnv", "nc4.agreement"])
    assert found.notes[0] == "2 rows left out for missing values: val_loss in 1, nc4.agreement in 1"
    found_alone = permutation(results)  # a column that nobody named costs no row
    assert "not tested: nc4.agreement (null in 1 row)" in found_alone.notes
    assert found_alone.title.endswith("4 rows")
    (r,) = [each["r"] for each in found.records() if each["column"] == "nc1.cdnv"]
    assert r == pytest.approx(np.corrcoef([1, 3, 4], [1, 2, 4])[0, 1])
    assert permutation(results, columns=["nc1.cdnv"]).title.endswith("4 rows")


def test_the_same_columns_by_label_expression_or_text() -> None:
    results = table(val_loss=[*LOSS], a=[1.0, 3.0, 2.0, 5.0], b__c=[2.0, 2.0, 3.0, 3.0])
    found = permutation(results, columns="a/b.c, nc1.cdnv = a/b.c", where="model=m*")
    first, second = found.records()
    assert (first.pop("column"), second.pop("column")) == ("a/b.c", "nc1.cdnv")
    assert (first.pop("predicted"), second.pop("predicted")) == (None, None)
    assert (first.pop("agrees"), second.pop("agrees")) == (None, None)
    assert first == second


def test_what_cannot_be_tested() -> None:
    results = table(val_loss=[*LOSS], nc1__cdnv=[1.0, 3.0, 2.0, 4.0], nc2__norm=[3.0] * 4, nc4__kappa=[None] * 4)
    with pytest.raises(UsageError, match=r"no column is called 'val_los'; did you mean val_loss\?"):
        permutation(results, against="val_los")
    with pytest.raises(UsageError, match=r"did you mean nc1\.cdnv\?"):
        permutation(results, columns=["nc1.cdvn"])
    with pytest.raises(UsageError, match="'model' is not of numbers"):
        permutation(results, columns=["model"])
    with pytest.raises(UsageError, match="names no column"):
        permutation(results, columns=[","])
    with pytest.raises(UsageError, match="--n must be at least 1"):
        permutation(results, n=0)
    with pytest.raises(UsageError, match="--seed must be at least 0"):
        permutation(results, seed=-1)
    with pytest.raises(CollapseError, match=r"nc2\.norm is constant, 3 in all 4 rows"):
        permutation(results, columns=["nc2.norm"])
    with pytest.raises(CollapseError, match=r"3\*val_loss/val_loss is constant"):
        permutation(results, columns=["3*val_loss/val_loss"])
    with pytest.raises(CollapseError, match=r"nc2\.norm is constant"):
        permutation(results, against="nc2.norm")
    with pytest.raises(CollapseError, match=r"only 2 of 4 rows to correlate \(2 of 4 rows, with model=m\[01\]\).*3"):
        permutation(results, where="model=m[01]")
    with pytest.raises(CollapseError, match=r"only 0 of 4 rows .*4 rows left out for missing values: nc4\.kappa in 4"):
        permutation(results, columns=["nc4.kappa"])
    with pytest.raises(CollapseError, match=r"only 0 rows to correlate"):
        permutation(Results(), against="classes", columns=["dim"])
    with pytest.raises(CollapseError, match=r"no known measurement; name columns .* --columns"):
        permutation(table(val_loss=[*LOSS], other=[*LOSS]))
    with pytest.raises(CollapseError, match=r"not tested: nc2\.norm \(constant\)"):
        permutation(table(val_loss=[*LOSS], nc2__norm=[3.0] * 4))
    with pytest.raises(CollapseError, match=r"against val_loss: not tested: nc2\.norm \(constant\)"):
        permutation(table(val_loss=[*LOSS], nc2__norm=[3.0] * 4), where="model=m*")


@pytest.mark.parametrize(
    ("values", "constant"),
    [
        ([0.0, 0.0, 0.0, 0.0], True),
        ([1.0, 1.0, 1.0, 1 - 8 * 2.0**-52], True),
        ([1.0, 1.0, 1.0, 1 - 8.5 * 2.0**-52], False),
        ([1e-20, 3e-20, 2e-20, 4e-20], False),
        ([1e20, 1e20 - 2**14, 1e20, 1e20], True),
    ],
)
def test_a_column_is_constant_to_rounding(values: list[float], constant: bool) -> None:
    results = table(val_loss=[*LOSS], a=values)
    if constant:
        with pytest.raises(CollapseError, match=r"a is constant, .* in all 4 rows"):
            permutation(results, columns=["a"])
    else:
        assert permutation(results, columns=["a"]).records()[0]["r"] is not None


def test_columns_of_a_plugin_that_is_not_loaded_are_named_first() -> None:
    rows = [
        Row("m", None, "text", "", 1, 9, 4, 99, {"val_loss": loss, "mine.norm": 2 * loss}) for loss in (1.0, 2.0, 4.0)
    ]
    with pytest.raises(CollapseError) as caught:
        permutation(Results(rows))
    assert "no known measurement; name columns or expressions with --columns; it has mine.norm, " in str(caught.value)
    assert str(caught.value).endswith("; if mine.norm is a measurement of a plugin, name that with -p")


def test_more_permutations_than_memory_holds_are_refused() -> None:
    losses = [float(i) for i in range(20)]
    with pytest.raises(UsageError, match="memory than there is room for: with 1 column give at most 268,435,456"):
        permutation(table(val_loss=losses, **{"nc1.cdnv": losses}), n=10**11)
    few = permutation(table(val_loss=losses[:4], **{"nc1.cdnv": losses[:4]}), n=10**11)  # all 24 orders
    assert few.records()[0]["p"] == pytest.approx(2 / 24)


def test_as_many_permutations_as_memory_holds_are_done(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("collapse_analyses.permutation._MOST", 60)
    losses = [float(i) for i in range(20)]
    results = table(val_loss=losses, nc1__cdnv=losses, nc2__norm=losses)
    assert "share of 30 random permutations" in permutation(results, n=30).notes[0]
    with pytest.raises(UsageError, match="with 2 columns give at most 30"):
        permutation(results, n=31)


def test_rows_of_one_store_are_noted() -> None:
    def rows(stores: str) -> Results:
        return Results(
            Row(store, None, "text", store, 1, 9, 4, 99, {"val_loss": float(i), "nc1.cdnv": float(i)})
            for i, store in enumerate(stores)
        )

    assert "2 rows repeat the store of another row and count as models of their own" in permutation(rows("abab")).notes
    assert not [note for note in permutation(rows("abcd")).notes if "repeat" in note]


def test_rows_of_one_store_are_noted_in_a_table_of_nothing_else(tmp_path: Path) -> None:
    path = tmp_path / "theirs.csv"
    path.write_text("store,min_count\na,1\na,1\nb,2\nc,4\n", encoding="utf-8")
    found = permutation(Results.read(path), against="min_count", columns=["min_count**2"])
    assert any(note.startswith("1 row repeats the store") for note in found.notes)


def test_the_command(tmp_path: Path, run: Callable[..., subprocess.CompletedProcess[str]]) -> None:
    path = tmp_path / "results.csv"
    table(val_loss=[*LOSS, 5.0], nc1__cdnv=[1.0, 3.0, 2.0, 4.0, 9.0]).write(path)
    words = ["analyze", "permutation", path, "--where", "model=m[0-3]", "--columns", "nc1.cdnv,x=nc1.cdnv/val_loss"]
    made = json.loads(run(*words, "--json", "--n", 10, "--seed", 1).stdout)
    want = permutation(
        Results.read(path), columns=["nc1.cdnv", "x=nc1.cdnv/val_loss"], where="model=m[0-3]", n=10, seed=1
    )
    assert made == {"title": want.title, "rows": want.records(), "notes": want.notes}
    shown = run(*words).stdout
    assert "Permutation test against val_loss, 4 rows" in shown
    assert "r > 0" in shown
    assert "p is exact" in shown


@pytest.mark.parametrize(
    ("words", "code", "says"),
    [
        (["permutation", "absent.csv"], 1, "there is no results file absent.csv"),
        (["permutatoin", "absent.csv"], 2, "did you mean permutation?"),
        (["permutation", "{table}", "--against", "val_los"], 2, "did you mean val_loss?"),
        (["permutation", "{table}", "--columns", "1/zero"], 1, "1/zero is inf in row 1 (m0) (zero = 0)"),
    ],
)
def test_bad_input_to_the_command(
    words: list[str], code: int, says: str, tmp_path: Path, run: Callable[..., subprocess.CompletedProcess[str]]
) -> None:
    path = tmp_path / "results.csv"
    table(val_loss=[*LOSS], nc1__cdnv=[1.0, 3.0, 2.0, 4.0], zero=[0.0, 1.0, 2.0, 3.0]).write(path)
    done = run("analyze", *[word.replace("{table}", str(path)) for word in words], ok=False)
    assert done.returncode == code
    assert says in done.stderr
    assert done.stdout == ""


GUEST = '''
from __future__ import annotations

from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from collapse import Results

from collapse import Table, analysis


@analysis("guest")
def guest(
    results: Results, *, often: int, how: Literal["fast", "well"] = "well", names: list[str] = (), dry: bool = False
):
    """Says what it was given.

    Args:
        often: How often,
            at most.
    """
    return Table("guest", ["often", "how", "names", "dry", "rows"], [[often, how, list(names), dry, len(results)]])


@analysis("odd")
def odd(results: Results, *, what: dict):
    """Cannot become a command."""
'''


def test_an_option_that_an_analysis_does_not_take_is_told_with_near_names() -> None:
    with pytest.raises(UsageError, match=r"permutation takes no option 'column'; did you mean columns\?"):
        collapse.permutation(table(val_loss=[*LOSS]), column=["val_loss"])


def test_a_guests_analysis_is_a_command(tmp_path: Path, run: Callable[..., subprocess.CompletedProcess[str]]) -> None:
    plugin, path = tmp_path / "guest.py", tmp_path / "results.csv"
    plugin.write_text(GUEST, encoding="utf-8")
    table(val_loss=[*LOSS]).write(path)
    listed = run("-p", plugin, "analyze", "--help").stdout
    assert "guest" in listed
    assert "permutation" in listed
    said = run("-p", plugin, "analyze", "guest", "--help").stdout
    assert "How often, at most." in said
    assert "--dry / --no-dry" in said
    assert "[fast|well]" in said
    words = ["--often", 3, "--names", "a", "--names", "b", "--dry", "--json"]
    made = json.loads(run("-p", plugin, "analyze", "guest", path, *words).stdout)
    assert made["rows"] == [{"often": 3, "how": "well", "names": ["a", "b"], "dry": True, "rows": 4}]
    failed = run("-p", plugin, "analyze", "odd", path, "--what", "x", ok=False)
    assert failed.returncode == 1
    assert "parameter what cannot become an option" in failed.stderr


def test_a_prefix_leaves_out_what_cannot_be_tested_and_a_name_does_not() -> None:
    results = table(
        val_loss=[*LOSS],
        nc1__cdnv=[0.1, 0.3, 0.2, 0.4],
        nc1__covariance_ratio=[None] * 4,
        nc1__trace_ratio=[3.0] * 4,
        nc2__norm=[1.0, 2.0, 4.0, 3.0],
    )
    made = permutation(results, columns="NC1, nc2.norm")
    assert [row[0] for row in made.rows] == ["nc1.cdnv", "nc2.norm"]
    assert "not tested: nc1.covariance_ratio (null), nc1.trace_ratio (constant)" in made.notes
    with pytest.raises(CollapseError, match=r"nc1\.trace_ratio is constant"):
        permutation(results, columns="nc1,nc1.trace_ratio")


def test_columns_that_are_no_texts(tmp_path):
    table(val_loss=[*LOSS]).write(tmp_path / "r.csv")
    for wrong in ("5", "[5]"):
        code = f"import collapse; collapse.permutation('r.csv', columns={wrong})"
        done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True)
        assert "UsageError: columns must be a text or a list of texts, or None; there is a " in done.stderr
