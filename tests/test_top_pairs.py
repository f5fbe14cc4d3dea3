"""The pairs of largest value: exactly those of all pairs at once, whatever the tiles, ties and gaps."""

import math
from itertools import combinations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from collapse import EmbeddingStatistics, Mean, pair_metric
from collapse.numerics.pairs import sweep, tiles
from collapse.numerics.top_pairs import TopPairs
from collapse.plugin.metrics import declaration


@settings(deadline=None, max_examples=100)
@given(
    seed=st.integers(0, 10_000),
    classes=st.integers(2, 20),
    tile=st.integers(1, 21),
    most=st.integers(1, 60),
    different=st.integers(1, 30),
    absent=st.floats(0, 1),
)
def test_it_is_the_largest_of_all_pairs(seed, classes, tile, most, different, absent):
    draw = torch.Generator().manual_seed(seed)
    values = torch.randint(different, (classes, classes), generator=draw).double()
    values = values.triu() + values.triu(1).T
    values[values == 0] = math.nan
    left_out = torch.rand(classes, classes, generator=draw) < absent
    left_out = left_out.triu() | left_out.triu().T
    found = TopPairs.of(most, torch.device("cpu"))
    for rows, columns in tiles(classes, tile):
        found.add(values.masked_fill(left_out, math.inf)[rows, columns], rows, columns)
    there = [
        (-float(values[i, j]), i, j)
        for i, j in combinations(range(classes), 2)
        if not left_out[i, j] and not values[i, j].isnan()
    ]
    expected = sorted(there)[:most]
    assert found.pairs.tolist() == [[i, j] for _, i, j in expected]
    assert found.values.tolist() == [-value for value, _, _ in expected]


@pytest.mark.parametrize("tile", [1, 3, 512])
def test_a_sweep_keeps_them_and_changes_no_number(tile):
    @pair_metric(Mean("mine.far"))
    def far(sqdist):
        return sqdist

    means = torch.tensor([[0.0], [0.0], [3.0], [1.0], [7.0]], dtype=torch.float64)
    s = EmbeddingStatistics(
        classes=torch.arange(5), counts=torch.ones(5).long(), means=means, variances=torch.ones(5).double()
    )
    wanted = [(declaration(far), declaration(far).measures)]
    (plain,) = sweep(s, wanted, tile=tile).metrics
    (found,) = sweep(s, wanted, tile=tile, top=3).metrics
    assert plain.top is None
    assert found.top.pairs.tolist() == [[0, 4], [1, 4], [3, 4]]
    assert found.top.values.tolist() == [49.0, 49.0, 36.0]
    assert found.all.number("mine.far") == plain.all.number("mine.far")
