"""Names that distinguish rows, and remarks on rows that cannot be compared."""

from collections.abc import Container, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from collapse.errors import counted, shortened, some
from collapse.stores.described import FEATURES

if TYPE_CHECKING:
    import pandas as pd

    from collapse.measurement.rows import Row

_DIGEST = 12  # characters of a digest that are shown
_FINGERPRINT = 19  # of one that begins with sha256:
_LONGEST = 60  # of a name in a remark
_MOST = 4  # values in a remark
_OWN_LIMIT = "max_validation_chunks"  # rows without one of their own have max_chunks for both texts
COMPARED = {
    "corpus_id": "training texts",
    "validation_id": "validation texts",
    "chunk_length": "chunk lengths",
    "max_chunks": "limits of --max-chunks",
    _OWN_LIMIT: "limits of --max-validation-chunks",
    "dtype": "dtypes",
    "min_count": "limits of --min-count",
    "class_set": "class sets (--classes-of)",
}
"""Texts and settings that must be equal to compare rows, by the column of a table."""
ONE_TEXT = {
    **{name: COMPARED[name] for name in ("corpus_id", "validation_id")},
    "tokenizer": "tokenizers",
    **{name: COMPARED[name] for name in ("chunk_length", "max_chunks", _OWN_LIMIT)},
}
"""What two stores of one text have in common."""
_NAMES = {"corpus_id": "corpus", "validation_id": "validation"}  # of hashes
_NONE_COUNTS = {"max_chunks": "chunk_length", _OWN_LIMIT: "validation_id", "class_set": "min_count"}
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
        name = f"{row.model} ({row.store[:_DIGEST]})" if len(stores[row.model]) > 1 else row.model
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
    records = [row if isinstance(row, Mapping) else vars(row) for row in rows]
    names = [name for name in COMPARED if name not in apart]
    return [
        f"rows of different {COMPARED[name]} are mixed: "
        + some([f"{value} ({counted(rows, 'row')})" for value, rows in values.items()], _MOST)
        for name, values in differing(records, names).items()
    ]


def differing(records: Iterable[Mapping[str, Any]], names: Iterable[str]) -> dict[str, dict[str, int]]:
    """Return the fields in which records differ: for each its values, as they are shown, and how many records have one.

    >>> differing([{"min_count": 1}, {"min_count": 2.0}, {}], ["min_count"])
    {'min_count': {'1': 1, '2': 1}}
    """
    read = {*COMPARED, *ONE_TEXT, *_NAMES.values()}
    given = [
        {name: record[name] for name in read & record.keys() if not _is_missing(record[name])} for record in records
    ]
    if any(_OWN_LIMIT in record for record in given):
        given = [{_OWN_LIMIT: record.get("max_chunks"), **record} for record in given]
    found = {}
    for name in names:
        values: dict[Any, list[str]] = {}
        for record in given:
            if record.get(_NONE_COUNTS.get(name, name)) is not None:
                values.setdefault(record.get(name), []).append(_shown(name, record))
        if len(values) > 1:
            found[name] = {shown[0]: len(shown) for shown in values.values()}
    return found


def _is_missing(value: Any) -> bool:
    return str(value) in ("None", "nan", "<NA>")  # pandas has the last two


def _shown(name: str, record: Mapping[str, Any]) -> str:
    value = record.get(name)
    if value is None:
        return "none"
    if isinstance(value, float):  # a whole number of a column in which others are missing
        return str(int(value))
    label = record.get(_NAMES.get(name, ""))
    return str(value)[:_FINGERPRINT] if label is None else f"{shortened(str(label), _LONGEST)} {str(value)[:_DIGEST]}"


def corpora_of(frame: "pd.DataFrame") -> list[str]:
    """Return the names of the texts in a table. A features file names only itself, so its rows name no text."""
    if "corpus" not in frame:
        return []
    pairs = zip(frame["corpus"].fillna(""), frame.get("weights", frame["corpus"]), strict=True)
    return sorted({str(corpus) for corpus, weights in pairs if corpus and not str(weights).startswith(FEATURES)})
