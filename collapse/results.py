"""Results: a row a model, a column a measurement; read, written, and handed to analyses.

No number without its origin: a row names the store's digest, the versions of the metrics, what was left out, and
every remark that belongs beside a number.
"""

import csv
import json
import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from types import NoneType
from typing import TYPE_CHECKING, Any

from collapse.errors import CollapseError, UsageError, first_line
from collapse.escaping import guarded, unguarded
from collapse.files import ANOTHER_OUTPUT, read_json, write_error

if TYPE_CHECKING:
    import pandas as pd

ABOUT = ("model", "revision", "corpus", "store", "min_count", "classes", "dim", "samples")
"""The columns of a table before its measurements."""

_KINDS: dict[str, tuple[type, ...]] = {
    "model": (str,),
    "revision": (str, NoneType),
    "corpus": (str,),
    "store": (str,),
    "min_count": (int,),
    "classes": (int,),
    "dim": (int,),
    "samples": (int,),
    "measurements": (dict,),
    "versions": (dict,),
    "excluded": (dict,),
}
_NAMES = ("model", "corpus")  # anybody's text: never a number nor missing, though a model may be called 007 or NA
_TEXT = (*_NAMES, "revision", "store", "versions")


@dataclass(frozen=True)
class Note:
    """A remark beside a measurement; ``measurement`` is ``*`` for one about the whole row."""

    measurement: str
    kind: str
    text: str


@dataclass(frozen=True)
class Row:
    """What was measured of one store.

    Attributes:
        model: Name of the model, or file name of a features file.
        revision: Commit of a Hub model, or None.
        corpus: Name of the training corpus.
        store: Digest of the store.
        min_count: Classes with fewer samples were left out.
        classes: C.
        dim: d.
        samples: N, training samples of these classes.
        measurements: A number a measurement, or None where it cannot be had (a note says why).
        versions: Version of each measurement's definition.
        excluded: Pairs of classes left out, where there are any.
        notes: Remarks.
    """

    model: str
    revision: str | None
    corpus: str
    store: str
    min_count: int
    classes: int
    dim: int
    samples: int
    measurements: dict[str, float | None]
    versions: dict[str, int] = field(default_factory=dict)
    excluded: dict[str, int] = field(default_factory=dict)
    notes: tuple[Note, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """As JSON has it; an infinite number becomes null, since JSON has none."""
        made = asdict(self)
        made["notes"] = [asdict(note) for note in self.notes]
        made["measurements"] = {
            name: value if value is not None and math.isfinite(value) else None
            for name, value in self.measurements.items()
        }
        return made

    @classmethod
    def from_dict(cls, row: Mapping[str, Any]) -> "Row":
        """The row that :meth:`to_dict` gave.

        Raises:
            KeyError, TypeError: It is no such row.
        """
        made = cls(**{**row, "notes": tuple(Note(**note) for note in row["notes"])})
        for name, kinds in _KINDS.items():
            if type(getattr(made, name)) not in kinds:
                raise TypeError(f"its {name} is {getattr(made, name)!r:.40}")
        numbers = [*made.measurements.values(), *made.versions.values(), *made.excluded.values()]
        if not all(isinstance(value, (int, float, NoneType)) and _is_float(value or 0) for value in numbers):
            raise TypeError("a measurement, version or exclusion is no number")
        if not all(type(text) is str for note in made.notes for text in vars(note).values()):
            raise TypeError("a note is no text")
        return made


def _is_float(value: int | float) -> bool:
    """Whether a number can be one: an integer of a file may be too large."""
    try:
        float(value)
    except OverflowError:
        return False
    return True


class Results:
    """A results table: rows measured here, or the records of a file."""

    def __init__(self, rows: Iterable[Row] = ()) -> None:
        self.rows = list(rows)
        self._frame: pd.DataFrame | None = None

    def __len__(self) -> int:
        return len(self.frame())

    def __iter__(self) -> Iterator[Row]:
        return iter(self.rows)

    def frame(self) -> "pd.DataFrame":
        """As a pandas DataFrame: what a row is about, a column a measurement, ``versions`` as JSON text."""
        import pandas as pd

        if self._frame is not None:
            return self._frame
        records = []
        for row in self.rows:
            record = {name: getattr(row, name) for name in ABOUT}
            record |= row.measurements
            record["versions"] = json.dumps(row.versions, sort_keys=True)
            records.append(record)
        return pd.DataFrame(records, columns=None if records else [*ABOUT, "versions"])

    @classmethod
    def read(cls, path: str | Path) -> "Results":
        """Read a .csv, .json or .parquet file, ours or anybody's (published tables are plain CSV).

        Raises:
            CollapseError: There is no such file, or it cannot be read as what its name says.
            UsageError: The suffix is none of these.
        """
        import pandas as pd

        path = Path(path)
        _check_suffix(path)
        if not path.is_file():
            raise CollapseError(f"there is no results file {path}: make one with collapse measure … --output {path}")
        results = cls()
        try:
            if path.suffix == ".json":
                results.rows = [Row.from_dict(row) for row in read_json(path)]
                results.frame()  # fails now, not later, where measurements are none
            elif path.suffix == ".csv":
                # pandas reads floats to the last bit since 3.1, and before it when asked to
                old = tuple(map(int, pd.__version__.split(".")[:2])) < (3, 1)
                exactly = {"float_precision": "round_trip"} if old else {}
                frame = pd.read_csv(path, dtype=dict.fromkeys(_TEXT, str), **exactly)
                names = [name for name in _NAMES if name in frame]
                if names:  # text as it stands, even NA, which stands for a missing number elsewhere
                    frame[names] = pd.read_csv(path, usecols=names, dtype=str, keep_default_na=False)[names]
                results._frame = _texts(frame, unguarded)
            else:
                results._frame = pd.read_parquet(path)
        except (ValueError, KeyError, TypeError, OSError, RecursionError) as error:
            raise CollapseError(
                f"{path} cannot be read as a {path.suffix} results table: {first_line(error)}"
            ) from error
        return results

    def write(self, path: str | Path) -> None:
        """Write a .csv, .json or .parquet file, whole or not at all.

        Raises:
            CollapseError: The place cannot be written.
            UsageError: The suffix is none of these, or is .json for a table read from .csv or .parquet.
        """
        path = Path(path)
        _check_suffix(path)
        if path.suffix == ".json" and self._frame is not None:
            raise UsageError(
                f"a table read from .csv or .parquet has no rows to write to {path}: write .csv or .parquet"
            )
        partial = path.with_name(f".{path.name}.partial")
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            if path.suffix == ".json":
                text = json.dumps([row.to_dict() for row in self.rows], indent=1)
                partial.write_text(text + "\n", encoding="utf-8")
            elif path.suffix == ".csv":
                write_csv(self.frame(), partial)
            else:
                self.frame().to_parquet(partial, index=False)
            partial.replace(path)
        except OSError as error:
            raise write_error(path, error, other=ANOTHER_OUTPUT) from error
        except UnicodeError as error:
            raise CollapseError(f"cannot write {path}: a name in it is not UTF-8: write .json") from error
        finally:
            with suppress(OSError):  # its folder may be what could not be made
                partial.unlink(missing_ok=True)


@dataclass(frozen=True)
class Table:
    """What an analysis returns: a titled table with remarks below.

    Attributes:
        title: One line.
        columns: Headings.
        rows: Values, one list a row; None prints as –.
        notes: Remarks, one a line.
    """

    title: str
    columns: list[str]
    rows: list[list[Any]]
    notes: list[str] = field(default_factory=list)

    def records(self) -> list[dict[str, Any]]:
        """The rows as dictionaries, for JSON."""
        return [dict(zip(self.columns, row, strict=True)) for row in self.rows]


def write_csv(frame: "pd.DataFrame", path: Path) -> None:
    """A table as CSV that no spreadsheet takes for formulas; numbers stay numbers (see collapse.escaping.guarded)."""
    made = _texts(frame, guarded)
    returns = any("\r" in str(value) for column in made.select_dtypes(["object", "str"]) for value in made[column])
    # csv leaves a lone carriage return without quotes, and readers take it for the end of a line
    made.to_csv(path, index=False, quoting=csv.QUOTE_NONNUMERIC if returns else csv.QUOTE_MINIMAL)


def _texts(frame: "pd.DataFrame", change: Callable[[str], str]) -> "pd.DataFrame":
    """The table with its headings and texts changed, and nothing else."""

    def changed(value: Any) -> Any:
        return change(value) if isinstance(value, str) else value

    made = frame.rename(columns=changed)
    for column in made.select_dtypes(["object", "str"]):
        made[column] = made[column].map(changed, na_action="ignore").astype(made[column].dtype)
    return made


def check_output(path: str | Path) -> None:
    """Refuse an output name before any work is done for it."""
    _check_suffix(Path(path))


def _check_suffix(path: Path) -> None:
    if path.suffix not in (".csv", ".json", ".parquet"):
        raise UsageError(f"{path} is no results file: its name must end in .csv, .json or .parquet")
