"""Values that cannot be computed with are told from those that can, and named."""

import math

import pytest
import torch

from collapse import CollapseError
from collapse.numerics import finite
from collapse.numerics.finite import NotFinite, check_classifier, check_finite, largest, within_range, wrong_with

LIMIT = 1e150
BELOW = math.nextafter(LIMIT, 0)


def double(*values: float) -> torch.Tensor:
    return torch.tensor(values, dtype=torch.float64)


@pytest.mark.parametrize("value", [LIMIT, -LIMIT, math.inf, -math.inf, math.nan])
def test_values_up_to_the_limit_are_within_range(value):
    assert within_range(double(BELOW, 0, -BELOW))
    assert within_range(double())
    assert not within_range(double(1, value, 2))


def test_the_largest_magnitude():
    assert largest(double(1, -3, 2)) == 3
    assert largest(double(1, 3, -2)) == 3
    assert largest(double()) == 0
    assert math.isnan(largest(double(1, math.nan)))


@pytest.mark.parametrize(
    ("value", "wrong"),
    [
        (math.nan, "NaN or infinite"),
        (-math.inf, "NaN or infinite"),
        (LIMIT, r"too large (1e+150; squares of values from 1e+150 on overflow)"),
        (-2 * LIMIT, r"too large (2e+150; squares of values from 1e+150 on overflow)"),
    ],
)
def test_the_first_bad_row_is_named(monkeypatch, value, wrong):
    rows = torch.ones(7, 2, dtype=torch.float64)
    check_finite(rows)
    rows[0] = BELOW
    check_finite(rows)
    check_classifier(rows, rows[:, 0].clone(), "head")
    for first in (0, 3, 4):
        bad = rows.clone()
        bad[[first, 5], 1] = value
        assert wrong_with(bad[first]) == wrong
        with pytest.raises(NotFinite) as embedding:
            check_finite(bad)
        assert (embedding.value.row, embedding.value.wrong) == (first, wrong)
        assert str(embedding.value) == f"the embedding of sample {first} is {wrong}"
        for checked in (1, 3, 4096):
            monkeypatch.setattr(finite, "_CHECKED", checked)
            with pytest.raises(CollapseError) as weight:
                check_classifier(bad, None, "head")
            assert str(weight.value) == f"head row {first} is {wrong}, so no class can be predicted from it"
            with pytest.raises(CollapseError) as bias:
                check_classifier(rows, bad[:, 1].clone(), "head")
            assert str(bias.value) == f"head_bias row {first} is {wrong}, so no class can be predicted from it"


def test_a_classifier_may_have_one_row():
    check_classifier(double(1, 2).unsqueeze(0), double(3), "head")
    with pytest.raises(CollapseError, match="head row 0 is NaN"):
        check_classifier(double(1, math.nan).unsqueeze(0), None, "head")
