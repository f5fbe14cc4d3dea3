"""Permuting within groups of equal value: against every order written out, and what cannot be permuted."""

import itertools

import numpy as np
import pandas as pd
import pytest

import collapse
from collapse.errors import CollapseError
from collapse_analyses.shuffling import shuffle


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


def test_within_is_advised_only_where_it_leaves_something_to_permute():
    found = collapse.permutation(table([1.0, 2.0, 3.0, 4.0], [1.0, 2.0, 4.0, 3.0], [16, 32, 48, 64]))
    assert any("exchangeable" in note for note in found.notes)
    assert not any("--within" in note for note in found.notes)


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
