"""The permutation test: compared with all orders, with SciPy and with the published Table 1; within groups."""

import itertools
import json

import numpy as np
import pandas as pd
import pytest
from scipy.stats import permutation_test

import collapse
from collapse import CollapseError, Results
from collapse.measurement.row_permutations import unit
from collapse_analyses.permutation import permutation, shuffle

LOSS = [1.0, 2.0, 3.0, 4.0]


def table(**columns):
    """Results with these columns (``__`` in a name stands for a dot)."""
    frame = pd.DataFrame({name.replace("__", "."): values for name, values in columns.items()})
    frame.insert(0, "model", [f"m{i}" for i in range(len(frame))])
    return Results.from_frame(frame.assign(classes=9, dim=4))


def frame_of(rows=24, seed=0):
    draw = np.random.default_rng(seed)
    frame = pd.DataFrame(draw.normal(size=(rows, 3)), columns=["val_loss", "a", "b"])
    return frame.assign(g=np.arange(rows) % 2, h=np.arange(rows) // 8, gh=[f"{i % 2}{i // 8}" for i in range(rows)])


def every_order(y, x, groups):
    """|r| of differences from the group means, for each order within the groups; the first is the observed one."""
    places, r = [np.flatnonzero(groups == g) for g in np.unique(groups)], []
    for orders in itertools.product(*(itertools.permutations(place) for place in places)):
        permuted = y.copy()
        for place, order in zip(places, orders, strict=True):
            permuted[place] = y[list(order)]
        residuals = [v - np.array([v[groups == g].mean() for g in groups]) for v in (permuted, x)]
        r.append(abs(np.corrcoef(*residuals)[0, 1]))
    return np.array(r)


@pytest.mark.parametrize("groups", [[0] * 6, [0, 1, 0, 1, 0, 1, 2, 2]])
def test_every_order_is_enumerated(groups):
    draw, groups_n = np.random.default_rng(0), np.array(groups)
    y_n = draw.integers(0, 4, len(groups)) + groups_n * 1.0
    x_nk = draw.integers(0, 5, (len(groups), 2)) - 3.0 * groups_n[:, None]
    null = np.stack([every_order(y_n, x, groups_n) for x in x_nk.T], axis=1)
    found = shuffle(y_n, x_nk, n=len(null), groups_n=groups_n)
    assert (found.exact, found.permutations) == (True, len(null))
    np.testing.assert_allclose(found.p, (null >= null[0] - 1e-9).mean(axis=0))
    np.testing.assert_allclose(found.max_t_p, (null.max(axis=1)[:, None] >= null[0] - 1e-9).mean(axis=0))
    assert not shuffle(y_n, x_nk, n=len(null) - 1, groups_n=groups_n).exact


def test_random_permutations_are_scipys():
    generator = np.random.default_rng(7)
    y_n, x_nk = generator.normal(size=15), generator.normal(size=(15, 3))

    def statistic(y, axis):
        return np.abs(unit(y.T).T @ unit(x_nk))

    options = {"permutation_type": "pairings", "alternative": "greater", "vectorized": True, "axis": -1}
    theirs = permutation_test((y_n,), statistic, n_resamples=500, rng=np.random.default_rng(0), **options)
    found = shuffle(y_n, x_nk, n=500)
    np.testing.assert_array_equal(found.p, theirs.pvalue)
    largest = theirs.null_distribution.max(axis=1)
    np.testing.assert_allclose(found.max_t_p, [(np.sum(largest >= each) + 1) / 501 for each in theirs.statistic])


def test_extreme_magnitudes_and_ties_of_rounding():
    y_n = np.array([1.0, 2.0, 3.0, 5.0])
    x_nk = np.stack([y_n * 1e300, y_n * 1e-300, 1e8 + y_n * 1e-3], axis=1)
    np.testing.assert_allclose(shuffle(y_n, x_nk, n=24).r, 1, atol=1e-9)
    nothing = shuffle(np.array([0.1, 0.2, 0.3]), np.array([[0.1], [0.3], [0.1]]), n=6)
    assert nothing.p.tolist() == [1.0]  # r is 1e-16 or so, not exactly 0


@pytest.mark.parametrize(
    ("name", "values", "against", "sign"),
    [
        ("nc1.cdnv", [3.0, 2.0, 0.0, 4.0], "val_loss", "r > 0"),  # above its limit, 0, or at it
        ("nc3.self_duality", [0.5, 0.6, 0.1, 0.4], "val_loss", "r < 0"),  # below its limit, 1
        ("nc1.log_cdnv", [-3.0, -2.0, -1.0, 4.0], "val_loss", "r > 0"),  # its limit is −∞
        ("nc2.interference", [0.5, 0.6, 0.1, 0.4], "val_loss", "r > 0"),  # above −1/(C−1)
        ("nc2.interference", [0.5, -0.6, 0.1, 0.4], "val_loss", None),  # some above, some below
        ("nc2.norm", [0.5, 0.6, 0.1, 0.4], "val_loss", None),  # no limit
        ("unheard_of", [0.5, 0.6, 0.1, 0.4], "val_loss", None),
        ("nc1.cdnv", [3.0, 2.0, 1.0, 4.0], "val_accuracy=val_loss", "r > 0"),  # a label says nothing
        ("nc1.cdnv", [3.0, 2.0, 1.0, 4.0], "x=val_accuracy", "r < 0"),  # higher is better
        ("nc1.cdnv", [3.0, 2.0, 1.0, 4.0], "2*val_loss", None),
    ],
)
def test_the_predicted_sign(name, values, against, sign):
    results = table(val_loss=LOSS, val_accuracy=LOSS, **{name: values})
    assert permutation(results, columns=[name], against=against).records()[0]["predicted"] == sign


def test_units_of_h_have_a_sign_only_in_one_width():
    values = [0.4, 0.3, 0.1, 0.2, 0.35, 0.15]
    signs = {"log(nc1.cdnv)": None, "nc2.norm_std": None, "nc2.norm_cov": "r > 0", "nc4.agreement": "r < 0"}
    names = ("nc1.cdnv", "nc2.norm_std", "nc2.norm_cov", "nc4.agreement")
    frame = pd.DataFrame({"val_loss": range(6), "dim": 8, "classes": 9, **dict.fromkeys(names, values)})
    mixed = frame.assign(dim=[8, 8, 8, 16, 16, 16])
    for column, sign in signs.items():
        for given, within in ((frame, None), (mixed, None), (mixed, "dim")):
            (row,) = permutation(Results.from_frame(given), columns=[column], within=within, n=9).records()
            assert row["predicted"] == (sign if given is mixed and within is None else sign or "r > 0")


def test_by_default_all_measurements_that_can_be_tested():
    results = table(
        val_loss=LOSS,
        nc1__cdnv=[1.0, 3.0, 2.0, 4.0],
        nc1__covariance_ratio=[None] * 4,
        nc1__log_cdnv=[1.0, -np.inf, 2.0, 3.0],
        nc1__trace_ratio=["1.0", "n/a?", "2.0", "4.0"],
        nc2__norm=[3.0] * 4,
        nc4__agreement=[0.9, None, 0.7, 0.5],
        unheard_of=[1.0, 3.0, 2.0, 4.0],
    )
    found = permutation(results)
    assert [row["column"] for row in found.records()] == ["log(nc1.cdnv)", "nc1.cdnv"]
    (note,) = [note for note in found.notes if note.startswith("not tested (constant, or without a number")]
    assert all(f".{name}" in note for name in ("covariance_ratio", "log_cdnv", "trace_ratio", "norm", "agreement"))
    assert "p is exact: all 24 orders of val_loss were used" in found.notes
    prefix = permutation(results, columns="NC1, nc4.agreement")
    assert [row["column"] for row in prefix.records()] == ["nc4.agreement", "nc1.cdnv"]
    assert "1 row excluded for missing values: nc4.agreement in 1" in prefix.notes  # it was named


def test_groups_are_of_equal_values_of_all_columns_and_rows_without_one_are_left_out():
    results = Results.from_frame(frame_of())
    one = permutation(results, columns="a,b", within="gh", n=500)
    several = permutation(results, columns="a,b", within="g,h", n=500)
    assert several.rows == one.rows
    assert several.title.endswith("24 rows, within equal g and h")
    frame = frame_of(8).assign(g=["a", "a", "a", "b", "b", None, np.nan, ""])
    found, complete = (permutation(Results.from_frame(each), columns="a", within="g") for each in (frame, frame[:5]))
    assert found.rows == complete.rows
    assert "3 rows excluded for missing values: g in 3" in found.notes


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"against": "val_los"}, r"no column is called 'val_los'; did you mean val_loss\?"),
        ({"columns": [","]}, "no column can be tested against val_loss"),
        ({"columns": ["nc2.norm"]}, r"no column can be tested against val_loss \(constant, .*: nc2\.norm\)"),
        ({"where": "model=m[01]"}, r"only 2 rows to compare \(2 of 4 rows, with model=m\[01\]\).*3"),
        ({"within": "model"}, "--within model puts every row into a group of its own"),
        ({"within": "dim", "against": "classes"}, "classes is constant among rows of equal dim"),
        ({"column": "nc1"}, "has no option 'column'; did you mean columns"),
    ],
)
def test_what_cannot_be_tested(options, said):
    results = table(val_loss=LOSS, nc1__cdnv=[1.0, 3.0, 2.0, 4.0], nc2__norm=[3.0] * 4)
    with pytest.raises(CollapseError, match=said):
        collapse.analyze("permutation", results, **options)


def test_p_that_no_permutation_reached_is_a_bound():
    frame = frame_of()
    frame["b"] = frame["val_loss"] + 1e-3 * frame["b"]
    made = permutation(Results.from_frame(frame), columns="a,b", n=999)
    first, second = made.records()
    assert (first["column"], first["p"], first["p_is_bound"], first["max_t_p_is_bound"]) == ("b", 0.001, True, True)
    assert (second["column"], second["p_is_bound"]) == ("a", False)
    assert second["p_error"] == pytest.approx(np.sqrt(second["p"] * (1 - second["p"]) / 999))
    assert made.for_people().rows[0][4:6] == ["≤ 0.003", "≤ 0.003"]


@pytest.mark.parametrize("within", [None, "g"])
def test_r_without_one_row_is_that_of_the_other_rows(within):
    frame, others = frame_of(), []
    (row,) = permutation(Results.from_frame(frame), columns="a", within=within, n=10).records()
    for at in range(len(frame)):
        rest = frame.drop(index=at)
        y, x = rest["val_loss"], rest["a"]
        if within:
            y, x = (each - each.groupby(rest["g"]).transform("mean") for each in (y, x))
        others.append(np.corrcoef(y, x)[0, 1])
    assert (row["r_without_one_low"], row["r_without_one_high"]) == pytest.approx((min(others), max(others)))


def test_what_compared_models_differ_in_is_said():
    sizes = [f"{depth}x{width}" for depth in (1, 2) for width in (16, 32)]
    names = [f"{size}_02d{seed}@{at}" for size in sizes for seed in ("01", "02") for at in "01"]
    results = Results.from_frame(frame_of(16).assign(model=names))
    for within, more in ((None, ["architecture"]), ("architecture", ["recipe"]), ("architecture,recipe", [])):
        notes = permutation(results, columns="a", within=within, n=50).notes
        said = [note.partition(": see --within ")[2] for note in notes if "may drive both a column and" in note]
        assert said == [",".join(([within] if within else []) + more)] * len(more)


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

'''


def test_a_guests_analysis_is_a_command(tmp_path, run):
    plugin, path = tmp_path / "guest.py", tmp_path / "results.csv"
    plugin.write_text(GUEST, encoding="utf-8")
    table(val_loss=LOSS).write(path)
    said = run("-p", plugin, "analyze", "guest", "--help").stdout
    assert all(each in said for each in ("How often, at most.", "--dry / --no-dry", "[fast|well]"))
    words = ["--often", 3, "--names", "a", "--names", "b", "--dry", "--json"]
    made = json.loads(run("-p", plugin, "analyze", "guest", path, *words).stdout)
    assert made["rows"] == [{"often": 3, "how": "well", "names": ["a", "b"], "dry": True, "rows": 4}]
