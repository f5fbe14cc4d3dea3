"""A table, as analyses return it, commands print it and reports show it."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from collapse.core.escaping import markdown, visible
from collapse.errors import counted
from collapse.measurement.cells import is_numeric, latex, plain, text
from collapse.measurement.output import FORMATS, Tabular, write_table

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True)
class Table:
    """A table with a title above and notes below.

    Attributes:
        title: The lines above the table; "" for none.
        columns: Headings.
        rows: Values, one list per row; None prints as –.
        notes: Remarks, one per line.
        shown: A table to print instead of this one, under the same title, for example with intervals; None to print
            this table.
        keys: Number of leading columns that name a row; they are repeated when a wide table is divided.
        average: A row with the average over all classes, if ``rows`` show only some of them; otherwise None.
        source: The complete results table, if this table shows only a part of it. CSV, JSON and Parquet files then
            contain the complete table.
    """

    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[Any]]
    notes: Sequence[str] = field(default_factory=list)
    shown: "Table | None" = None
    keys: int = 1
    average: Sequence[Any] | None = None
    source: Tabular | None = None

    def __len__(self) -> int:
        return len(self.rows)

    def __repr__(self) -> str:
        return f"Table({self.title!r}, {counted(len(self.rows), 'row')}: {', '.join(self.columns)})"

    def __str__(self) -> str:
        return self.markdown()

    def _repr_markdown_(self) -> str:  # for notebooks
        return self.markdown()

    def records(self) -> list[dict[str, Any]]:
        """Return the rows as dictionaries for JSON, with plain numbers, and None for NaN and infinite numbers."""
        return [dict(zip(self.columns, map(plain, row), strict=True)) for row in self.rows]

    def data(self) -> Any:
        """Return the whole table for JSON."""
        if self.source is not None:
            return self.source.data()
        average = {} if self.average is None else {"average": dict(zip(self.columns, self.average, strict=True))}
        return {"title": self.title, "rows": self.records(), **average, "notes": list(self.notes)}

    def frame(self) -> "pd.DataFrame":
        """Return the table as a pandas DataFrame, without its average."""
        if self.source is not None:
            return self.source.frame()
        import pandas as pd

        return pd.DataFrame(self.records(), columns=list(self.columns))

    def write(self, path: str | Path) -> None:
        """Write a .csv, .json or .parquet file in full precision, or a .md or .tex file as printed.

        Raises:
            UsageError: The suffix is not of a known format, or no file can be created there.
            CollapseError: The write fails.
        """
        write_table(path, self, tuple(FORMATS))

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
        titles, (heading, *rows), notes, right = self._as_texts(markdown)
        above = [part for title in titles for part in (f"**{title}**", "")]
        rule = ["---:" if each else ":---" for each in right]
        lines = [f"| {' | '.join(cells)} |" for cells in (heading, rule, *rows)]
        return "\n".join([*above, *lines, *(part for note in notes for part in ("", note))])

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
        _, lines, _, right = self._as_texts(latex)
        heading, *rows = [" & ".join(cells) + r" \\" for cells in lines]
        above, below = ([f"% {visible(each)}" for each in of] for of in (self.title.splitlines(), self.notes))
        kinds = "".join("r" if each else "l" for each in right)
        begin, end = [rf"\begin{{tabular}}{{{kinds}}}", r"\toprule"], [r"\bottomrule", r"\end{tabular}"]
        return "\n".join([*above, *begin, heading, r"\midrule", *rows, *end, *below])

    def _as_texts(self, escape: Callable[[str], str]) -> tuple[list[str], list[list[str]], list[str], list[bool]]:
        """Return the escaped texts of the table, and whether each column is aligned right.

        The texts are the lines of the title, the lines of the table (first the heading, then the rows), and the notes.
        """
        shown = self.for_people()
        cells = [[text(value) for value in row] for row in shown.rows]
        columns = list(zip(*cells, strict=True)) or [("0",)] * len(shown.columns)
        right = [at >= shown.keys and is_numeric(column) for at, column in enumerate(columns)]
        lines = [[escape(each) for each in line] for line in (shown.columns, *cells)]
        return list(map(escape, shown.title.splitlines())), lines, list(map(escape, shown.notes)), right


def table_of_frame(title: str, frame: "pd.DataFrame", notes: Sequence[str] = ()) -> Table:
    """Return a pandas DataFrame as a table."""
    columns = [frame[each].tolist() for each in frame]
    return Table(title, list(map(str, frame.columns)), list(zip(*columns, strict=True)), notes)
