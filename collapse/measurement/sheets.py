"""Tables for people: formatted numbers, and a table as Markdown, LaTeX or HTML."""

import html
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from collapse.escaping import markdown, visible

_LATEX = str.maketrans(
    {
        **{character: f"\\{character}" for character in "&%$#_{}"},
        "\\": r"\textbackslash{}",
        "~": r"\textasciitilde{}",
        "^": r"\textasciicircum{}",
        "−": "$-$",
        "∞": r"$\infty$",
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
    """

    columns: Sequence[str]
    rows: Sequence[Sequence[Any]]
    title: str | None = None
    keys: int = 1
    notes: Sequence[str] = ()


def number(value: float | int | None) -> str:
    """Format a number with four digits, – for none.

    >>> [number(value) for value in (0.00010683900472940877, 29233, 36599.66, None, float("-inf"))]
    ['0.0001068', '29,233', '36,599.7', '–', '−∞']
    """
    if value is None:
        return "–"
    if math.isnan(value):
        return "nan"
    if math.isinf(value):
        return "∞" if value > 0 else "−∞"
    if float(value).is_integer() and abs(value) < 1e12:
        return f"{int(value):,}"
    return f"{value:,.1f}" if 1e3 <= abs(value) < 1e9 else f"{value:.4g}"


def aligned(values: Sequence[Any]) -> list[str]:
    """Format a column: numbers of similar size with the same decimals.

    >>> aligned([1.52345, 2.1, None]), aligned([0.0345, 20.5]), aligned([3e-6, 2.5]), aligned([12, 5])
    (['1.523', '2.100', '–'], ['0.0345', '20.5000'], ['3e-06', '2.5'], ['12', '5'])
    """
    sizes = [abs(value) for value in values if is_number(value) and math.isfinite(value) and value]
    whole = all(float(size).is_integer() for size in sizes)
    if not sizes or whole or max(sizes) >= 1e4 or max(sizes) / min(sizes) > 1e3 or min(sizes) < 1e-4:
        return [text(value) for value in values]
    decimals = max(3 - math.floor(math.log10(max(sizes))), 2 - math.floor(math.log10(min(sizes))), 0)
    fixed = [is_number(value) and math.isfinite(value) for value in values]
    return [f"{value:,.{decimals}f}" if plain else text(value) for value, plain in zip(values, fixed, strict=True)]


def text(value: Any) -> str:
    """Format any value of a table."""
    return number(value) if value is None or is_number(value) else str(value)


def cells_of(sheet: Sheet) -> list[tuple[str, ...]]:
    """Return the formatted rows of a table."""
    columns = [aligned([row[index] for row in sheet.rows]) for index in range(len(sheet.columns))]
    return list(zip(*columns, strict=True))


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
    title = [f"**{markdown(sheet.title)}**", ""] if sheet.title else []
    notes = [line for note in sheet.notes for line in ("", markdown(note))]
    return "\n".join([*title, *(f"| {' | '.join(line)} |" for line in lines), *notes])


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
    title = [f"% {visible(sheet.title)}"] if sheet.title else []
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
    title = [f"<caption>{html.escape(visible(sheet.title))}</caption>"] if sheet.title else []
    notes = [f"<p>{html.escape(visible(note))}</p>" for note in sheet.notes]
    return "\n".join(["<table>", *title, *(f"<tr>{''.join(line)}</tr>" for line in lines), "</table>", *notes])


def _latex(text: str) -> str:
    shown = visible(text).translate(_LATEX)
    return f"$-${shown[1:]}" if shown[:1] == "-" and shown[1:2].isdigit() else shown


def is_number(value: Any) -> bool:
    """Whether a value of a table is a number."""
    return isinstance(value, int | float) and not isinstance(value, bool)
