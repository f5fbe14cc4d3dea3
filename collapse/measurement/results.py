"""Read, write and join results tables, which have a row per model and a column per measurement."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

from collapse.core.reading import read_json
from collapse.errors import CollapseError, UsageError, counted, first_line
from collapse.measurement.cells import plain
from collapse.measurement.columns import choose_rows
from collapse.measurement.model_names import with_parts
from collapse.measurement.output import RESULTS, write_table
from collapse.measurement.rows import ABOUT, frame_of
from collapse.measurement.rows import Note as Note
from collapse.measurement.rows import Row as Row
from collapse.plugin.plugin_manager import plugins
from collapse.stores.layer_names import TOP

if TYPE_CHECKING:
    import pandas as pd


_NAMES = ("model", "corpus")  # columns of names: a model may be called NA
_MISSING = ["", "NA", "N/A", "n/a", "#N/A", "<NA>", "NaN", "nan", "null", "NULL", "None"]
"""Texts that mean a missing value, except in the columns ``_NAMES``."""
_TEXTS = {each.name: str for each in fields(Row) if each.name in ABOUT and each.type in (str, str | None)}
"""Columns that are read as text, even if a hash or a name in them looks like a number."""


class Results:
    """A results table: rows measured by collapse, or a table from elsewhere.

    Attributes:
        lines: For each line of the :meth:`frame`, its :class:`collapse.Row`; None for a line of a CSV or Parquet file,
            or of a table from elsewhere.
    """

    def __init__(self, rows: Iterable[Row] = ()) -> None:
        given = [rows] if isinstance(rows, Row) or not isinstance(rows, Iterable) else list(rows)
        if not all(isinstance(each, Row) for each in given):  # stores, for example
            raise UsageError("Results() takes rows (collapse.Row): give what collapse.measure() returns")
        self.lines: list[Row | None] = [*given]
        self._frame: pd.DataFrame | None = None

    @property
    def rows(self) -> list[Row]:
        """The rows, as :func:`collapse.measure` returns them, with notes and null baselines.

        Lines without a :class:`collapse.Row` are left out, so a table read from a CSV or Parquet file has no rows.
        """
        return [row for row in self.lines if row is not None]

    def __len__(self) -> int:
        return len(self.frame())

    def __repr__(self) -> str:
        frame = self.frame()
        return f"Results({counted(len(frame), 'row')}, {counted(len(frame.columns), 'column')})"

    def __str__(self) -> str:
        return str(self.frame())

    def _repr_html_(self) -> str:
        return str(self.frame()._repr_html_())

    def frame(self) -> "pd.DataFrame":
        """Return a pandas DataFrame.

        Rows of collapse have identifying columns, one column per measurement, and ``versions`` as JSON text. A table
        from elsewhere has its own columns.
        """
        return frame_of(self.rows) if self._frame is None else self._frame

    @classmethod
    def read(cls, path: str | Path) -> "Results":
        """Read a .csv, .json or .parquet file, from collapse or elsewhere (published tables are plain CSV).

        Args:
            path: The file, or the name of a table that a plugin provides: ``paper`` has the published measurements.

        Raises:
            CollapseError: There is no such file, or it cannot be read in the format of its suffix.
            UsageError: The file has another suffix, and no table has this name.
            PluginError: A plugin that provides tables failed.
        """
        import pandas as pd

        path = file_of(path)
        suffix = path.suffix.lower()
        if suffix not in RESULTS:
            names = ", ".join(sorted(named_results()))
            raise UsageError(
                f"{path} is not a results file: give a .csv, .json or .parquet file, or one of the names {names}"
            )
        if not path.exists():
            raise CollapseError(f"there is no results file {path}: make one with collapse measure … --output {path}")
        try:
            if suffix == ".json":
                return _read_json(path)
            return cls.from_frame(_read_csv(path) if suffix == ".csv" else pd.read_parquet(path))
        except (ValueError, KeyError, TypeError, OSError) as error:
            said = f"{path} cannot be read as a {suffix} results table: {first_line(error)}"
            raise CollapseError(said) from error

    @classmethod
    def from_frame(cls, frame: "pd.DataFrame") -> "Results":
        """Make a table from a pandas DataFrame with a row per model, and the models' names in the column ``model``.

        >>> import pandas as pd
        >>> Results.from_frame(pd.DataFrame({"model": ["a", "b"], "val_loss": [1.5, 1.25]}))
        Results(2 rows, 2 columns)
        """
        made = cls()
        made._frame = frame.reset_index(drop=True).copy()  # joins pandas' blocks, as in frame_of()
        made.lines = [None] * len(frame)
        return made

    @classmethod
    def from_records(cls, records: Sequence[Mapping[str, Any]]) -> "Results":
        """Make a table from dictionaries, one per row, whose values are texts, numbers or None."""
        import pandas as pd

        return cls.from_frame(pd.DataFrame(records, dtype=object))  # so that integers stay integers beside None

    def write(self, path: str | Path) -> None:
        """Write a .csv, .json or .parquet file atomically, replacing an existing one.

        A .json file also has notes and null baselines, if every line of the table has a :class:`collapse.Row`. Other
        files have only the values of :meth:`frame`.

        Raises:
            UsageError: The suffix is not of a known format, or no file can be created there.
            CollapseError: The write fails.
        """
        write_table(path, self)

    def data(self) -> list[dict[str, Any]]:
        """Return a list of dictionaries for JSON.

        If every line of the table has a :class:`collapse.Row`, each dictionary has the fields of a row. Otherwise, each
        dictionary has a value for every column; a missing value is None.
        """
        if self._frame is None:
            return [row.to_dict() for row in self.rows]
        # notna() is True for a list, even for a list of missing values
        known = self._frame.astype(object).where(self._frame.notna(), None)
        return [{str(name): plain(value) for name, value in record.items()} for record in known.to_dict("records")]


def join(
    tables: Iterable[Results | str | Path],
    *,
    columns: Mapping[str, str | int | float] | None = None,
    parts: bool = False,
    where: str | Sequence[str] | None = None,
) -> Results:
    """Join tables into one table that has all their rows, in order.

    The rows of a table have missing values in each column that this table lacks.

    Args:
        tables: Tables or their files; ``paper`` names the published measurements.
        columns: Columns to add, each with one value for all rows.
        parts: Add the values in models' names as columns: depth, width, epochs, decay, seed, checkpoint, architecture,
            recipe.
        where: Keep the rows whose column matches a glob, such as ``width=64``; several filters must all match. Filters
            can use the columns of ``parts`` even if these are not added.

    Raises:
        UsageError: No table is given, a column to add already exists, or a filter is wrong.
        CollapseError: A table cannot be read.

    >>> import pandas as pd
    >>> tables = [Results.from_frame(pd.DataFrame({"model": [name], "val_loss": [1.5]})) for name in "ab"]
    >>> join(tables, columns={"seed": 3}).frame().to_dict("records")
    [{'model': 'a', 'val_loss': 1.5, 'seed': 3}, {'model': 'b', 'val_loss': 1.5, 'seed': 3}]
    """
    read = [each if isinstance(each, Results) else Results.read(each) for each in tables]
    if not read:
        raise UsageError("no table to join: give one or more results files")
    frame = _concatenated([each.frame() for each in read])
    named = with_parts(frame)
    kept = choose_rows(named, where)
    if not columns and not parts:  # keep rows, which also have notes and null baselines
        return _beside(kept[list(frame.columns)], [row for each in read for row in each.lines], kept.index)
    frame = kept if parts else kept[list(frame.columns)]
    for name, value in (columns or {}).items():
        if name in frame:
            raise UsageError(f"--set {name}={value}: the table already has this column; choose another name")
        frame = frame.assign(**{name: value})
    return Results.from_frame(frame)


def chosen(results: Results, kept: Iterable[Any]) -> Results:
    """Return a table of only the rows at the positions ``kept``."""
    places = list(kept)
    return _beside(results.frame().iloc[places], results.lines, places)


def _beside(frame: "pd.DataFrame", lines: Sequence[Row | None], places: Iterable[Any]) -> Results:
    """Return a table of the chosen lines, which are at the positions ``places`` of ``lines``.

    ``lines`` has the :class:`Row` of each line, or None. If a chosen line has no row, make the table from ``frame``,
    which holds only the chosen lines.
    """
    found = [lines[int(at)] for at in places]
    if found and None not in found:
        return Results(row for row in found if row is not None)
    made = Results.from_frame(frame)
    made.lines = found
    return made


def _concatenated(frames: "Sequence[pd.DataFrame]") -> "pd.DataFrame":
    """Return the rows of several tables; integer columns stay integers, even if one of the tables lacks them."""
    import pandas as pd
    from pandas.api.types import is_integer_dtype

    frames = [frame for frame in frames if len(frame)] or frames[:1]
    made = pd.concat(frames, ignore_index=True)
    floats = list(made.select_dtypes("float"))
    kinds = {name: "Int64" for name in floats if all(is_integer_dtype(each[name]) for each in frames if name in each)}
    if "layer" in made:  # a table of only the top layer lacks this column
        made["layer"] = made["layer"].fillna(TOP)
    return made.astype(kinds)


def named_results() -> dict[str, Path]:
    """Return the files of all named tables; if two plugins use the same name, the first plugin wins.

    Raises:
        PluginError: A plugin failed.

    >>> "paper" in named_results()
    True
    """
    found: dict[str, Path] = {}
    for _, tables in plugins().answers("collapse_results"):
        found = {**tables, **found}
    return found


def file_of(given: str | Path) -> Path:
    """Return the file of a named table, or the given path if no table has this name.

    The table takes precedence over a file or folder of the same name: names have no suffix, but results files must
    have one. ``./paper`` always means the path.

    >>> file_of("results.csv").name
    'results.csv'
    """
    return Path(named_results().get(str(given), given))


def _read_json(path: Path) -> Results:
    """Read a .json file: rows that collapse measured, or plain records with a value per column.

    Raises:
        TypeError: The file holds neither.
    """
    import pandas as pd

    given = read_json(path)
    if not isinstance(given, list) or not all(isinstance(each, dict) for each in given):
        raise TypeError("it must be a list of rows; collapse measure --output writes such a file")
    if all("measurements" in each for each in given):
        return Results(map(Row.from_dict, given))
    return Results.from_frame(pd.DataFrame(given))


def _read_csv(path: Path) -> "pd.DataFrame":
    """Read a .csv file with exact floats.

    The columns in ``_TEXTS`` are read as text. In the columns ``_NAMES``, a text such as NA is a name, not
    a missing value.

    Raises:
        ValueError: The file is not CSV in UTF-8, or a row has more values than the heading.
    """
    import pandas as pd

    # pandas reads floats exactly by default since 3.1, before that only with an option
    old = tuple(map(int, pd.__version__.split(".")[:2])) < (3, 1)
    exactly: dict[str, Any] = {"float_precision": "round_trip"} if old else {}
    missing = {name: _MISSING for name in pd.read_csv(path, nrows=0) if name not in _NAMES}
    how: dict[str, Any] = {"dtype": _TEXTS, "keep_default_na": False, "na_values": missing}
    frame = pd.read_csv(path, **how, **exactly)
    if not isinstance(frame.index, pd.RangeIndex):  # pandas takes surplus values at the start of rows for their names
        raise ValueError("a row has more values than the heading has columns: put values with commas in quotes")
    return frame
