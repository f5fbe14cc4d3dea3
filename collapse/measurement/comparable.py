"""Give each row a name that distinguishes it from other rows, and remark on rows that cannot be compared."""

from collections.abc import Container, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from collapse.errors import counted, shortened, some
from collapse.stores.store_columns import CUT

if TYPE_CHECKING:
    from collapse.measurement.rows import Row

_DIGEST = 12  # shown characters of a digest
_FINGERPRINT = 19  # shown characters of a digest that begins with sha256:
_MOST = 4  # shown values in a remark
_OWN_LIMIT = "max_validation_chunks"  # in rows without it, max_chunks applies to both texts
COMPARED = {
    "corpus_id": "training texts",
    "validation_id": "validation texts",
    "tokenizer": "tokenizers",
    "chunk_length": "chunk lengths",
    "max_chunks": "limits of --max-chunks",
    _OWN_LIMIT: "limits of --max-validation-chunks",
    "dtype": "dtypes",
    "min_count": "limits of --min-count",
    "class_set": "class sets (--classes-of)",
    "layer": "layers",
    "group": "groups of classes (--group-by)",
    "ood": "out-of-distribution texts",
}
"""Columns whose values must be equal so that rows can be compared. Each maps to the name of its values in remarks."""
ONE_TEXT = {
    **{name: COMPARED[name] for name in ("corpus_id", "validation_id", "tokenizer")},
    **{name: COMPARED[name] for name in ("chunk_length", "max_chunks", _OWN_LIMIT)},
    **{name: f"--{name.replace('_', '-')}" for name in CUT},
}
"""Columns whose values are equal in stores of the same text. Each maps to the name of its values in messages."""
_NAMES = {"corpus_id": "corpus", "validation_id": "validation"}  # hash of a text: column with its name
_NONE_COUNTS = {"max_chunks": "chunk_length", _OWN_LIMIT: "validation_id"}
_NONE_COUNTS |= {"class_set": "min_count", "group": "min_count", "ignore_tokens": "chunk_length"}
"""Pairs of fields. If a row has the second field, a missing first field means no limit, all classes or all tokens."""
SAME_TEXTS = "the training and the validation text are the same: loss and NC4 are training-set values"
"""The remark for a store whose training and validation texts are the same."""
MATCHED_IN_ORDER = "data and model share no class name: check the classes, which are matched in order: %s"
"""The remark for a store if the classes of data and model were matched by order; ``%s`` is replaced by examples."""


def same_texts(identity: Mapping[str, Any]) -> bool:
    """Return whether the training and validation texts in a store's identity are equal; False for a features file."""
    return bool(identity.get("corpus")) and identity["corpus"] == identity.get("validation")


def distinct(rows: Sequence["Row"]) -> list[str]:
    """Return a name for each row.

    The name is the model's. If several stores have the same model name, the start of the store's digest is added. The
    layer is added if the rows have several layers. The group is added if the row has a group. The value of
    ``--min-count`` is added if the row's store was measured with several values.
    """
    stores: dict[str, set[str]] = {}
    for row in rows:
        stores.setdefault(row.model, set()).add(row.store)
    limits, names, layers = _limits(rows), [], {row.layer for row in rows}
    for row in rows:
        name = f"{row.model} ({row.store[:_DIGEST]})" if len(stores[row.model]) > 1 else row.model
        name = f"{name}, layer {row.layer}" if len(layers) > 1 else name
        name = f"{name}, group {row.group}" if row.group else name
        names.append(f"{name}, {limit_of(row)}" if len(set(limits[row.store])) > 1 else name)
    return names


def limit_of(row: "Row") -> str:
    """Return a row's heading in a table of one store at several ``--min-count``, such as ``N_c ≥ 10``."""
    return f"N_c ≥ {row.min_count:,}"


def is_crossed(rows: Sequence["Row"]) -> bool:
    """Return whether every store was measured with the same two or more values of ``--min-count``."""
    limits = list(_limits(rows).values())
    return all(each == limits[0] and len(set(each)) > 1 for each in limits)


def _limits(rows: Sequence["Row"]) -> dict[str, list[int]]:
    limits: dict[str, list[int]] = {}
    for row in rows:
        limits.setdefault(row.store, []).append(row.min_count)
    return limits


def mixed(rows: Iterable["Row | dict[str, Any]"], *, apart: Container[str] = ()) -> list[str]:
    """Return a remark for each text or setting in which rows differ, so that the rows cannot be compared.

    Args:
        rows: Rows, or the records of a table. A field is compared only between the rows that have it. Exceptions are
            fields such as ``max_chunks`` or ``class_set``, whose absence has a meaning: no limit, or all classes.
        apart: Fields that may differ; they give no remark.

    >>> mixed([{"dtype": "float32", "min_count": 1}, {"dtype": "bfloat16", "min_count": 1}, {"val_loss": 2.0}])
    ['rows of different dtypes are mixed: float32 (1 row), bfloat16 (1 row)']
    """
    records = [row if isinstance(row, dict) else vars(row) for row in rows]
    names = [name for name in COMPARED if name not in apart]
    return [
        f"rows of different {COMPARED[name]} are mixed: "
        + some([f"{value} ({counted(rows, 'row')})" for value, rows in values.items()], _MOST)
        for name, values in differing(records, names).items()
    ]


def differing(records: Iterable[Mapping[str, Any]], names: Iterable[str]) -> dict[str, dict[str, int]]:
    """Return the fields in which records differ.

    The result maps each such field to a dictionary from a value, as text, to the number of records with this value.

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
    return str(value) in ("None", "nan", "<NA>")  # the last two come from pandas


def _shown(name: str, record: Mapping[str, Any]) -> str:
    value = record.get(name)
    if value is None:
        return "none"
    if isinstance(value, float):  # a whole number in a column with missing values
        return str(int(value))
    label = record.get(_NAMES.get(name, ""))
    return str(value)[:_FINGERPRINT] if label is None else f"{shortened(str(label))} {str(value)[:_DIGEST]}"
