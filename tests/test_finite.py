"""Values that are not finite or too large are found, and the message says where."""

import math

import pytest
import torch

from collapse import CollapseError
from collapse.numerics.finite import NotFinite, check_classifier, check_finite, largest

LIMIT = 1e150
BELOW = math.nextafter(LIMIT, 0)


def double(*values: float) -> torch.Tensor:
    return torch.tensor(values, dtype=torch.float64)


def test_the_largest_magnitude():
    assert largest(double(1, -3, 2)) == largest(double(1, 3, -2)) == 3
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
@pytest.mark.parametrize("first", [0, 3, 4])
def test_the_first_bad_row_is_named(value, wrong, first):
    rows = torch.ones(7, 2, dtype=torch.float64)
    rows[0] = BELOW
    check_finite(rows)
    check_classifier(rows, rows[:, 0].clone(), ("head", "its bias"))
    bad = rows.clone()
    bad[[first, 5], 1] = value
    with pytest.raises(NotFinite) as embedding:
        check_finite(bad)
    assert (embedding.value.row, embedding.value.wrong) == (first, wrong)
    assert str(embedding.value) == f"the embedding of sample {first} is {wrong}"
    for name, weight, bias in (("head", bad, None), ("its bias", rows, bad[:, 1].clone())):
        with pytest.raises(CollapseError) as head:
            check_classifier(weight, bias, ("head", "its bias"))
        assert str(head.value) == f"{name} row {first} is {wrong}, so no class can be predicted from it"


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
def test_a_classifier_may_have_any_dtype_and_one_row(dtype):
    check_classifier(torch.tensor([[1, 2]], dtype=dtype), torch.tensor([3], dtype=dtype), ("head", "its bias"))
    with pytest.raises(CollapseError, match="head row 0 is NaN"):
        check_classifier(torch.tensor([[1, math.nan]], dtype=dtype), None, ("head", "its bias"))
