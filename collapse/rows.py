"""A row: the measurements of one store, and what the store is of. Rows read from a file are checked field by field."""

import math
from collections.abc import Mapping
from dataclasses import MISSING, Field, asdict, dataclass, field, fields
from types import NoneType
from typing import Any

_LARGEST = 2**63  # what a table's whole numbers hold
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
    "dtype": _TEXT_OR_NONE,
    "weights": _TEXT_OR_NONE,
    "tokenizer": _TEXT_OR_NONE,
    "corpus_id": _TEXT_OR_NONE,
    "validation_id": _TEXT_OR_NONE,
}
_SAID = {str: "a text", int: "a count", NoneType: "null"}

ABOUT = tuple(_KINDS)
"""The columns of a table before its measurements."""

IDENTITY = ABOUT[ABOUT.index("origin") :]
"""Those of them that tables written by earlier versions lack."""


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
        origin: Where on the Hub the store comes from, ``user/repo/folder@commit``, or None for a local one.
        validation: Name of the validation text, or None.
        chunk_length: T, or None for a features file.
        max_chunks: The limit on the chunks of each text, or None for whole texts.
        dtype: In which the model ran, or of the features.
        weights: Fingerprint of the weights and of the model arguments.
        tokenizer: Fingerprint of the tokenizer.
        corpus_id: Hash of the training text's identity: equal for equal text.
        validation_id: The same of the validation text.
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
    dtype: str | None = None
    weights: str | None = None
    tokenizer: str | None = None
    corpus_id: str | None = None
    validation_id: str | None = None

    def to_dict(self) -> dict[str, Any]:
        """Return the row as JSON has it; an infinite number becomes null, since JSON has none."""
        made = asdict(self)
        made["notes"] = [asdict(note) for note in self.notes]
        made["measurements"] = {
            name: value if value is not None and math.isfinite(value) else None
            for name, value in self.measurements.items()
        }
        return made

    @classmethod
    def from_dict(cls, row: Mapping[str, Any]) -> "Row":
        """Read the row that :meth:`to_dict` gave, or that an earlier or a later version did; unknown keys are ignored.

        Raises:
            TypeError: It is no such row; the message names the field.
        """
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
        for name in ("versions", "excluded"):
            _checked_table(known.get(name, {}), name)
        return cls(**{**known, "notes": tuple(_note(each) for each in notes)})


def _note(note: Any) -> Note:
    known = _known(Note, note, "a note")
    for name, text in known.items():
        if type(text) is not str:
            raise TypeError(f"a note's {name} is {_short(text)}, not a text")
    return Note(**known)


def _known(kind: type, given: Any, what: str) -> dict[str, Any]:
    """The fields of a dataclass that JSON holds; others, of later versions, are passed over."""
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
    """Names with finite numbers, or null."""
    if not isinstance(table, dict):
        raise TypeError(f"its {name} are {_short(table)}, not names with numbers")
    for key, value in table.items():
        if type(key) is not str or not (value is None or _is_number(value)):
            raise TypeError(f"{name}: {_short(key)} is {_short(value)}, not a finite number")
    return table


def _is_number(value: Any) -> bool:
    try:
        return type(value) in (int, float) and math.isfinite(value)
    except OverflowError:  # an integer beyond all floats
        return False


def _short(value: Any) -> str:
    try:
        return f"{value!r:.40}"
    except ValueError:  # an integer of thousands of digits has no text
        return "a number too long to show"
