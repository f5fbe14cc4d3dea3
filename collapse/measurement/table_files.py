"""Read tables: CSV, Parquet and JSON, from collapse or elsewhere."""

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

from collapse.core.reading import read_json
from collapse.measurement.rows import ABOUT, Row

if TYPE_CHECKING:
    import pandas as pd

_OURS = frozenset({"model", "store", "versions"})
"""Columns of every table of measurements that collapse writes."""
_NAMES = ("model", "corpus")  # text in any table: a model may be called 007 or NA
_COUNTS = [each.name for each in fields(Row) if each.name in ABOUT and each.type == int | None]
_TEXTS = ["versions", *(each.name for each in fields(Row) if each.name in ABOUT and each.type in (str, str | None))]
_MISSING = ["", "NA", "N/A", "n/a", "#N/A", "<NA>", "NaN", "nan", "null", "NULL", "None"]
"""What is a missing value in a column of any other name."""


def read_rows(path: Path) -> "list[Row] | pd.DataFrame":
    """Read a .json file: the rows that collapse measured, or plain records, a value per column, as a DataFrame.

    Raises:
        TypeError: It is neither.
    """
    given = read_json(path)
    if not isinstance(given, list) or not all(isinstance(each, dict) and each for each in given):
        raise TypeError("it is not a list of rows")
    if not given or any("measurements" in each for each in given):
        return [Row.from_dict(each) for each in given]
    return frame_of_records(given)


def frame_of_records(records: Sequence[Mapping[str, Any]]) -> "pd.DataFrame":
    """Return records, a text or a number per column, as a DataFrame; whole numbers stay whole beside missing ones.

    Raises:
        TypeError: A value is something else.
    """
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
    how: dict[str, Any] = {"float_precision": "round_trip"} if old else {}
    try:
        columns = pd.read_csv(path, nrows=0).columns
        if len(columns) == 1 and ";" in columns[0]:
            raise ValueError("its values are separated by semicolons: save it with commas")
        texts = dict.fromkeys(_TEXTS if set(columns) >= _OURS else _NAMES, str)
        missing = {name: _MISSING for name in columns if name not in _NAMES}
        with warnings.catch_warnings():
            # by default pandas moves the values of longer rows to other columns, with index_col=False it drops the last
            warnings.simplefilter("error", pd.errors.ParserWarning)
            frame = pd.read_csv(path, index_col=False, dtype=texts, keep_default_na=False, na_values=missing, **how)
    except UnicodeDecodeError as error:
        raise ValueError("it is not UTF-8: save it as UTF-8") from error
    except pd.errors.ParserWarning as error:
        raise ValueError("its rows have more values than the heading has names") from error
    return whole(frame)


def whole(frame: "pd.DataFrame") -> "pd.DataFrame":
    """Return the table with its counts as integers; pandas makes them floats if some are missing."""
    kinds = {name: "Int64" for name in _COUNTS if name in frame and set(frame.columns) >= _OURS}
    return frame.astype(kinds) if kinds else frame
