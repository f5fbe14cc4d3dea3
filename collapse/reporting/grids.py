"""A table of the page: columns, rows of plain values, and what is said about it."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from collapse.reporting.embedding import plain

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True)
class Grid:
    """A table that the page's reader sorts and filters.

    Attributes:
        name: Part of identifiers and of the names of files.
        title: Its heading.
        columns: Headings of its columns.
        rows: Texts, numbers and None, one list per row.
        notes: Remarks below it.
        filter_: What the box for filtering says.
    """

    name: str
    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[Any]]
    notes: Sequence[str] = ()
    filter_: str = "filter rows"

    def content(self) -> dict[str, Any]:
        """Return what the page's script needs, as JSON holds it."""
        rows = [[plain(value) for value in row] for row in self.rows]
        return {"name": self.name, "columns": [plain(name) for name in self.columns], "rows": rows}


def grid_of_frame(
    frame: "pd.DataFrame", name: str, title: str, notes: Sequence[str] = (), filter_: str = "filter rows"
) -> Grid:
    """Return a pandas table as a grid."""
    columns = [frame[each].tolist() for each in frame]
    return Grid(name, title, list(map(str, frame.columns)), list(zip(*columns, strict=True)), notes, filter_)
