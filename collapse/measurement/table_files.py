"""Files of results tables: CSV, Parquet and JSON, from collapse or elsewhere, as rows or as a pandas DataFrame."""

import codecs
import csv
import math
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from collapse.errors import counted
from collapse.measurement.rows import IDENTITY, SCHEMA, Row
from collapse.reading import read_json

if TYPE_CHECKING:
    import pandas as pd

_NUMBER = re.compile(r"[-+]?(\d+\.?\d*|\.\d+)([eE][-+]?\d+)?", re.ASCII)
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
        schema = record.get("schema", SCHEMA)
        if type(schema) is not int or not 1 <= schema <= SCHEMA:
            raise TypeError(
                f"row {index + 1}: it has schema {schema!r:.40}, and this version reads {SCHEMA}: upgrade "
                "linguistic-collapse"
            )
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


def _check_fields(path: Path) -> None:
    """Refuse other encodings and separators, equal headings, and rows of another length.

    Of the last two, pandas would rename, fill or shift the values.
    """
    with path.open("rb") as start:
        first = start.readline(1 << 16)
    if not first:
        raise ValueError("it is empty")
    if first.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)) or b"\0" in first:
        raise ValueError("it is UTF-16: save it as UTF-8")
    if b";" in first and b"," not in first:
        raise ValueError("its values are separated by semicolons: save it with commas")
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


def read_csv(path: Path) -> "pd.DataFrame":
    """Read a .csv file; the texts of our columns stay as they are."""
    import pandas as pd

    _check_fields(path)
    # pandas reads floats exactly by default since 3.1, and before with an option
    old = tuple(map(int, pd.__version__.split(".")[:2])) < (3, 1)
    exactly: dict[str, Any] = {"float_precision": "round_trip"} if old else {}
    heading = pd.read_csv(path, nrows=0)
    # another program's table may have a column of numbers with the name of one of our text columns
    texts = [*_TEXT, *_IDENTITY_TEXT] if is_ours(heading) else _TEXT
    # without index_col=False, a comma at the end of each row shifts all values to other columns
    frame = pd.read_csv(path, index_col=False, dtype=dict.fromkeys(texts, str), **exactly)
    names = [name for name in _NAMES if name in frame]
    if names:  # unchanged text, even NA, which means a missing number in other columns
        frame[names] = pd.read_csv(path, index_col=False, usecols=names, dtype=str, keep_default_na=False)[names]
    frame = _with_large_numbers(frame, (*texts, *_COUNTS))
    return whole(frame) if is_ours(frame) else frame


def is_written_number(value: Any) -> bool:
    """Whether a text is a plain number, such as ``-1.5e-3``."""
    return isinstance(value, str) and _NUMBER.fullmatch(value.strip()) is not None


def _with_large_numbers(frame: "pd.DataFrame", texts: Iterable[str]) -> "pd.DataFrame":
    """Return the table with whole numbers above 2^64, which pandas leaves texts or Python integers, as float64."""
    import pandas as pd

    for name in _text_columns(frame):
        present = frame[name].dropna()
        if name in texts or not all(type(each) is int or is_written_number(each) for each in present):
            continue
        numbers = [float(str(each)) for each in present]  # float() of an integer raises above the largest float
        if numbers and all(map(math.isfinite, numbers)):
            frame[name] = pd.Series(numbers, index=present.index).reindex(frame.index)
    return frame


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
