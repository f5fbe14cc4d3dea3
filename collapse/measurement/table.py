"""A table: what analyses return, what commands print, and what reports show."""

import html
import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from collapse.core.escaping import markdown, visible
from collapse.errors import counted
from collapse.measurement.cells import is_numeric, latex, plain, text

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True)
class Table:
    """A table with a title, and remarks below it.

    Attributes:
        title: A line above it; "" for none.
        columns: Headings.
        rows: Values, one list per row; None prints as –.
        notes: Remarks, one per line.
        shown: The same table as people read it, where that is not a heading and a number per column: intervals, bounds
            and marks. Its title and notes are the table's.
        keys: Number of leading columns that name a row; they are repeated when the table is divided.
        above: Lines above the title.
        average: The average of everything, of which the rows show some, as a row; None without one.
    """

    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[Any]]
    notes: Sequence[str] = field(default_factory=list)
    shown: "Table | None" = None
    keys: int = 1
    above: Sequence[str] = ()
    average: Sequence[Any] | None = None

    def __len__(self) -> int:
        return len(self.rows)

    def __repr__(self) -> str:
        return f"Table({self.title!r}, {counted(len(self.rows), 'row')}: {', '.join(self.columns)})"

    def __str__(self) -> str:
        return self.markdown()

    def _repr_html_(self) -> str:
        return self.html()

    def records(self) -> list[dict[str, Any]]:
        """Return the rows as dictionaries for JSON: NumPy numbers as plain numbers, infinite ones and NaN as None."""
        return [dict(zip(self.columns, map(plain, row), strict=True)) for row in self.rows]

    def data(self) -> dict[str, Any]:
        """Return the whole table for JSON."""
        average = {} if self.average is None else {"average": dict(zip(self.columns, self.average, strict=True))}
        return {"title": self.title, "rows": self.records(), **average, "notes": self.notes}

    def frame(self) -> "pd.DataFrame":
        """Return the table as a pandas DataFrame, without its average."""
        import pandas as pd

        return pd.DataFrame(self.records(), columns=list(self.columns))

    def with_average(self) -> "pd.DataFrame":
        """Return the table as a pandas DataFrame, with the average as its last row; whole numbers stay whole."""
        import pandas as pd

        frame = self.frame()
        if self.average is None:
            return frame
        last = pd.DataFrame([self.average], columns=frame.columns, dtype=object)
        return pd.concat([frame.astype(object), last], ignore_index=True)

    def for_people(self) -> "Table":
        """Return the table as people read it, with its title and notes."""
        return self if self.shown is None else replace(self.shown, title=self.title, notes=self.notes)

    def markdown(self) -> str:
        """Return the table as Markdown.

        >>> print(Table("", ["model", "loss"], [["a|b", 1.5]]).markdown())
        | model | loss |
        | :--- | ---: |
        | a&#124;b | 1.500 |
        """
        shown = self.for_people()
        lines = [[markdown(heading) for heading in shown.columns]]
        lines.append(["---:" if right else ":---" for right in shown._are_right()])
        lines += [[markdown(each) for each in row] for row in shown._cells()]
        above = [line for each in shown.above for line in (markdown(each), "")]
        title = [f"**{markdown(shown.title)}**", ""] if shown.title else []
        notes = [line for note in shown.notes for line in ("", markdown(note))]
        return "\n".join([*above, *title, *(f"| {' | '.join(line)} |" for line in lines), *notes])

    def latex(self) -> str:
        r"""Return the table as LaTeX, for the booktabs package.

        >>> print(Table("", ["model", "val_loss"], [["a&b", -1.5]]).latex())
        \begin{tabular}{lr}
        \toprule
        model & val\_loss \\
        \midrule
        a\&b & $-$1.500 \\
        \bottomrule
        \end{tabular}
        """
        shown = self.for_people()
        kinds = "".join("r" if right else "l" for right in shown._are_right())
        formulas = [heading == "equation" for heading in shown.columns]
        heading = _latex_row([latex(each) for each in shown.columns])
        rows = [_latex_row([latex(*each) for each in zip(cells, formulas, strict=True)]) for cells in shown._cells()]
        title = [f"% {visible(each)}" for each in (*shown.above, *([shown.title] if shown.title else []))]
        top, bottom = [rf"\begin{{tabular}}{{{kinds}}}", r"\toprule"], [r"\bottomrule", r"\end{tabular}"]
        notes = [f"% {visible(note)}" for note in shown.notes]
        return "\n".join([*title, *top, heading, r"\midrule", *rows, *bottom, *notes])

    def html(self) -> str:
        """Return the table as HTML, for notebooks.

        >>> print(Table("", ["model"], [["a<b"]]).html())
        <table>
        <tr><th>model</th></tr>
        <tr><td style="text-align: left">a&lt;b</td></tr>
        </table>
        """
        shown = self.for_people()
        sides = ["right" if right else "left" for right in shown._are_right()]
        lines = [[f"<th>{_html(each)}</th>" for each in shown.columns]]
        for row in shown._cells():
            cells = zip(sides, row, strict=True)
            lines.append([f'<td style="text-align: {side}">{_html(each)}</td>' for side, each in cells])
        above = [f"<p>{_html(each)}</p>" for each in shown.above]
        title = [f"<caption>{_html(shown.title)}</caption>"] if shown.title else []
        notes = [f"<p>{_html(note)}</p>" for note in shown.notes]
        rows = [f"<tr>{''.join(line)}</tr>" for line in lines]
        return "\n".join([*above, "<table>", *title, *rows, "</table>", *notes])

    def _cells(self) -> list[tuple[str, ...]]:
        return [tuple(text(value) for value in row) for row in self.rows]

    def _are_right(self) -> list[bool]:
        """Whether each column is aligned to the right: numbers, and any but the keys of a table without rows."""
        columns = list(zip(*self._cells(), strict=True)) or [("0",)] * len(self.columns)
        return [at >= self.keys and is_numeric(cells) for at, cells in enumerate(columns)]


def table_of_frame(title: str, frame: "pd.DataFrame", notes: Sequence[str] = ()) -> Table:
    """Return a pandas DataFrame as a table."""
    columns = [frame[each].tolist() for each in frame]
    return Table(title, list(map(str, frame.columns)), list(zip(*columns, strict=True)), notes)


def _html(value: str) -> str:
    return html.escape(visible(value))


def _latex_row(cells: Sequence[str]) -> str:
    made = " & ".join(cells) + r" \\"
    return re.sub(r"^(\s*)([\[*])", r"\1{\2}", made)  # else they are arguments of the \\ or \midrule before them
