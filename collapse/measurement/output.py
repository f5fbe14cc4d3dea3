"""Write the file of ``--output``: CSV, JSON or Parquet in full precision, or the printed table as Markdown or LaTeX."""

import csv
import json
from collections.abc import Collection
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from collapse.errors import UsageError
from collapse.stores.writing import check_output_place, write_output

if TYPE_CHECKING:
    import pandas as pd

FORMATS = {".csv": "csv", ".json": "json", ".parquet": "parquet", ".md": "markdown", ".tex": "latex"}
"""The format of each suffix."""
RESULTS = (".csv", ".json", ".parquet")
"""Suffixes of results files, which can be written and read."""


@runtime_checkable
class Tabular(Protocol):
    """A table that can be written: a results table, or a table that a command prints."""

    def frame(self) -> "pd.DataFrame":
        """Return the values for CSV and Parquet."""

    def data(self) -> Any:
        """Return the values for JSON."""


def check_output(path: str | Path, suffixes: Collection[str] = tuple(FORMATS)) -> None:
    """Check the file of ``--output`` before any work is done for it.

    Raises:
        UsageError: The suffix is not of a known format, or the file cannot be written.
    """
    if Path(path).suffix.lower() not in suffixes:
        raise UsageError(f"{path} does not have a known format: use a name that ends in {', '.join(suffixes)}")
    check_output_place(path)


def write_table(path: str | Path, table: Tabular, suffixes: Collection[str] = RESULTS) -> None:
    """Write a table atomically, in the format of the file's suffix.

    Raises:
        UsageError: As in :func:`check_output`.
        CollapseError: The write fails.
    """
    check_output(path, suffixes)
    format_ = FORMATS[Path(path).suffix.lower()]
    if format_ == "parquet":
        held = BytesIO()
        table.frame().to_parquet(held, index=False)
        made = held.getvalue()
    else:
        made = rendered(table, format_).encode(errors="replace")
    write_output(path, made)


def rendered(table: Any, format_: str) -> str:
    """Return a table as "csv", "json", "markdown" or "latex"."""
    if format_ == "csv":
        return as_csv(table.frame())
    return as_json(table.data()) + "\n" if format_ == "json" else f"{getattr(table, format_)()}\n"


def as_csv(frame: "pd.DataFrame") -> str:
    """Return a table as CSV."""
    texts = frame.select_dtypes(exclude="number")
    returns = any("\r" in str(value) for name in texts for value in texts[name])
    # the csv module does not quote a lone carriage return, which readers treat as the end of a line
    quoting = csv.QUOTE_NONNUMERIC if returns else csv.QUOTE_MINIMAL
    return str(frame.to_csv(index=False, quoting=quoting, lineterminator="\n"))


def as_json(value: Any) -> str:
    """Return a value as JSON, with JSON's escapes for characters that are not printable."""
    text = json.dumps(value, indent=1, ensure_ascii=False)
    return "".join(c if c.isprintable() or c == "\n" else json.dumps(c)[1:-1] for c in text)
