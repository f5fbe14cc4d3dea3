"""Files of results tables: CSV, Parquet and JSON, from collapse or elsewhere, as rows or as a pandas DataFrame."""

import csv
import warnings
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from collapse.core.reading import read_json
from collapse.measurement.rows import IDENTITY, Row

if TYPE_CHECKING:
    import pandas as pd

_NAMES = ("model", "corpus")  # always text: a model may be called 007 or NA
_TEXT = (*_NAMES, "revision", "store", "versions")
OURS = frozenset({"model", "store", "versions"})
"""Columns of every table of measurements that collapse writes."""
_COUNTS = ("chunk_length", "max_chunks", "max_validation_chunks")  # integers, which may be missing
_IDENTITY_TEXT = tuple(name for name in IDENTITY if name not in _COUNTS)


def read_json_table(path: Path) -> "list[Row] | pd.DataFrame":
    """Read a .json file: the rows that collapse measured, or plain records, a value per column, as a DataFrame.

    Raises:
        TypeError: It is not such a list; the message names the row.
    """
    given = read_json(path)
    if not isinstance(given, list):
        raise TypeError("it is not a list of rows")
    if given and all(isinstance(each, dict) and _is_record(each) for each in given):
        return _of_records(given)
    rows = []
    for index, each in enumerate(given):
        try:
            rows.append(Row.from_dict(each))
        except TypeError as error:
            raise TypeError(f"row {index + 1}: {error}") from error
    return rows


def _is_record(given: Mapping[str, Any]) -> bool:
    """Whether an object has a value per column, not a row's measurements and notes; its values may all be missing."""
    return bool(given) and not given.keys() & {"measurements", "notes"}


def _of_records(records: list[Mapping[str, Any]]) -> "pd.DataFrame":
    import pandas as pd

    for index, record in enumerate(records):
        for name, value in record.items():
            if not (value is None or isinstance(value, str | int | float)):
                raise TypeError(f"row {index + 1}: its {name} is a {type(value).__name__}, not a text or a number")
    frame = pd.DataFrame(records)
    for name in frame:
        given = [record[name] for record in records if record.get(name) is not None]
        if len(given) < len(records) and given and all(type(each) is int and abs(each) < 2**63 for each in given):
            # pandas makes floats of whole numbers if some are missing, and rounds those above 2^53
            frame[name] = pd.array([record.get(name) for record in records], dtype="Int64")
    return whole(frame) if is_ours(frame) else frame


def as_csv(frame: "pd.DataFrame") -> bytes:
    """Return a table as CSV.

    Raises:
        UnicodeError: A text cannot be encoded as UTF-8.
    """
    returns = any("\r" in str(value) for column in _text_columns(frame) for value in frame[column])
    # csv does not quote a lone carriage return, which readers treat as the end of a line
    quoting = csv.QUOTE_NONNUMERIC if returns else csv.QUOTE_MINIMAL
    return str(frame.to_csv(index=False, quoting=quoting, lineterminator="\n")).encode()


def read_csv(path: Path) -> "pd.DataFrame":
    """Read a .csv file; the texts of our columns stay as they are.

    Raises:
        ValueError: It is not UTF-8, its values are separated by semicolons, or rows are longer than the heading.
    """
    import pandas as pd

    # pandas reads floats exactly by default since 3.1, and before with an option
    old = tuple(map(int, pd.__version__.split(".")[:2])) < (3, 1)
    exactly: dict[str, Any] = {"float_precision": "round_trip"} if old else {}
    try:
        heading = pd.read_csv(path, nrows=0)
    except UnicodeDecodeError as error:
        raise ValueError("it is not UTF-8: save it as UTF-8") from error
    if len(heading.columns) == 1 and ";" in heading.columns[0]:
        raise ValueError("its values are separated by semicolons: save it with commas")
    # another program's table may have a column of numbers with the name of one of our text columns
    texts = [*_TEXT, *_IDENTITY_TEXT] if is_ours(heading) else _TEXT
    with warnings.catch_warnings():
        # by default pandas moves the values of longer rows to other columns, with index_col=False it drops the last
        warnings.simplefilter("error", pd.errors.ParserWarning)
        try:
            frame = pd.read_csv(path, index_col=False, dtype=dict.fromkeys(texts, str), **exactly)
        except pd.errors.ParserWarning as error:
            raise ValueError("its rows have more values than the heading has names") from error
    names = [name for name in _NAMES if name in frame]
    if names:  # unchanged text, even NA, which means a missing number in other columns
        frame[names] = pd.read_csv(path, index_col=False, usecols=names, dtype=str, keep_default_na=False)[names]
    return whole(frame) if is_ours(frame) else frame


def read_parquet(path: Path) -> "pd.DataFrame":
    """Read a .parquet file of texts and numbers."""
    import pandas as pd

    frame = pd.read_parquet(path)
    for column in _text_columns(frame):
        for value in frame[column]:
            if isinstance(value, Iterable) and not isinstance(value, str):
                raise TypeError(f"column {column!r} holds {type(value).__name__}s, not texts or numbers")
    return whole(frame) if is_ours(frame) else frame


def is_ours(frame: "pd.DataFrame") -> bool:
    """Whether a table has the columns of every table that collapse writes."""
    return set(frame.columns) >= OURS


def whole(frame: "pd.DataFrame") -> "pd.DataFrame":
    """Return the table with its counts as integers; pandas makes them floats if some are missing."""
    kinds = {name: "Int64" for name in _COUNTS if name in frame}
    return frame.astype(kinds) if kinds else frame


def _text_columns(frame: "pd.DataFrame") -> list[str]:
    """Return the columns that may hold texts: those of pandas 3's string dtype or of object dtype."""
    from pandas.api.types import is_object_dtype, is_string_dtype

    return [name for name, kind in frame.dtypes.items() if is_object_dtype(kind) or is_string_dtype(kind)]
