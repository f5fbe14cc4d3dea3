"""Ticks of log axes: round, enough, and inside the values."""

from hypothesis import given
from hypothesis import strategies as st

from collapse_figures.panels import log_format, log_ticks


@given(st.floats(-9, 9), st.floats(1e-6, 6))
def test_ticks_of_a_log_axis_are_few_and_inside(power, decades):
    low, high = 10.0**power, 10.0 ** (power + decades)
    ticks = log_ticks([low, high])
    assert 3 <= len(ticks) <= 9 or (len(ticks) == 2 and high < 10 * low)
    assert ticks == sorted(set(ticks))
    assert low <= ticks[0] <= ticks[-1] <= high


def test_within_a_decade_ticks_are_round_and_their_labels_differ():
    assert log_ticks([5.04889292759, 8.82267515032]) == [6.0, 7.0, 8.0]
    assert log_ticks([0.1234, 0.1236]) == [0.1234, 0.1235, 0.1236]
    assert log_format([0.1234, 0.1236]) == "~g"
    assert log_ticks([7.0]) == [7.0]
