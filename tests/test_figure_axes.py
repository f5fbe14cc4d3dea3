"""Ticks of log axes: round, enough, and inside the values."""

from hypothesis import given
from hypothesis import strategies as st

from collapse_figures.panels import ticks


@given(st.floats(-9, 9), st.floats(1e-6, 6), st.booleans())
def test_ticks_are_few_and_inside(power, decades, log):
    low, high = 10.0**power, 10.0 ** (power + decades)
    found = ticks([low, high], log)
    assert 3 <= len(found) <= 9 or (len(found) == 2 and high < 10 * low)
    assert found == sorted(set(found))
    assert low <= found[0] <= found[-1] <= high


def test_within_a_decade_ticks_of_a_log_axis_are_round():
    assert ticks([5.04889292759, 8.82267515032], log=True) == [6.0, 7.0, 8.0]
