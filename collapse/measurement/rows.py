"""A row: the measurements of one store, and its identity. Rows read from a file are checked field by field."""

import math
from collections.abc import Mapping
from dataclasses import MISSING, Field, asdict, dataclass, field, fields
from types import NoneType
from typing import Any

from collapse.errors import counted, near_names
from collapse.measurement.cells import aligned, number
from collapse.measurement.table import Table
from collapse.plugin.plugin_manager import plugins

SCHEMA = 1
"""Version of a row's keys. Keys added by later versions are ignored; rows with a higher version are rejected."""

_LARGEST = 2**63  # limit of the integers of a table
_TEXT, _WHOLE = (str,), (int,)
_TEXT_OR_NONE, _WHOLE_OR_NONE = (str, NoneType), (int, NoneType)
_KINDS: dict[str, tuple[type, ...]] = {
    "model": _TEXT,
    "revision": _TEXT_OR_NONE,
    "corpus": _TEXT,
    "store": _TEXT,
    "min_count": _WHOLE,
    "classes": _WHOLE,
    "dim": _WHOLE,
    "samples": _WHOLE,
    "origin": _TEXT_OR_NONE,
    "validation": _TEXT_OR_NONE,
    "chunk_length": _WHOLE_OR_NONE,
    "max_chunks": _WHOLE_OR_NONE,
    "max_validation_chunks": _WHOLE_OR_NONE,
    "dtype": _TEXT_OR_NONE,
    "weights": _TEXT_OR_NONE,
    "tokenizer": _TEXT_OR_NONE,
    "corpus_id": _TEXT_OR_NONE,
    "validation_id": _TEXT_OR_NONE,
    "class_set": _TEXT_OR_NONE,
}
_SAID = {str: "a text", int: "a count", NoneType: "null"}

ABOUT = tuple(_KINDS)
"""The columns of a table before its measurements."""

IDENTITY = ABOUT[ABOUT.index("origin") :]
"""Columns of these that tables written by earlier versions lack."""


@dataclass(frozen=True)
class Note:
    """A remark on a measurement; ``measurement`` is ``*`` for a remark on the whole row."""

    measurement: str
    kind: str
    text: str


@dataclass(frozen=True)
class Row:
    """The measurements of one store.

    Attributes:
        model: Name of the model, or file name of a features file.
        revision: Commit of a Hub model, or None.
        corpus: Name of the training corpus.
        store: Digest of the store.
        min_count: Classes with fewer samples were excluded.
        class_set: Digests of the stores whose classes alone were kept; None for all classes.
        classes: C.
        dim: d.
        samples: N, training samples of these classes.
        measurements: One number per measurement, or None if it is not available (a note says why).
        versions: Version of each measurement's definition.
        excluded: Number of excluded classes or pairs of classes, by measurement, if there are any.
        notes: Remarks.
        origin: The store's address on the Hub, ``user/repo/folder@commit``, or None for a local store.
        validation: Name of the validation text, or None.
        chunk_length: T, or None for a features file.
        max_chunks: The limit on the chunks of each text, or None for whole texts.
        max_validation_chunks: The validation text's own limit, or None for that of ``max_chunks``.
        dtype: dtype of the model or of the features.
        weights: Fingerprint of the weights and of the model arguments.
        tokenizer: Fingerprint of the tokenizer.
        corpus_id: Hash of the training text's identity: equal for equal text.
        validation_id: Hash of the validation text's identity.
        made_by: Distribution and version behind each measurement.
        layer: The layer that was measured.
        step: The training step of the model, if it is known.
        standard_errors: Standard error by measurement, for those of the validation text that have one.
        nulls: The same measurements of references, by their name, "untrained" and "shuffled", if they were measured.
        schema: Version of the row's keys.
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
    origin: str | None = None
    validation: str | None = None
    chunk_length: int | None = None
    max_chunks: int | None = None
    max_validation_chunks: int | None = None
    dtype: str | None = None
    weights: str | None = None
    tokenizer: str | None = None
    corpus_id: str | None = None
    validation_id: str | None = None
    class_set: str | None = None
    made_by: dict[str, str] = field(default_factory=dict)
    layer: str = "top"
    step: int | None = None
    standard_errors: dict[str, float] = field(default_factory=dict)
    nulls: dict[str, dict[str, float | None]] = field(default_factory=dict)
    schema: int = SCHEMA

    def __getitem__(self, name: str) -> float | None:
        if name not in self.measurements:
            raise KeyError(f"{name!s:.60} was not measured; {near_names(str(name), self.measurements)}")
        return self.measurements[name]

    def __repr__(self) -> str:
        return f"Row({self._about()}; {counted(len(self.measurements), 'measurement')})"

    def __str__(self) -> str:
        headlines = [name for name in plugins().headlines() if name in self.measurements]
        names = headlines or list(self.measurements)
        left, right = max(map(len, names), default=0), aligned([self.measurements[name] for name in names])
        width = max(map(len, right), default=0)
        errors = [self.standard_errors.get(name) for name in names]
        shown = [self._about()]
        for name, value, error in zip(names, right, errors, strict=True):
            said = "" if error is None else f" ± {number(error)}"
            shown.append(f"  {name:<{left}}  {value:>{width}}{said}".rstrip())
        if more := len(self.measurements) - len(names):
            shown.append(f"  {counted(more, 'more measurement')}: row.measurements")
        return "\n".join(shown)

    def _repr_html_(self) -> str:
        return self._table().html()

    def _table(self) -> Table:
        notes = [note.text if note.measurement == "*" else f"{note.measurement}: {note.text}" for note in self.notes]
        values = [[name, value, self.standard_errors.get(name, "")] for name, value in self.measurements.items()]
        columns = ["measurement", "value", "standard error"]
        return Table(self._name(), columns, values, notes=notes)

    def _about(self) -> str:
        return f"{self._name()}: C = {self.classes:,}, d = {self.dim:,}, N = {self.samples:,}"

    def _name(self) -> str:
        return (self.model or "statistics") + (f" on {self.corpus}" if self.corpus else "")

    def to_dict(self) -> dict[str, Any]:
        """Return the row as a dictionary for JSON; infinite numbers become None, because JSON has none."""
        made = asdict(self)
        made["notes"] = [asdict(note) for note in self.notes]
        made["measurements"] = _finite(self.measurements)
        made["nulls"] = {name: _finite(values) for name, values in self.nulls.items()}
        return made

    @classmethod
    def from_dict(cls, row: Mapping[str, Any]) -> "Row":
        """Read a row from the result of :meth:`to_dict`, of this or another version; unknown keys are ignored.

        Raises:
            TypeError: It is not such a row; the message names the field.
        """
        schema = row.get("schema", SCHEMA) if isinstance(row, Mapping) else SCHEMA
        if type(schema) is not int or not 1 <= schema <= SCHEMA:
            raise TypeError(
                f"it has schema {_short(schema)}, and this version reads {SCHEMA}: upgrade linguistic-collapse"
            )
        known = _known(cls, row, "a row")
        kept = _checked_table(known["measurements"], "measurements")
        taken = sorted(kept.keys() & {*ABOUT, "versions"})
        if taken:
            raise TypeError(f"a measurement is called {taken[0]}, as another column is")
        notes = known.get("notes", ())
        if not isinstance(notes, list | tuple):
            raise TypeError(f"its notes are {_short(notes)}, not a list")
        for name, kinds in _KINDS.items():
            value = known.get(name)
            if type(value) not in kinds or (type(value) is int and not 0 <= value < _LARGEST):
                raise TypeError(f"its {name} is {_short(value)}, not {' or '.join(_SAID[kind] for kind in kinds)}")
        for name in ("versions", "excluded", "standard_errors"):
            _checked_table(known.get(name, {}), name)
        made_by = known.get("made_by", {})
        if not isinstance(made_by, dict) or not all(type(each) is str for pair in made_by.items() for each in pair):
            raise TypeError(f"its made_by are {_short(made_by)}, not names with texts")
        nulls = known.get("nulls", {})
        for name, values in (nulls if isinstance(nulls, dict) else {"": nulls}).items():
            _checked_table(values, f"nulls {_short(name)}")
        step = known.get("step")
        if type(known.get("layer", "")) is not str or not (
            step is None or (type(step) is int and 0 <= step < _LARGEST)
        ):
            raise TypeError("its layer must be a text, and its step a count or null")
        return cls(**{**known, "notes": tuple(_note(each) for each in notes)})


def _finite(values: Mapping[str, float | None]) -> dict[str, float | None]:
    return {name: value if value is not None and math.isfinite(value) else None for name, value in values.items()}


def _note(note: Any) -> Note:
    known = _known(Note, note, "a note")
    for name, text in known.items():
        if type(text) is not str:
            raise TypeError(f"a note's {name} is {_short(text)}, not a text")
    return Note(**known)


def _known(kind: type, given: Any, what: str) -> dict[str, Any]:
    """Return the fields of a dataclass that a JSON object holds; others, of later versions, are ignored."""
    if not isinstance(given, Mapping):
        raise TypeError(f"{_short(given)} is not {what}")
    needed = [each.name for each in fields(kind) if _is_needed(each)]
    missing = [name for name in needed if name not in given]
    if missing:
        raise TypeError(f"{what} lacks {', '.join(missing)}")
    return {each.name: given[each.name] for each in fields(kind) if each.name in given}


def _is_needed(each: "Field[Any]") -> bool:
    return each.default is MISSING and each.default_factory is MISSING


def _checked_table(table: Any, name: str) -> dict[str, Any]:
    """Check a table of names with finite numbers or null."""
    if not isinstance(table, dict):
        raise TypeError(f"its {name} are {_short(table)}, not names with numbers")
    for key, value in table.items():
        if type(key) is not str or not (value is None or _is_number(value)):
            raise TypeError(f"{name}: {_short(key)} is {_short(value)}, not a finite number")
    return table


def _is_number(value: Any) -> bool:
    try:
        return type(value) in (int, float) and math.isfinite(value)
    except OverflowError:  # an integer too large for a float
        return False


def _short(value: Any) -> str:
    try:
        return f"{value!r:.40}"
    except ValueError:  # Python refuses to print an integer of thousands of digits
        return "a number too long to show"
