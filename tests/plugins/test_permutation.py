"""The permutation test: against the published Table 1, brute force, numpy and scipy; and its command."""

import json
import math
import subprocess
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
from collapse import CollapseError, Results, Row
from collapse.errors import UsageError
from collapse.measurement.permuting import unit
from collapse_analyses.correlation import correlation
from collapse_analyses.fits import Floats
from collapse_analyses.permutation import permutation, shuffle


def table(*, classes: int = 9, dim: int = 4, **columns: list[float | None]) -> Results:
    """Results with these measurement columns (``__`` in a name stands for a dot)."""
    names = [name.replace("__", ".") for name in columns]
    rows = zip(*columns.values(), strict=True)
    return Results(
        Row(f"m{i}", None, "text", "", 1, classes, dim, 99, dict(zip(names, row, strict=True)))
        for i, row in enumerate(rows)
    )


def brute_force(y_n: Floats, x_nk: Floats) -> tuple[Floats, Floats]:
    """p and max-T p over all orders of y, from the definitions."""
    observed = np.array([abs(np.corrcoef(y_n, x)[0, 1]) for x in x_nk.T])
    every = [[abs(np.corrcoef(order, x)[0, 1]) for x in x_nk.T] for order in permutations(y_n)]
    null = np.array(every)
    p = (null >= observed - 1e-9).mean(axis=0)
    return p, (null.max(axis=1)[:, None] >= observed - 1e-9).mean(axis=0)


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


def test_a_correlation_of_nothing_ties_with_every_other() -> None:
    y_n, x_nk = np.array([0.1, 0.2, 0.3]), np.array([[0.1], [0.3], [0.1]])
    assert shuffle(y_n, x_nk, n=6, seed=0).p.tolist() == [1.0]  # r is 1e-16 or so, not exactly 0


def test_random_permutations_are_scipys() -> None:
    generator = np.random.default_rng(7)
    y_n, x_nk = generator.normal(size=15), generator.normal(size=(15, 3))

    def statistic(y: Floats, axis: int) -> Floats:
        return np.abs(unit(y.T).T @ unit(x_nk))

    options = {"permutation_type": "pairings", "alternative": "greater", "vectorized": True, "axis": -1}
    theirs = permutation_test((y_n,), statistic, n_resamples=500, rng=np.random.default_rng(3), **options)
    found = shuffle(y_n, x_nk, n=500, seed=3)
    np.testing.assert_array_equal(found.p, theirs.pvalue)
    largest = theirs.null_distribution.max(axis=1)
    np.testing.assert_allclose(
        found.max_t_p, [(np.count_nonzero(largest >= each) + 1) / 501 for each in theirs.statistic]
    )


def test_extreme_magnitudes() -> None:
    y_n = np.array([1.0, 2.0, 3.0, 5.0])
    x_nk = np.stack([y_n * 1e300, y_n * 1e-300, 1e8 + y_n * 1e-3], axis=1)
    np.testing.assert_allclose(shuffle(y_n=y_n, x_nk=x_nk, n=24, seed=0).r, 1, atol=1e-9)


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
    ],
)
def test_the_expression_is_judged_and_units_of_h_only_in_one_width(column, one, two) -> None:
    values = [0.4, 0.3, 0.1, 0.2, 0.35, 0.15]
    names = ("nc1.cdnv", "nc2.norm_std", "nc2.equinormness", "nc2.norm_cov", "nc4.agreement")
    frame = pd.DataFrame({"val_loss": range(6), "dim": 8, "classes": 9, **dict.fromkeys(names, values)})
    mixed = Results.from_frame(frame.assign(dim=[8, 8, 8, 16, 16, 16]))
    for results, within, sign in ((Results.from_frame(frame), None, one), (mixed, None, two), (mixed, "dim", one)):
        for analysis in (permutation, correlation):
            assert analysis(results, columns=[column], within=within).records()[0]["predicted"] == sign


def test_a_column_with_a_text_is_left_out_with_its_cell() -> None:
    cells = {"nc1.cdnv": ["1.0", "n/a?", "2.0", "4.0"], "nc2.norm": [3.0, 1.0, 2.0, 4.0]}
    results = Results.from_frame(pd.DataFrame({"val_loss": [*LOSS], **cells}))
    assert "not tested: nc1.cdnv (it holds 'n/a?' in row 2)" in permutation(results).notes


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
    assert "all 24 orders of val_loss were" in " ".join(found.notes)
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
    with pytest.raises(CollapseError, match=r"nc2\.norm is constant, 3 in all 4 rows"):
        permutation(results, columns=["nc2.norm"])
    with pytest.raises(CollapseError, match=r"3\*val_loss/val_loss is constant"):
        permutation(results, columns=["3*val_loss/val_loss"])
    with pytest.raises(CollapseError, match=r"nc2\.norm is constant"):
        permutation(results, against="nc2.norm")
    with pytest.raises(CollapseError, match=r"only 2 rows to correlate \(2 of 4 rows, with model=m\[01\]\).*3"):
        permutation(results, where="model=m[01]")
    with pytest.raises(CollapseError, match=r"only 0 rows .*4 rows left out for missing values: nc4\.kappa in 4"):
        permutation(results, columns=["nc4.kappa"])
    with pytest.raises(CollapseError, match=r"only 0 rows to correlate"):
        permutation(Results(), against="classes", columns=["dim"])
    with pytest.raises(CollapseError, match=r"no known measurement; name columns .* --columns"):
        permutation(table(val_loss=[*LOSS], other=[*LOSS]))
    with pytest.raises(CollapseError, match=r"not tested: nc2\.norm \(constant\)"):
        permutation(table(val_loss=[*LOSS], nc2__norm=[3.0] * 4))
    with pytest.raises(CollapseError, match=r"against val_loss: not tested: nc2\.norm \(constant\)"):
        permutation(table(val_loss=[*LOSS], nc2__norm=[3.0] * 4), where="model=m*")


def test_rows_of_one_store_are_noted() -> None:
    def rows(stores: str) -> Results:
        return Results(
            Row(store, None, "text", store, 1, 9, 4, 99, {"val_loss": float(i), "nc1.cdnv": float(i)})
            for i, store in enumerate(stores)
        )

    assert "2 rows of a store that another row has: they count as models" in permutation(rows("abab")).notes
    assert not [note for note in permutation(rows("abcd")).notes if "of a store" in note]


def test_the_command(tmp_path: Path, run: Callable[..., subprocess.CompletedProcess[str]]) -> None:
    path = tmp_path / "results.csv"
    table(val_loss=[*LOSS, 5.0], nc1__cdnv=[1.0, 3.0, 2.0, 4.0, 9.0]).write(path)
    words = ["analyze", "permutation", path, "--where", "model=m[0-3]", "--columns", "nc1.cdnv,x=nc1.cdnv/val_loss"]
    made = json.loads(run(*words, "--json", "--n", 10).stdout)
    want = permutation(Results.read(path), columns=["nc1.cdnv", "x=nc1.cdnv/val_loss"], where="model=m[0-3]", n=10)
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
