"""Names that distinguish rows, and remarks on rows that cannot be compared."""

from collections.abc import Container, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from collapse.errors import counted, shortened
from collapse.stores.described import FEATURES

if TYPE_CHECKING:
    import pandas as pd

    from collapse.measurement.rows import Row

_SHOWN = 12  # characters of a digest
_LONGEST = 60  # characters of a name in a remark
_MOST = 4  # values in a remark
OWN_LIMIT = "max_validation_chunks"
"""The limit of the validation text, which is compared where a row has one of its own: others have ``max_chunks``."""
COMPARED = {  # fields that must be equal to compare numbers: field, plural, and the field of its name if it is a hash
    "corpus_id": ("training texts", "corpus"),
    "validation_id": ("validation texts", "validation"),
    "chunk_length": ("chunk lengths", None),
    "max_chunks": ("limits of --max-chunks", None),
    OWN_LIMIT: ("limits of --max-validation-chunks", None),
    "dtype": ("dtypes", None),
    "min_count": ("limits of --min-count", None),
    "class_set": ("class sets (--classes-of)", None),
}
"""Texts and settings that must be equal to compare rows, by the column of a table."""
_NONE_COUNTS = {"max_chunks": "chunk_length", OWN_LIMIT: "validation_id", "class_set": None}
"""Fields whose absence is a value, whole texts and all classes, in rows that have the other field."""
SAME_TEXTS = "the training and the validation text are the same: losses and NC4 are of text that was trained on"
"""What is said wherever numbers of such texts are shown."""


def distinct(rows: Sequence["Row"]) -> list[str]:
    """Return a name for each row.

    A name shared by several stores is followed by the start of the store's digest. If a store was measured with several
    ``--min-count``, that of the row comes last.
    """
    stores: dict[str, set[str]] = {}
    for row in rows:
        stores.setdefault(row.model, set()).add(row.store)
    limits, names = _limits(rows), []
    for row in rows:
        name = f"{row.model} ({row.store[:_SHOWN]})" if len(stores[row.model]) > 1 else row.model
        names.append(f"{name}, {limit_of(row)}" if len(set(limits[row.store])) > 1 else name)
    return names


def limit_of(row: "Row") -> str:
    """Return the heading of a row among those of one store that differ in ``--min-count``."""
    return f"N_c ≥ {row.min_count:,}"


def is_crossed(rows: Sequence["Row"]) -> bool:
    """Whether each of several rows' stores was measured with the same several ``--min-count``, to compare them."""
    limits = list(_limits(rows).values())
    return all(each == limits[0] and len(set(each)) > 1 for each in limits)


def _limits(rows: Sequence["Row"]) -> dict[str, list[int]]:
    limits: dict[str, list[int]] = {}
    for row in rows:
        limits.setdefault(row.store, []).append(row.min_count)
    return limits


def mixed(rows: Iterable["Row | Mapping[str, Any]"], *, apart: Container[str] = ()) -> list[str]:
    """Return a remark for each field that differs between rows but must be equal to compare their numbers.

    Args:
        rows: Rows, or the records of a table. Missing fields, as in rows of features files, are ignored.
        apart: Fields that may differ.

    >>> mixed([{"dtype": "float32", "min_count": 1}, {"dtype": "bfloat16", "min_count": 1}, {"val_loss": 2.0}])
    ['rows of different dtypes are mixed: float32 (1 row), bfloat16 (1 row)']
    """
    records = [_given(row if isinstance(row, Mapping) else vars(row)) for row in rows]
    if any(map(has_own_limit, records)):
        records = [{**record, OWN_LIMIT: limit_of_validation(record)} for record in records]
    remarks = []
    for name, (what, label) in COMPARED.items():
        found: dict[Any, list[Any]] = {}
        for record in () if name in apart else records:
            other = _NONE_COUNTS.get(name, name)
            if other is None or record.get(other) is not None:
                found.setdefault(record.get(name), []).append(record.get(label) if label else None)
        if len(found) > 1:
            remarks.append(f"rows of different {what} are mixed: {_listed(found)}")
    return remarks


def corpora_of(frame: "pd.DataFrame") -> list[str]:
    """Return the names of the texts in a table. A features file names only itself, so its rows name no text."""
    if "corpus" not in frame:
        return []
    pairs = zip(frame["corpus"].fillna(""), frame.get("weights", frame["corpus"]), strict=True)
    return sorted({str(corpus) for corpus, weights in pairs if corpus and not str(weights).startswith(FEATURES)})


def limit_of_validation(record: Mapping[str, Any]) -> Any:
    """Return how many chunks of the validation text a record's row has at most: its own limit, else that of each text.

    >>> limit_of_validation({"max_chunks": 9, "max_validation_chunks": 5}), limit_of_validation({"max_chunks": 9})
    (5, 9)
    """
    return record[OWN_LIMIT] if has_own_limit(record) else record.get("max_chunks")


def has_own_limit(record: Mapping[str, Any]) -> bool:
    """Whether a record's row limits its validation text apart from the training text."""
    return record.get(OWN_LIMIT) is not None


def _listed(found: Mapping[Any, Sequence[Any]]) -> str:
    said = []
    for value, labels in list(found.items())[:_MOST]:
        named = "" if labels[0] is None else f"{shortened(str(labels[0]), _LONGEST)} {str(value)[:_SHOWN]}"
        shown = "none" if value is None else named or value
        said.append(f"{shown} ({counted(len(labels), 'row')})")
    return ", ".join(said) + (f", and {len(found) - _MOST} more" if len(found) > _MOST else "")


def _given(record: Mapping[str, Any]) -> dict[str, Any]:
    """Return the compared values of a record that are there; whole numbers that pandas holds as floats as integers."""
    names = [*COMPARED, *(label for _, label in COMPARED.values() if label)]
    # NaN and pandas' NA are missing
    given = {name: record[name] for name in names if str(record.get(name)) not in ("None", "nan", "<NA>")}
    return {name: int(value) if isinstance(value, float) else value for name, value in given.items()}
