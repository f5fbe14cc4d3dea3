"""Results tables, with a row per model and a column per measurement: read, write, pass to analyses."""

import csv
import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Set
from contextlib import contextmanager
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Any

from collapse.errors import CollapseError, UsageError, counted, first_line
from collapse.escaping import guarded, unguarded
from collapse.measurement.rows import ABOUT, IDENTITY
from collapse.measurement.rows import Note as Note
from collapse.measurement.rows import Row as Row
from collapse.reading import open_regular, read_json
from collapse.stores.manifest import MANIFEST, ORIGIN, RESULTS
from collapse.stores.writing import check_output_place, write_output

if TYPE_CHECKING:
    import pandas as pd

_NAMES = ("model", "corpus")  # always text: a model may be called 007 or NA
_TEXT = (*_NAMES, "revision", "store", "versions")
OURS = frozenset({"model", "store", "versions"})
"""Columns of every table of measurements that collapse writes."""
_COUNTS = ("chunk_length", "max_chunks")  # integers, which may be missing
_IDENTITY_TEXT = tuple(name for name in IDENTITY if name not in _COUNTS)


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

    def _repr_html_(self) -> str:
        return str(self.frame()._repr_html_())

    def frame(self) -> "pd.DataFrame":
        """Return a pandas DataFrame: identifying columns, one column per measurement, ``versions`` as JSON text."""
        import pandas as pd

        if self._frame is not None:
            return self._frame
        records = []
        for row in self.rows:
            record = {name: getattr(row, name) for name in ABOUT}
            record |= row.measurements
            record["versions"] = json.dumps(row.versions, sort_keys=True)
            records.append(record)
        return _whole(pd.DataFrame(records, columns=None if records else [*ABOUT, "versions"]))

    @classmethod
    def read(cls, path: str | Path) -> "Results":
        """Read a .csv, .json or .parquet file, from collapse or elsewhere (published tables are plain CSV).

        Raises:
            CollapseError: There is no such file, or it cannot be read in the format of its suffix.
            UsageError: It has another suffix.
        """
        path = Path(path)
        _check_suffix(path)
        if not path.exists():
            raise CollapseError(f"there is no results file {path}: make one with collapse measure … --output {path}")
        results = cls()
        try:
            open_regular(path).close()  # pandas would block on a FIFO, and read a device until memory is full
            if path.suffix == ".json":
                results.rows = _read_rows(path)
                results.frame()  # fails now, not later, if a text cannot be encoded as UTF-8
            else:
                frame = _read_csv(path) if path.suffix == ".csv" else _read_parquet(path)
                results._frame = _whole(frame) if _is_ours(frame) else frame
        except (ValueError, KeyError, TypeError, OSError, RecursionError, OverflowError, csv.Error) as error:
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

        Raises:
            CollapseError: The file cannot be written.
            UsageError: As for :func:`check_output`, or the suffix is .json for a table read from .csv or .parquet.
        """
        path = Path(path)
        check_output(path)
        if path.suffix == ".json" and self._frame is not None:
            raise UsageError(
                f"a table read from .csv or .parquet has no rows to write to {path}: write .csv or .parquet"
            )
        try:
            write_output(path, self._rendered(path.suffix))
        except UnicodeError as error:
            raise CollapseError(f"cannot write {path}: a name in it is not UTF-8: write .json") from error

    def _rendered(self, suffix: str) -> bytes:
        if suffix == ".json":
            return (json.dumps([row.to_dict() for row in self.rows], indent=1) + "\n").encode()
        if suffix == ".csv":
            return as_csv(self.frame())
        table = BytesIO()
        self.frame().to_parquet(table, index=False)
        return table.getvalue()


def as_csv(frame: "pd.DataFrame") -> bytes:
    """Return a table as CSV without texts that a spreadsheet would run as formulas (see collapse.escaping).

    Raises:
        UnicodeError: A text cannot be encoded as UTF-8.
    """
    made = _texts(frame, guarded)
    returns = any("\r" in str(value) for column in _text_columns(made) for value in made[column])
    # csv does not quote a lone carriage return, which readers treat as the end of a line
    quoting = csv.QUOTE_NONNUMERIC if returns else csv.QUOTE_MINIMAL
    return str(made.to_csv(index=False, quoting=quoting, lineterminator="\n")).encode()


def _checked(rows: Any) -> list[Row]:
    """Return rows as a list; raises UsageError for anything else."""
    wanted = "a table is made of a list of rows (what collapse.measure returns), or read from a file"
    if isinstance(rows, Row) or not isinstance(rows, Iterable) or hasattr(rows, "columns"):  # a DataFrame has columns
        raise UsageError(
            f"{wanted}; there is a {type(rows).__name__}" + (": give [row]" if isinstance(rows, Row) else "")
        )
    listed = list(rows)
    for each in listed:
        if not isinstance(each, Row):
            raise UsageError(f"{wanted}; among the rows there is a {type(each).__name__}")
    return listed


def _read_rows(path: Path) -> list[Row]:
    given = read_json(path)
    if not isinstance(given, list):
        raise TypeError("it is not a list of rows")
    rows = []
    for index, each in enumerate(given):
        try:
            rows.append(Row.from_dict(each))
        except TypeError as error:
            raise TypeError(f"row {index + 1}: {error}") from error
    return rows


def _check_fields(path: Path) -> None:
    """Refuse headings that are equal, and rows of another length: pandas would rename, fill or shift their values."""
    with path.open(encoding="utf-8", errors="replace", newline="") as file, _fields_of_any_length():
        lines = csv.reader(file)
        heading = next(lines, [])
        twice = [name for name, times in Counter(heading).items() if times > 1 and name]
        if twice:
            raise ValueError(f"two of its columns are called {twice[0]!r}")
        for fields in lines:
            given = fields[:-1] if fields[-1:] == [""] else fields  # a comma at the end
            if fields and not len(given) <= len(heading) <= len(fields):
                raise ValueError(
                    f"line {lines.line_num} has {counted(len(fields), 'value')} where the heading has "
                    f"{counted(len(heading), 'name')}"
                )


@contextmanager
def _fields_of_any_length() -> Iterator[None]:
    before = csv.field_size_limit(2**31 - 1)  # a long on every platform
    try:
        yield
    finally:
        csv.field_size_limit(before)


def _read_csv(path: Path) -> "pd.DataFrame":
    import pandas as pd

    _check_fields(path)
    # pandas reads floats exactly by default since 3.1, and before with an option
    old = tuple(map(int, pd.__version__.split(".")[:2])) < (3, 1)
    exactly: dict[str, Any] = {"float_precision": "round_trip"} if old else {}
    heading = pd.read_csv(path, nrows=0)
    # another program's table may have a column of numbers with the name of one of our text columns
    texts = [*_TEXT, *_IDENTITY_TEXT] if _is_ours(heading) else _TEXT
    # without index_col=False, a comma at the end of each row shifts all values to other columns
    frame = pd.read_csv(path, index_col=False, dtype=dict.fromkeys(texts, str), **exactly)
    names = [name for name in _NAMES if name in frame]
    if names:  # unchanged text, even NA, which means a missing number in other columns
        frame[names] = pd.read_csv(path, index_col=False, usecols=names, dtype=str, keep_default_na=False)[names]
    return _texts(frame, unguarded)


def _read_parquet(path: Path) -> "pd.DataFrame":
    import pandas as pd

    frame = pd.read_parquet(path)
    for column in _text_columns(frame):
        for value in frame[column]:
            if isinstance(value, Iterable) and not isinstance(value, str):
                raise TypeError(f"column {column!r} holds {type(value).__name__}s, not texts or numbers")
    return frame


def _is_ours(frame: "pd.DataFrame") -> bool:
    return set(frame.columns) >= OURS


def _whole(frame: "pd.DataFrame") -> "pd.DataFrame":
    """Return the table with its counts as integers; pandas makes them floats if some are missing."""
    kinds = {name: "Int64" for name in _COUNTS if name in frame}
    return frame.astype(kinds) if kinds else frame


def _text_columns(frame: "pd.DataFrame") -> list[str]:
    """Return the columns that may hold texts: those of pandas 3's string dtype or of object dtype."""
    from pandas.api.types import is_object_dtype, is_string_dtype

    return [name for name, kind in frame.dtypes.items() if is_object_dtype(kind) or is_string_dtype(kind)]


def _texts(frame: "pd.DataFrame", change: Callable[[str], str]) -> "pd.DataFrame":
    """Return the table with a change applied to its headings and texts only."""

    def changed(value: Any) -> Any:
        return change(value) if isinstance(value, str) else value

    made = frame.rename(columns=changed)
    for column in _text_columns(made):
        made[column] = made[column].map(changed, na_action="ignore").astype(made[column].dtype)
    return made


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
        if path.suffix == ".json":
            given = read_json(path)
            return isinstance(given, list) and all(isinstance(each, dict) and each.keys() >= columns for each in given)
        if path.suffix == ".csv":
            return set(pd.read_csv(path, nrows=0).columns) >= columns
        import pyarrow.parquet as parquet

        return set(parquet.read_schema(path).names) >= columns
    except (CollapseError, ValueError, OSError):
        return False


def _check_suffix(path: Path) -> None:
    if path.suffix not in (".csv", ".json", ".parquet"):
        raise UsageError(f"{path} is not a results file: its name must end in .csv, .json or .parquet")
