"""The fields of a tile: equal to their formulas in every dtype of a sweep."""

import pytest
import torch

from collapse.numerics import fields


def drawn(dtype):
    draw = torch.Generator().manual_seed(0)
    rows, columns = (torch.rand(n, generator=draw).to(dtype) for n in (7, 5))
    return torch.randn(7, 5, generator=draw).to(dtype), rows, columns


CALLS = {
    "squared_distances": lambda gram, rows, columns: fields.squared_distances(gram, rows, columns),
    "cosines": lambda gram, rows, columns: fields.cosines(gram, rows, columns),
    "unit_squared_distances": lambda gram, rows, columns: fields.unit_squared_distances(gram),
    "uncentred_products": lambda gram, rows, columns: fields.uncentred_products(gram, rows, columns, 0.5),
    "sums": lambda gram, rows, columns: fields.sums(rows, columns),
}
DIRECT = {
    "squared_distances": lambda gram, rows, columns: rows[:, None] + columns[None] - 2 * gram,
    "cosines": lambda gram, rows, columns: gram * rows[:, None] * columns[None],
    "unit_squared_distances": lambda gram, rows, columns: 2 - 2 * gram,
    "uncentred_products": lambda gram, rows, columns: gram + rows[:, None] + columns[None] + 0.5,
    "sums": lambda gram, rows, columns: rows[:, None] + columns[None],
}


def test_every_field_is_here():
    public = {name for name, each in vars(fields).items() if callable(each) and each.__module__ == fields.__name__}
    assert public == CALLS.keys()


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize("name", CALLS)
def test_a_field_is_its_formula_and_leaves_its_arguments(name, dtype):
    arguments = drawn(dtype)
    before = [each.clone() for each in arguments]
    found = CALLS[name](*arguments)
    torch.testing.assert_close(found, DIRECT[name](*arguments))
    assert found.dtype == dtype
    assert all(torch.equal(a, b) for a, b in zip(before, arguments, strict=True))
