"""Format the values of a table as text: round numbers, escape for LaTeX, convert for JSON."""

import math
import re
from collections.abc import Mapping, Sequence
from typing import Any

from collapse.core.escaping import visible

_MATH = {"−": "-", "∞": r"\infty", "‖": r"\|", "√": r"\surd", "μ": r"\mu", "σ": r"\sigma", "Σ": r"\Sigma"}
_MATH |= {"Δ": r"\Delta", "×": r"\times", "≤": r"\le", "≥": r"\ge", "±": r"\pm", "÷": r"\div", "·": r"\cdot"}
_MATH |= {"²": "^2", "′": "'", "<": "<", ">": ">"}
_LATEX = str.maketrans(
    {
        **{character: f"\\{character}" for character in "&%$#_{}"},
        **{character: rf"\ensuremath{{{symbol}}}" for character, symbol in _MATH.items()},
        "\\": r"\textbackslash{}",
        "~": r"\textasciitilde{}",
        "^": r"\textasciicircum{}",
        "|": r"\textbar{}",
        "–": "--",
        "[": "{[}",  # otherwise LaTeX takes it for the argument of the \\ before it
        "*": "{*}",
    }
)
_NUMBERS = re.compile(r"(≤ )?([−–∞\-\d.,e+]+( to |$))*")  # the output of number(), ranges and bounds


def number(value: float | int | None) -> str:
    """Format a number for a table.

    Whole numbers below 10¹² are written in full. Other numbers have one decimal from 1,000 up to 10⁹, and four
    significant digits outside this range. None and NaN become –.

    >>> [number(value) for value in (0.000106839, 1.1, 29233, 36599.66, None, float("-inf"))]
    ['0.0001068', '1.100', '29,233', '36,599.7', '–', '−∞']
    """
    if value is None or math.isnan(value):
        return "–"
    if math.isinf(value):
        return "∞" if value > 0 else "−∞"
    if float(value).is_integer() and abs(value) < 1e12:
        return f"{int(value):,}"
    # "#" keeps trailing zeros, but also a trailing point
    return f"{value:,.1f}" if 1e3 <= abs(value) < 1e9 else f"{value:#.4g}".removesuffix(".")


def text(value: Any) -> str:
    """Format any value of a table."""
    return number(value) if value is None or is_number(value) else str(value)


def aligned(values: Sequence[Any]) -> list[str]:
    """Format a column; if it has only numbers and empty cells, pad numbers at their end to align decimal points.

    >>> aligned([1.52345, 20.5, 12, None]), aligned([0.5, "text"])
    (['1.523', '20.50 ', '12    ', '–    '], ['0.5000', 'text'])
    """
    made = [text(value) for value in values]
    if not all(value is None or value == "" or is_number(value) for value in values):
        return made
    behind = [len(each.partition(".")[2]) + ("." in each) for each in made]
    return [each + " " * (max(behind) - own) if each else each for each, own in zip(made, behind, strict=True)]


def is_numeric(cells: Sequence[str]) -> bool:
    """Return whether a formatted column has only numbers, ranges and empty cells, and at least one cell is not empty.

    >>> is_numeric(["1.500", "–", "0.1 to 0.2"]), is_numeric(["NC1", "1.500"]), is_numeric([""])
    (True, False, False)
    """
    return all(_NUMBERS.fullmatch(each.strip()) for each in cells) and any(cells)


def is_number(value: Any) -> bool:
    """Return whether a value of a table is a number; a bool is not a number."""
    return isinstance(value, int | float) and not isinstance(value, bool)


def latex(text: str) -> str:
    r"""Escape a text for LaTeX.

    >>> print(latex("a_b & μ"), latex("-4.803e-05"))
    a\_b \& \ensuremath{\mu} $-4.803 \times 10^{-5}$
    """
    made = visible(text).translate(_LATEX)
    made = re.sub(r"(?<![\w.])(-?\d\.\d+)e([-+]\d+)(?!\w)", lambda found: _power(*found.groups()), made)
    return re.sub(r"(?<![\w.^{$-])-(?=\d)", "$-$", made)


def _power(digits: str, exponent: str) -> str:
    return rf"${digits} \times 10^{{{int(exponent)}}}$"


def plain(value: Any) -> Any:
    """Convert a value for JSON.

    Arrays and tuples become lists, and NumPy numbers become Python numbers. Infinite numbers and NaN become None. The
    values in a list or mapping are converted one by one. Other numbers, bools and None stay unchanged. Any other object
    becomes text.
    """
    if hasattr(value, "tolist"):  # an array, a tensor, or a NumPy number
        value = value.tolist()
    if isinstance(value, Mapping):
        return {str(key): plain(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [plain(each) for each in value]
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    return value if value is None or isinstance(value, int) else str(value)
