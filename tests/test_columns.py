"""Column expressions and row filters of a results table."""

import math

import numpy as np
import pandas as pd
import pytest

from collapse.errors import CollapseError, UsageError
from collapse.measurement.columns import choose_rows, read_column

TABLE = pd.DataFrame(
    {
        "model": ["a@0", "a@1", "B[x]@0", "b@0"],
        "nc1.cdnv": [1.0, 2.0, 4.0, np.nan],
        "loss": [2, 4, 8, 16],
        "zero": [1.0, 0.0, 2.0, 3.0],
        "loss/zero": [7.0, 7.5, 8.0, 8.5],
        "a#2": [2.0, 4.0, 8.0, 16.0],
        "odd,name=x": [1.0, 2.0, 3.0, 5.0],
        "dim": [64.0, 64.0, 128.0, np.nan],
        "nothing": [None, None, None, None],
        "nullable": pd.array([1, None, 3, 4], dtype="Int64"),
    }
)


@pytest.mark.parametrize(
    ("text", "label", "values"),
    [
        ("loss", "loss", [2, 4, 8, 16]),
        ("nc1.cdnv / loss", "nc1.cdnv / loss", [0.5, 0.5, 0.5, math.nan]),
        ("nc2.norm = -(loss - 1)*2 + +3", "nc2.norm", [1, -3, -11, -27]),
        ("loss**0.5**2", "loss**0.5**2", [2**0.25, 4**0.25, 8**0.25, 2.0]),
        ("log(loss)/log(2)", "log(loss)/log(2)", [1, 2, 3, 4]),
        ("loss/zero", "loss/zero", [7, 7.5, 8, 8.5]),  # the exact name wins
        ("x=`a#2`/loss", "x", [1, 1, 1, 1]),
        ("odd,name=x", "odd,name=x", [1, 2, 3, 5]),
        ("nothing", "nothing", [math.nan] * 4),
        ("nullable*2", "nullable*2", [2, math.nan, 6, 8]),
        ("nc1.cdnv**0", "nc1.cdnv**0", [1, 1, 1, math.nan]),  # a missing value stays missing
    ],
)
def test_read_column(text, label, values):
    column = read_column(TABLE, text)
    assert column.label == label
    assert all(name in text for name in column.names)
    assert column.values.dtype == np.float64
    np.testing.assert_allclose(column.values, values, rtol=1e-15)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        *(
            (text, "norms_log_std/norms_log_mean")
            for text in ("loss +", "loss loss", "(loss", "x=loss**", "loss#2/zero")
        ),
        ("__import__(loss)", "is invalid"),
        ("1 + 9**9", "names no column"),
        ("loss/nc1.cdvn", r"no column is called 'nc1\.cdvn'; did you mean nc1\.cdnv\?"),
        ("model", "'model' must hold numbers: it holds 'a@0' in row 1"),
    ],
)
def test_what_cannot_be_read_is_refused(text, said):
    with pytest.raises(UsageError, match=said):
        read_column(TABLE, text)


def test_division_by_zero_names_the_row():
    with pytest.raises(CollapseError, match=r"1/zero is inf in row 2 \(a@1\): exclude such rows"):
        read_column(TABLE, "1/zero")
    with pytest.raises(CollapseError, match=r"row 2 \(a@1\)"):  # the row of the table, not of what a filter left
        read_column(choose_rows(TABLE, "model=*@1"), "1/zero")
    assert read_column(choose_rows(TABLE, "model=*@0"), "1/zero").values.tolist() == [1.0, 0.5, 1 / 3]


@pytest.mark.parametrize(
    ("where", "models"),
    [
        (None, ["a@0", "a@1", "B[x]@0", "b@0"]),
        ("model=b*", ["b@0"]),  # case matters
        ("model=[aB]*@0", ["a@0", "B[x]@0"]),
        ("model=B[x]@0", ["B[x]@0"]),  # the text itself, too
        (["model=*@0", "dim=64"], ["a@0"]),
        ("dim=", ["b@0"]),  # nothing there
        ("nc1.cdnv=[24]", ["a@1", "B[x]@0"]),
    ],
)
def test_choose_rows(where, models):
    assert choose_rows(TABLE, where)["model"].tolist() == models


@pytest.mark.parametrize(
    ("where", "said"),
    [
        ("model", "write column=glob"),
        ("modle=a*", r"no column is called 'modle' \(--where\); did you mean model\?"),
        ("model=c*", r"no row matches --where 'model=c\*': use a value of model: a@0, a@1, B\[x\]@0, b@0"),
        ("dim=65", r"use a value of dim: 64, 128, \(nothing\)"),
    ],
)
def test_filters_that_cannot_be(where, said):
    with pytest.raises(UsageError, match=said):
        choose_rows(TABLE, where)
