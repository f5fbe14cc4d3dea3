"""Tables for people: formatted numbers, and a table as Markdown, LaTeX or HTML."""

import html
import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from collapse.escaping import markdown, visible

_SIGNS = (r"-", r"\infty", r"\|", r"'", r"\surd", r"\mu", r"\sigma", r"\Sigma", r"\langle", r"\rangle", r"\ge")
_LATEX = str.maketrans(
    {
        **{character: f"\\{character}" for character in "&%$#_{}"},
        "\\": r"\textbackslash{}",
        "~": r"\textasciitilde{}",
        "^": r"\textasciicircum{}",
        **{character: f"${character}$" for character in "<>"},
        **{character: f"${sign}$" for character, sign in zip("−∞‖′√μσΣ⟨⟩≥", _SIGNS, strict=True)},
        **{character: f"$^{{{plain}}}$" for character, plain in zip("²¹⁴⁺⁻ᵀ", "214+-T", strict=True)},
        "\u0304": r"$^-$",
        "\u0303": r"$^\sim$",
        "–": "--",
    }
)


@dataclass(frozen=True)
class Sheet:
    """A table to print.

    Attributes:
        columns: Headings.
        rows: Texts, numbers or None, one list per row.
        title: A line above it.
        keys: Number of leading columns that name a row; they are repeated when the table is divided.
        notes: Lines below it.
        above: Lines above it, before the title.
    """

    columns: Sequence[str]
    rows: Sequence[Sequence[Any]]
    title: str | None = None
    keys: int = 1
    notes: Sequence[str] = ()
    above: Sequence[str] = ()


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


def cells_of(sheet: Sheet) -> list[tuple[str, ...]]:
    """Return the formatted rows of a table."""
    return [tuple(text(value) for value in row) for row in sheet.rows]


def markdown_of(sheet: Sheet) -> str:
    """Return a table as Markdown.

    >>> print(markdown_of(Sheet(["model", "loss"], [["a|b", 1.5]])))
    | model | loss |
    | :--- | ---: |
    | a&#124;b | 1.500 |
    """
    lines = [[markdown(heading) for heading in sheet.columns]]
    lines.append([":---" if index < sheet.keys else "---:" for index in range(len(sheet.columns))])
    lines += [[markdown(each) for each in row] for row in cells_of(sheet)]
    above = [line for each in sheet.above for line in (markdown(each), "")]
    title = [f"**{markdown(sheet.title)}**", ""] if sheet.title else []
    notes = [line for note in sheet.notes for line in ("", markdown(note))]
    return "\n".join([*above, *title, *(f"| {' | '.join(line)} |" for line in lines), *notes])


def latex_of(sheet: Sheet) -> str:
    r"""Return a table as LaTeX, for the booktabs package.

    >>> print(latex_of(Sheet(["model", "val_loss"], [["a&b", -1.5]])))
    \begin{tabular}{lr}
    \toprule
    model & val\_loss \\
    \midrule
    a\&b & $-$1.500 \\
    \bottomrule
    \end{tabular}
    """
    kinds = "".join("l" if index < sheet.keys else "r" for index in range(len(sheet.columns)))
    rows = [" & ".join(_latex(each) for each in row) + r" \\" for row in [sheet.columns, *cells_of(sheet)]]
    title = [f"% {visible(each)}" for each in (*sheet.above, *([sheet.title] if sheet.title else []))]
    top, bottom = [rf"\begin{{tabular}}{{{kinds}}}", r"\toprule"], [r"\bottomrule", r"\end{tabular}"]
    notes = [f"% {visible(note)}" for note in sheet.notes]
    return "\n".join([*title, *top, rows[0], r"\midrule", *rows[1:], *bottom, *notes])


def html_of(sheet: Sheet) -> str:
    """Return a table as HTML, for notebooks.

    >>> print(html_of(Sheet(["model"], [["a<b"]])))
    <table>
    <tr><th>model</th></tr>
    <tr><td style="text-align: left">a&lt;b</td></tr>
    </table>
    """
    sides = ["left" if index < sheet.keys else "right" for index in range(len(sheet.columns))]
    lines = [[f"<th>{html.escape(visible(each))}</th>" for each in sheet.columns]]
    for row in cells_of(sheet):
        shown = zip(sides, row, strict=True)
        lines.append([f'<td style="text-align: {side}">{html.escape(visible(each))}</td>' for side, each in shown])
    above = [f"<p>{html.escape(visible(each))}</p>" for each in sheet.above]
    title = [f"<caption>{html.escape(visible(sheet.title))}</caption>"] if sheet.title else []
    notes = [f"<p>{html.escape(visible(note))}</p>" for note in sheet.notes]
    return "\n".join([*above, "<table>", *title, *(f"<tr>{''.join(line)}</tr>" for line in lines), "</table>", *notes])


def _latex(text: str) -> str:
    made = re.sub(r"(?<![\w.^{$-])-(?=\d)", "$-$", visible(text).translate(_LATEX))
    return re.sub(r"(?<!\\)\$\$", "", made).replace("}^{", "")  # one formula of neighbours


def is_number(value: Any) -> bool:
    """Whether a value of a table is a number."""
    return isinstance(value, int | float) and not isinstance(value, bool)
