"""Permuting within groups of equal value: against every order written out, uniform p under the null, and refusals."""

import itertools

import numpy as np
import pandas as pd
import pytest
from scipy.stats import kstest

import collapse
from collapse import Results
from collapse.errors import CollapseError, UsageError
from collapse_analyses.permutation import shuffle

TABLES, STRATA, ROWS, ORDERS = 1_000, 4, 6, 199


def table(losses, values, dims):
    rows = zip(losses, values, dims, strict=True)
    return collapse.Results(
        collapse.Row(f"m{i}", None, "", f"{i}", 1, 9, dim, 99, {"val_loss": loss, "nc1.cdnv": value})
        for i, (loss, value, dim) in enumerate(rows)
    )


def direct(y, x, groups):
    """p of |r| of what differs from the group's mean, over every order within the groups."""

    def r(y):
        residuals = [v - np.array([v[groups == g].mean() for g in groups]) for v in (y, x)]
        return abs(np.corrcoef(*residuals)[0, 1])

    places = [np.flatnonzero(groups == g) for g in np.unique(groups)]
    found = []
    for orders in itertools.product(*(itertools.permutations(place) for place in places)):
        permuted = y.copy()
        for place, order in zip(places, orders, strict=True):
            permuted[place] = y[list(order)]
        found.append(r(permuted))
    return np.mean(np.array(found) >= r(y) - 1e-12), len(found)


@pytest.mark.parametrize("seed", range(4))
def test_every_order_within_groups(seed):
    draw = np.random.default_rng(seed)
    groups = np.array([0, 1, 0, 1, 0, 1, 2, 2])
    y, x = draw.normal(size=8) + groups, draw.normal(size=8) - 3 * groups
    expected, orders = direct(y, x, groups)
    found = shuffle(y, x[:, None], n=1000, seed=0, groups_n=groups)
    assert (found.exact, found.permutations) == (True, orders)
    assert found.p[0] == pytest.approx(expected)
    some = shuffle(y, x[:, None], n=orders - 1, seed=0, groups_n=groups)
    assert not some.exact
    assert some.p[0] == pytest.approx(expected, abs=0.25)


def test_sizes_alone_make_no_correlation_within_sizes():
    draw = np.random.default_rng(0)
    dims = [16] * 6 + [64] * 6
    noise = draw.normal(size=(2, 12)) * 0.01
    results = table(np.array(dims) / 64 + noise[0], -np.array(dims) / 64 + noise[1], dims)
    plain, within = (collapse.permutation(results, within=each) for each in (None, "dim"))
    assert plain.records()[0]["p"] < 0.01 < 0.05 < within.records()[0]["p"]
    assert any("--within dim" in note for note in plain.notes)
    assert not any("--within dim" in note for note in within.notes)
    assert within.title.endswith("within equal dim")


@pytest.mark.parametrize(
    ("dims", "within", "said"),
    [
        ([1, 2, 3, 4], "dim", "every row has another dim"),
        ([1, 1, 2, 2], "dmi", "did you mean dim"),
        ([1, 1, 2, 2], "val_loss", "every row has another val_loss"),
    ],
)
def test_what_cannot_be_permuted(dims, within, said):
    with pytest.raises(CollapseError, match=said):
        collapse.permutation(table([1.0, 2.0, 3.0, 4.0], [1.0, 3.0, 2.0, 4.0], dims), within=within)


def test_columns_that_are_constant_within_groups():
    frame = pd.DataFrame({"loss": [1.0, 2.0, 3.0, 5.0], "a": [1.0, 1.0, 2.0, 2.0], "b": [1.0, 3.0, 2.0, 5.0]})
    frame["g"] = [0, 0, 1, 1]
    results = collapse.Results()
    results._frame = frame
    found = collapse.permutation(results, against="loss", columns="a,b", within="g")
    assert [each["column"] for each in found.records()] == ["b"]
    assert any(note.startswith("not tested: a (constant within equal g)") for note in found.notes)
    for against, columns in (("a", "b"), ("loss", "a")):
        with pytest.raises(CollapseError, match="constant within equal g"):
            collapse.permutation(results, against=against, columns=columns, within="g")


@pytest.mark.parametrize(
    "g", [[0.0, 0.0, 0.0, 1.0, 1.0, None, np.nan, None], ["a", "a", "a", "b", "b", None, np.nan, ""]]
)
def test_rows_without_a_value_of_the_column_are_left_out_and_counted(g):
    frame = pd.DataFrame(
        {"loss": [1.0, 2.0, 3.0, 5.0, 4.0, 9.0, 1.0, 7.0], "a": [1.0, 3.0, 2.0, 4.0, 2.5, 8.0, 9.0, 7.0]}
    )
    frame["g"] = g
    whole, complete = collapse.Results(), collapse.Results()
    whole._frame, complete._frame = frame, frame[:5]
    found, expected = (
        collapse.permutation(each, against="loss", columns="a", within="g") for each in (whole, complete)
    )
    assert found.rows == expected.rows
    assert "3 rows left out for missing values: g in 3" in found.notes
    assert found.title == expected.title


def simulated_p(tables, *, restricted):
    """p in tables whose strata differ in both columns, which have nothing to do with each other inside a stratum."""
    draw = np.random.default_rng(0)
    groups = np.repeat(np.arange(STRATA), ROWS)
    found = []
    for table in range(tables):
        level = 3 * draw.normal(size=STRATA)[groups]
        y, x = level + draw.normal(size=len(groups)), level + draw.normal(size=len(groups))
        made = shuffle(y, x[:, None], n=ORDERS, seed=table, groups_n=groups if restricted else None)
        found.append(made.p[0])
    return np.array(found)


def test_restricted_p_are_uniform_under_the_null_and_unrestricted_ones_are_not():
    restricted, free = simulated_p(TABLES, restricted=True), simulated_p(TABLES // 4, restricted=False)
    # p has the values 1/200, 2/200, …: spread evenly below them, they are uniform
    spread = restricted - np.random.default_rng(1).random(TABLES) / (ORDERS + 1)
    assert kstest(spread, "uniform").pvalue > 0.01
    assert abs((restricted <= 0.05).mean() - 0.05) < 4 * np.sqrt(0.05 * 0.95 / TABLES)
    assert (free <= 0.05).mean() > 0.5
    assert kstest(free, "uniform").pvalue < 1e-50


def frame_of(rows=24, seed=0):
    draw = np.random.default_rng(seed)
    frame = pd.DataFrame(draw.normal(size=(rows, 3)), columns=["val_loss", "a", "b"])
    return frame.assign(g=np.arange(rows) % 2, h=np.arange(rows) // 8, gh=[f"{i % 2}{i // 8}" for i in range(rows)])


def test_several_columns_are_groups_of_equal_values_of_all():
    results = Results.from_frame(frame_of())
    one = collapse.permutation(results, columns="a,b", within="gh", n=500)
    for within in ("g,h", ["g", "h"]):
        several = collapse.permutation(results, columns="a,b", within=within, n=500)
        assert several.rows == one.rows
    assert several.title.endswith("24 rows, within equal g and h")
    with pytest.raises(UsageError, match=r"every row has another g and val_loss"):
        collapse.permutation(results, columns="a", within="g,val_loss")
    with pytest.raises(UsageError, match=r"no column is called 'loss' \(--within\); did you mean val_loss"):
        collapse.permutation(results, columns="a", within="g,loss")


def test_p_that_no_permutation_reached_is_a_bound():
    frame = frame_of()
    frame["b"] = frame["val_loss"] + 1e-3 * frame["b"]
    table = collapse.permutation(Results.from_frame(frame), columns="a,b", n=999)
    first, second = table.records()
    assert (first["column"], first["p"], first["p_is_bound"], first["max_t_p_is_bound"]) == ("b", 0.001, True, True)
    assert (second["column"], second["p_is_bound"]) == ("a", False)
    assert table.for_people().rows[0][4:6] == ["≤ 0.003", "≤ 0.003"]
    assert any("fewer than 3/999 of all orders do (rule of three)" in note for note in table.notes)
    exact = collapse.permutation(Results.from_frame(frame[:5]), columns="b", n=999)
    assert exact.records()[0]["p_is_bound"] is False


@pytest.mark.parametrize("within", [None, "g"])
def test_r_without_one_row_is_that_of_the_other_rows(within):
    frame = frame_of()
    (row,) = collapse.permutation(Results.from_frame(frame), columns="a", within=within, n=10).records()
    others = []
    for at in range(len(frame)):
        rest = frame.drop(index=at)
        y, x = rest["val_loss"], rest["a"]
        if within:
            y, x = (each - each.groupby(rest["g"]).transform("mean") for each in (y, x))
        others.append(np.corrcoef(y, x)[0, 1])
    assert (row["r_without_one_low"], row["r_without_one_high"]) == pytest.approx((min(others), max(others)))
    assert row["r_low"] < row["r"] < row["r_high"]


def test_models_of_several_architectures_are_a_warning():
    names = [f"{depth}x{width}_01d" for depth in (1, 2) for width in (16, 32)] * 2
    frame = frame_of(8).assign(model=names)
    free = collapse.permutation(Results.from_frame(frame), columns="a", n=50)
    (note,) = [each for each in free.notes if "exchangeable" in each]
    assert "the models have 4 values of architecture" in note
    assert "--within architecture permutes models of equal architecture only" in note
    within = collapse.permutation(Results.from_frame(frame), columns="a", n=50, within="architecture")
    assert not [each for each in within.notes if "exchangeable" in each]
    coarse = collapse.permutation(Results.from_frame(frame), columns="a", n=50, within="depth")
    assert "models of different architecture are permuted within 2 groups" in " ".join(coarse.notes)


def test_the_seven_of_table_1_in_any_table():
    frame = frame_of(9)
    may = frame.assign(cdnv_mean=frame["a"] ** 2, sims_mean=frame["b"], sims_std=frame["a"])
    october = frame.assign(cdnv=frame["a"] ** 2, simcos_mean=frame["b"], simcos_var=frame["a"] ** 2)
    ours = frame.assign(**{"nc1.cdnv": frame["a"] ** 2, "nc3.self_duality": frame["b"]})
    for theirs, columns in ((may, 3), (october, 3), (ours, 2)):
        table = collapse.permutation(Results.from_frame(theirs), columns="paper", n=50)
        r = {row["column"]: row["r"] for row in table.records()}
        assert len(r) == columns
        assert r["nc1.cdnv"] == pytest.approx(np.corrcoef(frame["val_loss"], frame["a"] ** 2)[0, 1])
        assert any("nc4.agreement (not in the table)" in note for note in table.notes)
    with pytest.raises(collapse.CollapseError, match="no column to test against val_loss"):
        collapse.permutation(Results.from_frame(frame), columns="paper")


def test_both_published_tables(shared):
    folder = shared / "data" / "published"
    for file, columns, agreement in (("lc-2024_05_18.csv", 7, 0.490278), ("lc-2024_10_24.csv", 5, 0.490278)):
        table = collapse.permutation(folder / file, columns="paper", where="model=02x0768_01d*", n=50)
        squared = {row["column"]: row["R2"] for row in table.records()}
        assert len(squared) == columns
        assert squared["nc4.agreement"] == pytest.approx(agreement, abs=1e-6)
