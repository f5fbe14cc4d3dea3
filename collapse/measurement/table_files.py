"""Files of tables: CSV, Parquet and JSON, from collapse or elsewhere."""

import csv
import json
import re
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from collapse.core.reading import open_regular, read_json
from collapse.errors import UsageError
from collapse.measurement.rows import IDENTITY, Row
from collapse.stores.writing import check_output_place

if TYPE_CHECKING:
    import pandas as pd

SUFFIXES = (".csv", ".json", ".parquet")
"""Suffixes of results files."""
OURS = frozenset({"model", "store", "versions"})
"""Columns of every table of measurements that collapse writes."""
_NAMES = ("model", "corpus")  # always text: a model may be called 007 or NA
_COUNTS = ("chunk_length", "max_chunks", "max_validation_chunks")  # integers, which may be missing
_TEXTS = ("revision", "store", "versions")
_MISSING = ["", "NA", "N/A", "n/a", "#N/A", "<NA>", "NaN", "nan", "null", "NULL", "None"]
"""What is a missing value in a column of any other name."""
_HEAD = 1 << 16


def read_rows(path: Path) -> "list[Row] | pd.DataFrame":
    """Read a .json file: the rows that collapse measured, or plain records, a value per column, as a DataFrame.

    Raises:
        TypeError: It is neither.
    """
    given = read_json(path)
    if not isinstance(given, list) or not all(isinstance(each, dict) and each for each in given):
        raise TypeError("it is not a list of rows")
    return [Row.from_dict(each) for each in given] if _are_rows(given) else _of_records(given)


def _are_rows(given: Sequence[Mapping[str, Any]]) -> bool:
    return not given or any("measurements" in each for each in given)


def _of_records(records: list[Mapping[str, Any]]) -> "pd.DataFrame":
    import pandas as pd

    for record in records:
        for name, value in record.items():
            if not (value is None or isinstance(value, str | int | float)):
                raise TypeError(f"a value of {name} is a {type(value).__name__}, not a text or a number")
    frame = pd.DataFrame(records)
    for name in frame.select_dtypes("float"):
        given = [record.get(name) for record in records]
        if all(each is None or type(each) is int for each in given):  # pandas rounds those above 2^53
            frame[name] = pd.array(given, dtype="Int64")
    return whole(frame)


def read_csv(path: Path) -> "pd.DataFrame":
    """Read a .csv file; names of models and the texts of our columns stay as they are.

    Raises:
        ValueError: It is not UTF-8, its values are separated by semicolons, or rows are longer than the heading.
    """
    import pandas as pd

    # pandas reads floats exactly by default since 3.1, and before with an option
    old = tuple(map(int, pd.__version__.split(".")[:2])) < (3, 1)
    exactly = {"float_precision": "round_trip"} if old else {}
    try:
        columns = pd.read_csv(path, nrows=0).columns
        identity = [name for name in IDENTITY if name not in _COUNTS] if set(columns) >= OURS else []
        missing = {name: _MISSING for name in columns if name not in _NAMES}
        how: dict[str, Any] = {
            "dtype": dict.fromkeys([*_NAMES, *_TEXTS, *identity], str),
            "na_values": missing,
            **exactly,
        }
        with warnings.catch_warnings():
            # by default pandas moves the values of longer rows to other columns, with index_col=False it drops the last
            warnings.simplefilter("error", pd.errors.ParserWarning)
            frame = pd.read_csv(path, index_col=False, keep_default_na=False, **how)
    except UnicodeDecodeError as error:
        raise ValueError("it is not UTF-8: save it as UTF-8") from error
    except pd.errors.ParserWarning as error:
        raise ValueError("its rows have more values than the heading has names") from error
    if len(frame.columns) == 1 and ";" in frame.columns[0]:
        raise ValueError("its values are separated by semicolons: save it with commas")
    return whole(frame)


def as_csv(frame: "pd.DataFrame") -> bytes:
    """Return a table as CSV.

    Raises:
        UnicodeError: A text cannot be encoded as UTF-8.
    """
    texts = frame.select_dtypes(exclude="number")
    returns = any("\r" in str(value) for name in texts for value in texts[name])
    # csv does not quote a lone carriage return, which readers treat as the end of a line
    quoting = csv.QUOTE_NONNUMERIC if returns else csv.QUOTE_MINIMAL
    return str(frame.to_csv(index=False, quoting=quoting, lineterminator="\n")).encode()


def whole(frame: "pd.DataFrame") -> "pd.DataFrame":
    """Return the table with its counts as integers; pandas makes them floats if some are missing."""
    kinds = {name: "Int64" for name in _COUNTS if name in frame and set(frame.columns) >= OURS}
    return frame.astype(kinds) if kinds else frame


def check_suffix(path: str | Path, suffixes: Sequence[str] = SUFFIXES) -> None:
    """Raise UsageError unless a file's name ends in one of some suffixes."""
    if Path(path).suffix.lower() not in suffixes:
        raise UsageError(f"{path} is not a file of a known format: its name must end in {', '.join(suffixes)}")


def check_output(path: str | Path, suffixes: Sequence[str] = SUFFIXES, *, first: str | None = "model") -> None:
    """Check the file of ``--output`` before any work is done for it.

    Args:
        path: Where a table is to be written.
        suffixes: Suffixes of its formats.
        first: First column of the table, if it is known: a file is replaced only if it is such a table.

    Raises:
        UsageError: The suffix names no format, it cannot be written, or the file exists and is no such table.
    """
    check_suffix(path, suffixes)
    check_output_place(path)
    if first is not None and Path(path).exists() and _first_column(Path(path)) not in ("", first):
        raise UsageError(f"{path} exists and is not such a table of collapse: choose another --output, or remove it")


def _first_column(path: Path) -> str:
    try:
        with open_regular(path) as file:
            head = file.read(_HEAD).decode("utf-8", errors="replace")
        if path.suffix.lower() == ".parquet" and head:
            import pyarrow.parquet as parquet

            return str(parquet.read_schema(path).names[0])
    except (OSError, ValueError, IndexError) as error:
        raise UsageError(f"{path} exists and is no table: choose another --output, or remove it") from error
    return first_of(head, path.suffix.lower())


def first_of(text: str, suffix: str) -> str:
    """Return the first column of a table as CSV, the first key of JSON, or the first line of another file.

    >>> first_of("model,val_loss", ".csv"), first_of('[{"model": 1}]', ".json"), first_of("# Notes", ".md")
    ('model', 'model', '# Notes')
    """
    line = text.partition("\n")[0].rstrip("\r")
    if suffix == ".json" and (key := re.search(r'"([^"]*)"', text)):
        return key[1]
    return line.partition(",")[0].strip('"') if suffix == ".csv" else line


def as_json(records: Sequence[Mapping[str, Any]]) -> bytes:
    """Return records as JSON."""
    return (json.dumps(records, indent=1) + "\n").encode()
