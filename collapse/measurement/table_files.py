"""Read tables: CSV and JSON, from collapse or elsewhere."""

import warnings
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

from collapse.core.reading import read_json
from collapse.measurement.rows import ABOUT, Row

if TYPE_CHECKING:
    import pandas as pd

_NAMES = ("model", "corpus")  # columns of names: a model may be called NA
_MISSING = ["", "NA", "N/A", "n/a", "#N/A", "<NA>", "NaN", "nan", "null", "NULL", "None"]
"""Texts that mean a missing value, except in columns of text."""
_TEXTS = {each.name: str for each in fields(Row) if each.name in ABOUT and each.type in (str, str | None)}
"""Columns of text, even if a hash or a name looks like a number."""


def read_rows(path: Path) -> "list[Row] | pd.DataFrame":
    """Read a .json file: rows that collapse measured, or plain records with a value per column as a DataFrame.

    Raises:
        TypeError: The file holds neither.
    """
    import pandas as pd

    given = read_json(path)
    if not isinstance(given, list) or not all(isinstance(each, dict) for each in given):
        raise TypeError("it is not a list of rows")
    if all("measurements" in each for each in given):
        return [Row.from_dict(each) for each in given]
    return pd.DataFrame(given)


def read_csv(path: Path) -> "pd.DataFrame":
    """Read a .csv file exactly; names of models and the texts in our columns stay unchanged.

    Raises:
        ValueError: The file is not CSV in UTF-8, or a row has more values than the heading.
    """
    import pandas as pd

    # pandas reads floats exactly by default since 3.1, before that only with an option
    old = tuple(map(int, pd.__version__.split(".")[:2])) < (3, 1)
    exactly: dict[str, Any] = {"float_precision": "round_trip"} if old else {}
    missing = {name: _MISSING for name in pd.read_csv(path, nrows=0) if name not in _NAMES}
    # without index_col=False, pandas shifts the values of rows that end with a comma to other columns
    how: dict[str, Any] = {"index_col": False, "dtype": _TEXTS, "keep_default_na": False, "na_values": missing}
    with warnings.catch_warnings():
        # an unquoted comma in a name shifts the values that follow it, and pandas only warns
        warnings.simplefilter("error", pd.errors.ParserWarning)
        try:
            return pd.read_csv(path, **how, **exactly)
        except pd.errors.ParserWarning as error:
            raise ValueError("a row has more values than the heading has names: quote names with commas") from error
