"""A table: what analyses return, what commands print, and what reports show."""

import html
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
        title: The lines above it; "" for none.
        columns: Headings.
        rows: Values, one list per row; None prints as –.
        notes: Remarks, one per line.
        shown: The same table as people read it, where that is not a heading and a number per column: intervals, bounds
            and marks. Its title and notes are the table's.
        keys: Number of leading columns that name a row; they are repeated when the table is divided.
        average: The average of everything, of which the rows show some, as a row; None without one.
    """

    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[Any]]
    notes: Sequence[str] = field(default_factory=list)
    shown: "Table | None" = None
    keys: int = 1
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
        return {"title": self.title, "rows": self.records(), **average, "notes": list(self.notes)}

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
        """Return the table as it is printed."""
        return self if self.shown is None else replace(self.shown, title=self.title, notes=self.notes)

    def markdown(self) -> str:
        """Return the table as Markdown.

        >>> print(Table("", ["model", "loss"], [["a|b", 1.5]]).markdown())
        | model | loss |
        | :--- | ---: |
        | a&#124;b | 1.500 |
        """
        shown = self.for_people()
        lines = [list(shown.columns), *shown._cells()]
        heading, *rows = [f"| {' | '.join(map(markdown, line))} |" for line in lines]
        rule = f"| {' | '.join('---:' if right else ':---' for right in shown._are_right())} |"
        titles = [part for line in shown.title.splitlines() for part in (f"**{markdown(line)}**", "")]
        notes = [part for note in shown.notes for part in ("", markdown(note))]
        return "\n".join([*titles, heading, rule, *rows, *notes])

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
        lines = [list(shown.columns), *shown._cells()]
        heading, *rows = [" & ".join(map(latex, line)) + r" \\" for line in lines]
        kinds = "".join("r" if right else "l" for right in shown._are_right())
        titles, notes = ([f"% {visible(each)}" for each in of] for of in (shown.title.splitlines(), shown.notes))
        begin, end = [rf"\begin{{tabular}}{{{kinds}}}", r"\toprule"], [r"\bottomrule", r"\end{tabular}"]
        return "\n".join([*titles, *begin, heading, r"\midrule", *rows, *end, *notes])

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
        rows = ["".join(f"<th>{_html(each)}</th>" for each in shown.columns)]
        for row in shown._cells():
            cells = zip(sides, row, strict=True)
            rows.append("".join(f'<td style="text-align: {side}">{_html(each)}</td>' for side, each in cells))
        above, below = ([f"<p>{_html(each)}</p>" for each in of] for of in (shown.title.splitlines(), shown.notes))
        return "\n".join([*above, "<table>", *(f"<tr>{row}</tr>" for row in rows), "</table>", *below])

    def _cells(self) -> list[list[str]]:
        return [[text(value) for value in row] for row in self.rows]

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
