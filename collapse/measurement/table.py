"""The result of an analysis."""

import math
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from collapse.errors import counted
from collapse.measurement.sheets import Sheet, html_of, markdown_of

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True)
class Table:
    """The result of an analysis: a table with a title, and remarks below it.

    Attributes:
        title: One line.
        columns: Headings.
        rows: Values, one list per row; None prints as –.
        notes: Remarks, one per line.
        shown: The same table as people read it, where that is not a heading and a number per column: intervals, bounds
            and marks. Its title and notes are the table's.
    """

    title: str
    columns: list[str]
    rows: list[list[Any]]
    notes: list[str] = field(default_factory=list)
    shown: Sheet | None = None

    def __len__(self) -> int:
        return len(self.rows)

    def __repr__(self) -> str:
        return f"Table({self.title!r}, {counted(len(self.rows), 'row')}: {', '.join(self.columns)})"

    def __str__(self) -> str:
        return markdown_of(self.sheet())

    def _repr_html_(self) -> str:
        return html_of(self.sheet())

    def records(self) -> list[dict[str, Any]]:
        """Return the rows as dictionaries for JSON: NumPy numbers as plain numbers, infinite ones and NaN as None."""
        return [dict(zip(self.columns, map(plain, row), strict=True)) for row in self.rows]

    def frame(self) -> "pd.DataFrame":
        """Return the table as a pandas DataFrame."""
        import pandas as pd

        return pd.DataFrame(self.records(), columns=self.columns)

    def sheet(self) -> Sheet:
        """Return the table to print, with its title and notes."""
        shown = self.shown or Sheet(self.columns, self.rows)
        return replace(shown, title=self.title, notes=self.notes)


def plain(value: Any) -> Any:
    """Return a value of a table for JSON."""
    if hasattr(value, "tolist"):  # an array or a tensor, or one number of it
        value = value.tolist()
    if isinstance(value, list | tuple):
        return [plain(each) for each in value]
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    return value if value is None or isinstance(value, str | int) else str(value)
