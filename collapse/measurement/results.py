"""Results tables, with a row per model and a column per measurement: read, write, pass to analyses."""

import csv
import json
from collections.abc import Iterable, Iterator, Set
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Any

from collapse.core.reading import open_regular, read_json
from collapse.errors import CollapseError, UsageError, counted, first_line
from collapse.measurement.cells import plain
from collapse.measurement.named_results import file_of, named_results
from collapse.measurement.rows import ABOUT
from collapse.measurement.rows import Note as Note
from collapse.measurement.rows import Row as Row
from collapse.measurement.table_files import OURS as OURS
from collapse.measurement.table_files import as_csv as as_csv
from collapse.measurement.table_files import read_csv, read_json_table, read_parquet, whole
from collapse.stores.manifest import MANIFEST, ORIGIN, RESULTS
from collapse.stores.writing import check_output_place, write_output

if TYPE_CHECKING:
    import pandas as pd


class Results:
    """A results table: rows measured here, or the records of a file."""

    def __init__(self, rows: Iterable[Row] = ()) -> None:
        self.rows = _checked(rows)
        self._frame: pd.DataFrame | None = None

    def __len__(self) -> int:
        return len(self.frame())

    def __iter__(self) -> Iterator[Any]:
        """Iterate over the rows: each a :class:`Row`, or a dictionary if the table was read from .csv or .parquet."""
        return iter(self.rows if self._frame is None else self._frame.to_dict("records"))

    def __getitem__(self, index: int) -> Any:
        return list(self)[index]

    def __repr__(self) -> str:
        frame = self.frame()
        return f"Results({counted(len(frame), 'row')}, {counted(len(frame.columns), 'column')})"

    def __str__(self) -> str:
        return str(self.frame())

    def _repr_html_(self) -> str:
        return str(self.frame()._repr_html_())

    def frame(self) -> "pd.DataFrame":
        """Return a pandas DataFrame: identifying columns, one column per measurement, ``versions`` as JSON text."""
        import pandas as pd

        if self._frame is not None:
            return self._frame
        records = []
        stepped = any(row.step is not None for row in self.rows)
        for row in self.rows:
            record = {name: getattr(row, name) for name in ABOUT}
            record |= {"step": row.step} if stepped else {}
            record |= row.measurements
            record["versions"] = json.dumps(row.versions, sort_keys=True)
            records.append(record)
        return whole(pd.DataFrame(records, columns=None if records else [*ABOUT, "versions"]))

    @classmethod
    def read(cls, path: str | Path) -> "Results":
        """Read a .csv, .json or .parquet file, from collapse or elsewhere (published tables are plain CSV).

        Args:
            path: The file, or the name of a table that a plugin brings: ``paper`` has the published measurements.

        Raises:
            CollapseError: There is no such file, or it cannot be read in the format of its suffix.
            UsageError: It has another suffix, and no table has this name.
        """
        path = file_of(path)
        _check_suffix(path, tables=True)
        if not path.exists():
            raise CollapseError(f"there is no results file {path}: make one with collapse measure … --output {path}")
        results = cls()
        try:
            open_regular(path).close()  # pandas would block on a FIFO, and read a device until memory is full
            suffix = path.suffix.lower()
            if suffix == ".json":
                read = read_json_table(path)
                results.rows, results._frame = (read, None) if isinstance(read, list) else ([], read)
                results.frame()  # fails now, not later, if a text cannot be encoded as UTF-8
            else:
                results._frame = read_csv(path) if suffix == ".csv" else read_parquet(path)
        except (ValueError, KeyError, TypeError, OSError, OverflowError, csv.Error) as error:
            raise CollapseError(
                f"{path} cannot be read as a {path.suffix} results table: {first_line(error)}"
            ) from error
        return results

    @classmethod
    def from_frame(cls, frame: "pd.DataFrame") -> "Results":
        """Make a table of a pandas DataFrame, a row per model; the column ``model`` has their names.

        >>> import pandas as pd
        >>> Results.from_frame(pd.DataFrame({"model": ["a", "b"], "val_loss": [1.5, 1.25]}))
        Results(2 rows, 2 columns)
        """
        made = cls()
        made._frame = frame.reset_index(drop=True)
        return made

    def write(self, path: str | Path) -> None:
        """Write a .csv, .json or .parquet file atomically.

        A .json file has rows with notes and versions; that of a table read from elsewhere has a value per column.

        Raises:
            CollapseError: The file cannot be written.
            UsageError: As for :func:`check_output`.
        """
        path = Path(path)
        columns = OURS if self._frame is None else frozenset(map(str, self._frame.columns))
        check_output(path, columns=OURS if columns >= OURS else columns)
        try:
            write_output(path, self._rendered(path.suffix.lower()))
        except UnicodeError as error:
            raise CollapseError(f"cannot write {path}: a name in it is not UTF-8: write .json") from error

    def records(self) -> list[dict[str, Any]]:
        """Return the rows for JSON; those of a table from elsewhere have a value per column, None where missing."""
        if self._frame is None:
            return [row.to_dict() for row in self.rows]
        return [
            {str(name): plain(None if _is_missing(value) else value) for name, value in record.items()}
            for record in self._frame.to_dict("records")
        ]

    def _rendered(self, suffix: str) -> bytes:
        if suffix == ".json":
            return (json.dumps(self.records(), indent=1) + "\n").encode()
        if suffix == ".csv":
            return as_csv(self.frame())
        table = BytesIO()
        self.frame().to_parquet(table, index=False)
        return table.getvalue()


def _is_missing(value: Any) -> bool:
    import pandas as pd

    return pd.isna(value) is True


def _checked(rows: Any) -> list[Row]:
    """Return rows as a list; raises UsageError for anything else."""
    wanted = "Results needs a list of rows, as collapse.measure returns them"
    if isinstance(rows, Row) or not isinstance(rows, Iterable) or hasattr(rows, "columns"):  # a DataFrame has columns
        raise UsageError(f"{wanted}, got a {type(rows).__name__}" + (": give [row]" if isinstance(rows, Row) else ""))
    listed = list(rows)
    for each in listed:
        if not isinstance(each, Row):
            raise UsageError(f"{wanted}, got a {type(each).__name__} among them")
    return listed


def check_output(path: str | Path, *, what: str = "results table", columns: Set[str] = OURS) -> None:
    """Check an output file before any work is done for it.

    Args:
        path: Where a table is to be written.
        what: The kind of table, for messages.
        columns: Columns that every table of this kind has.

    Raises:
        UsageError: The suffix is not that of a results file, it cannot be written, or the file exists and is not such
            a table.
    """
    path = Path(path)
    _check_suffix(path)
    check_output_place(path)
    if path.name in (MANIFEST, RESULTS, ORIGIN) and (path.parent / MANIFEST).is_file():
        raise UsageError(f"{path} has the name of a file of the store {path.parent}: choose another --output")
    if path.exists() and not _holds_ours(path, columns):
        raise UsageError(f"{path} exists and is not a {what} of collapse: choose another --output")


def holds_rows(path: str | Path) -> bool:
    """Whether the file already holds a table, which writing would replace."""
    path = Path(path)
    return path.is_file() and path.stat().st_size > 0


def _holds_ours(path: Path, columns: Set[str]) -> bool:
    """Whether a file is empty, or a table with these columns."""
    import pandas as pd

    try:
        with open_regular(path) as file:
            if not file.read(1):
                return True
        suffix = path.suffix.lower()
        if suffix == ".json":
            given = read_json(path)
            return isinstance(given, list) and all(isinstance(each, dict) and each.keys() >= columns for each in given)
        if suffix == ".csv":
            return set(pd.read_csv(path, nrows=0).columns) >= columns
        import pyarrow.parquet as parquet

        return set(parquet.read_schema(path).names) >= columns
    except (CollapseError, ValueError, OSError):
        return False


def _check_suffix(path: Path, *, tables: bool = False) -> None:
    if path.suffix.lower() not in (".csv", ".json", ".parquet"):
        names = f"; known by name: {', '.join(sorted(named_results()))}" if tables and named_results() else ""
        raise UsageError(f"{path} is not a results file: its name must end in .csv, .json or .parquet{names}")
