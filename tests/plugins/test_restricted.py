"""Restricted permutations: uniform p under the null in tables with strata; several columns; bounds; r without a row."""

import numpy as np
import pandas as pd
import pytest
from scipy.stats import kstest

import collapse
from collapse import Results
from collapse.errors import UsageError
from collapse_analyses.jackknife import without_each
from collapse_analyses.residuals import explained
from collapse_analyses.shuffling import shuffle, unit

TABLES, STRATA, ROWS, ORDERS = 1_000, 4, 6, 199


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
    with pytest.raises(UsageError, match="--within names no column"):
        collapse.permutation(results, columns="a", within=",")


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


def test_a_group_of_one_row_changes_nothing_when_it_is_left_out():
    groups = np.array([0, 0, 0, 0, 1])
    y, x = (unit(np.array(each), groups) for each in ([1.0, 2, 4, 3, 9], [2.0, 1, 3, 5, -9]))
    r, _ = without_each(x, y, explained(5, [groups], []))
    assert r[4] == pytest.approx(float(y @ x))


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


def test_the_alias_table_is_that_of_the_published_one():
    from collapse_analyses.paper_columns import FIGURE1, PAPER
    from collapse_zoo.published import MAY, OCTOBER

    def same(one):
        return one.replace(" ", "")

    for label, (formula, *_) in PAPER.items():
        assert same(MAY[label]) == same(formula)
    label = "gnc2.hyperspherical_uniformity"
    assert same(OCTOBER[label]) == same(FIGURE1[label][0])


def test_both_published_tables(shared):
    folder = shared / "data" / "published"
    for file, columns, agreement in (("lc-2024_05_18.csv", 7, 0.490278), ("lc-2024_10_24.csv", 5, 0.490278)):
        table = collapse.permutation(folder / file, columns="paper", where="model=02x0768_01d*", n=50)
        squared = {row["column"]: row["R2"] for row in table.records()}
        assert len(squared) == columns
        assert squared["nc4.agreement"] == pytest.approx(agreement, abs=1e-6)


def test_r_without_a_row_far_out_is_that_of_the_others():
    draw = np.random.default_rng(1)
    x, noise = draw.normal(size=(2, 12))
    y = -x + 0.3 * noise
    x[0], y[0] = 1e7, 1e7
    for groups in (None, np.zeros(12, dtype=np.int64)):
        low, *others = without_each(unit(x, groups), unit(y, groups))[0]
        assert low == pytest.approx(np.corrcoef(x[1:], y[1:])[0, 1], abs=1e-6)
        assert others == pytest.approx([1] * 11)
