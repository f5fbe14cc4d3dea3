"""Numbers of analyses as people read them: three digits, intervals, bounds, and a mark where a sign disagrees."""

from typing import Any

DISAGREES = "✗"
"""Stands beside a predicted sign that the data do not have."""
MEANING = "r has the other sign, and its interval excludes 0"
"""What it means, for notes."""
SMALLEST = 1e-6
"""The least p-value that is shown; files have them all."""


def signed(value: float | None) -> str:
    """Format a correlation, with its sign and three digits; – for none.

    >>> signed(0.5), signed(-1.0), signed(None)
    ('+0.500', '-1.000', '–')
    """
    return "–" if value is None else f"{value:+.3f}"


def fixed(value: float | None) -> str:
    """Format a share, such as R², with three digits behind the point; – for none.

    >>> fixed(0.91604), fixed(3.6e-5)
    ('0.916', '0.000')
    """
    return "–" if value is None else f"{value:.3f}"


def three(value: float | None) -> str:
    """Format a number with three digits; – for none.

    >>> three(0.91604), three(123456.0), three(-2.4449e-5), three(0.0), three(None)
    ('0.916', '123,456', '-2.44e-05', '0', '–')
    """
    if value is None:
        return "–"
    if value == 0:
        return "0"
    return f"{value:,.0f}" if 1e3 <= abs(value) < 1e9 else f"{value:#.3g}".removesuffix(".")


def p_value(p: float | None, *, bound: bool = False) -> str:
    """Format a p-value with three digits; of one that no permutation reached, the bound of 95 % (the rule of three).

    >>> p_value(0.04761), p_value(1e-5, bound=True), p_value(1.0), p_value(1e-43)
    ('0.0476', '≤ 3e-05', '1.00', '< 1e-06')
    """
    if p is None:
        return "–"
    if bound:
        return f"≤ {min(3 * p, 1):.3g}"
    return three(p) if p >= SMALLEST else f"< {SMALLEST:g}"  # of smaller ones the digits depend on the model of noise


def interval(low: float | None, high: float | None, *, signs: bool = True) -> str:
    """Format an interval; – for none.

    >>> interval(-0.5, 0.25), interval(0.5, 12.0, signs=False)
    ('-0.500 to +0.250', '0.500 to 12.0')
    """
    if low is None or high is None:
        return "–"
    write = signed if signs else three
    return f"{write(low)} to {write(high)}"


def plain(value: Any) -> Any:
    """Return a value of a column as Python's; whole numbers, floats where others are missing, are integers.

    >>> plain(2.0), plain(0.1), plain("2x16")
    (2, 0.1, '2x16')
    """
    value = value.item() if hasattr(value, "item") else value
    return int(value) if isinstance(value, float) and value.is_integer() else value


def sign(predicted: str | None, agrees: bool | None) -> str:
    """Format a predicted sign, marked where the data disagree.

    >>> sign("r > 0", True), sign("r < 0", False), sign(None, None)
    ('r > 0', 'r < 0 ✗', '–')
    """
    return "–" if predicted is None else f"{predicted} {DISAGREES}" if agrees is False else predicted
