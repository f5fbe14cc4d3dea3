"""The values of a table as text: numbers with four digits, and LaTeX."""

import math
import re
import unicodedata
from collections.abc import Sequence
from typing import Any

from collapse.core.escaping import visible

_SIGNS = dict(
    zip(
        "−∞‖′√⟨⟩μσΣΔ×✗≤≥±÷·<>",
        (
            r"- \infty \| ' \surd \langle \rangle \mu \sigma \Sigma \Delta \times \times "
            r"\le \ge \pm \div \cdot < >"
        ).split(),
        strict=True,
    )
)
_MARKS = {"\u0304": r"\bar", "\u0303": r"\tilde"}  # combining characters, which follow their letter
_RAISED = dict(zip("²¹⁴⁺⁻ᵀ", "214+-T", strict=True))
_LATEX = {
    **{character: f"\\{character}" for character in "&%$#_{}"},
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "|": r"\textbar{}",
    **{character: f"${sign}$" for character, sign in _SIGNS.items()},
    "–": "--",
}
_LETTER = "[A-Za-zα-ωΑ-Ω]"
_BELOW = rf"(?P<below>_[A-Za-z]{{1,2}}′?(?!{_LETTER}))|(?P<alone>(?<!{_LETTER})(?:[A-Za-z]|[A-Z]{{2}})(?!{_LETTER}))|"
_PIECES = rf"(?P<marked>[^\W_][{''.join(_MARKS)}])|{{}}(?P<raised>[{''.join(_RAISED)}]+)|."
_OF_TEXT, _OF_FORMULA = (re.compile(_PIECES.format(more), re.DOTALL) for more in ("", _BELOW))
_NUMBERS = re.compile(r"(≤ )?([−–∞\-\d.,e+]+( to |$)|nan|)*")  # as number() writes them, ranges of them, and bounds


def number(value: float | int | None) -> str:
    """Format a number with four digits, – for none.

    >>> [number(value) for value in (0.000106839, 1.1, 29233, 36599.66, None, float("-inf"))]
    ['0.0001068', '1.100', '29,233', '36,599.7', '–', '−∞']
    """
    if value is None:
        return "–"
    if math.isnan(value):
        return "nan"
    if math.isinf(value):
        return "∞" if value > 0 else "−∞"
    if float(value).is_integer() and abs(value) < 1e12:
        return f"{int(value):,}"
    # "#" keeps zeros at the end, and a point that nothing follows
    return f"{value:,.1f}" if 1e3 <= abs(value) < 1e9 else f"{value:#.4g}".removesuffix(".")


def aligned(values: Sequence[Any]) -> list[str]:
    """Format a column; if it has numbers only, blanks at their ends put their decimal points below each other.

    >>> aligned([1.52345, 20.5, 12, None]), aligned([0.5, "text"])
    (['1.523', '20.50 ', '12    ', '–    '], ['0.5000', 'text'])
    """
    made = [text(value) for value in values]
    if not all(value is None or value == "" or is_number(value) for value in values):
        return made
    behind = [len(each.partition(".")[2]) + ("." in each) for each in made]
    return [each + " " * (max(behind) - own) if each else each for each, own in zip(made, behind, strict=True)]


def text(value: Any) -> str:
    """Format any value of a table."""
    return number(value) if value is None or is_number(value) else str(value)


def is_numeric(cells: Sequence[str]) -> bool:
    """Whether a formatted column has numbers, ranges of numbers and blanks only: then it is aligned to the right.

    >>> is_numeric(["1.500", "–", "0.1 to 0.2"]), is_numeric(["NC1", "1.500"]), is_numeric([""])
    (True, False, False)
    """
    return all(_NUMBERS.fullmatch(each.strip()) for each in cells) and any(cells)


def latex(text: str, formula: bool = False) -> str:
    r"""Return a text for LaTeX; in a formula, single letters and products of two capital ones are symbols.

    Short texts after _ are below them.

    >>> print(latex("-4.803e-05"), latex("‖WMᵀ‖", formula=True))
    $-4.803 \times 10^{-5}$ $\|WM^{T}\|$
    """
    text = unicodedata.normalize("NFD", visible(text)) if formula else visible(text)
    made = (_OF_FORMULA if formula else _OF_TEXT).sub(_piece, text)
    made = re.sub(r"(?<![\w.^{$-])-(?=\d)", "$-$", made)
    made = re.sub(r"(?<![\w.])(\d\.\d+)e([-+]\d+)(?!\w)", _power, made)
    made = re.sub(r"(\\[a-z]+)\$\$(?=[A-Za-z])", r"\1 ", made)
    return re.sub(r"(?<!\\)\$\$", "", made)  # one formula of neighbours


def _power(found: re.Match[str]) -> str:
    return rf"${found[1]} \times 10^{{{int(found[2])}}}$"


def _piece(found: re.Match[str]) -> str:
    piece, kind = found[0], found.lastgroup
    if kind == "marked":
        letter = _LATEX.get(piece[0], piece[0]).strip("$")
        return f"${_MARKS[piece[1]]}{{{letter}}}$"
    if kind == "raised":
        return f"$^{{{''.join(_RAISED[each] for each in piece)}}}$"
    if kind == "below":
        return f"$_{{{piece[1:].replace('′', chr(39))}}}$"
    return f"${piece}$" if kind == "alone" else _LATEX.get(piece, piece)


def is_number(value: Any) -> bool:
    """Whether a value of a table is a number."""
    return isinstance(value, int | float) and not isinstance(value, bool)


def plain(value: Any) -> Any:
    """Return a value of a table for JSON."""
    if hasattr(value, "tolist"):  # an array or a tensor, or one number of it
        value = value.tolist()
    if isinstance(value, list | tuple):
        return [plain(each) for each in value]
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    return value if value is None or isinstance(value, str | int) else str(value)
