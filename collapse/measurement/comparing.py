"""The identity of rows: names that distinguish stores, and remarks on rows that cannot be compared."""

from collections.abc import Container, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from collapse.core.steps import run_and_step
from collapse.errors import shortened
from collapse.stores.files import sha256_of
from collapse.stores.naming import shown_model

if TYPE_CHECKING:
    import pandas as pd

    from collapse.measurement.rows import Row
    from collapse.stores.store import Store

_SHOWN = 12  # characters of a digest
_FEATURES = "features:"  # begins the fingerprint of embeddings in place of a model's weights
_LONGEST = 60  # characters of a name in a remark
COMPARED = {  # fields that must be equal to compare numbers: field, plural, and the field of its name if it is a hash
    "corpus_id": ("training texts", "corpus"),
    "validation_id": ("validation texts", "validation"),
    "chunk_length": ("chunk lengths", None),
    "max_chunks": ("limits of --max-chunks", None),
    "max_validation_chunks": ("limits of --max-validation-chunks", None),
    "dtype": ("dtypes", None),
    "min_count": ("limits of --min-count", None),
    "class_set": ("class sets (--classes-of)", None),
}
"""Texts and settings that must be equal to compare rows, by the column of a table."""
OWN_LIMIT = "max_validation_chunks"
"""The limit of the validation text, which is compared where a row has one of its own: others have ``max_chunks``."""
SAME_TEXTS = "the training and the validation text are the same: losses and NC4 are of text that was trained on"
"""What is said wherever numbers of such texts are shown."""
CUT = {"shards": 2, "eos_between": False}
"""Options of a collection that decide into which chunks a text is cut, with their defaults."""


def about(store: "Store") -> dict[str, Any]:
    """Return the fields of a row that identify what was measured."""
    identity, named, model = store.identity, store.named, _model(store)
    features = identity.get("features")
    step = named.get("step", store.manifest["model"].get("step"))
    return {
        "model": model + _null(identity),
        "step": run_and_step(model)[1] if step is None else int(step),
        "revision": store.revision,
        "corpus": named.get("corpus") or store.corpus,
        "store": store.digest,
        "origin": store.origin or store.pulled_from,
        "validation": named.get("validation") or store.manifest["corpus"].get("validation"),
        "chunk_length": identity.get("chunk_length"),
        "max_chunks": identity.get("max_chunks"),
        "max_validation_chunks": identity.get("max_validation_chunks"),
        "dtype": identity.get("dtype"),
        "weights": f"{_FEATURES}{features}" if features else _weights(identity),
        "tokenizer": identity.get("tokenizer"),
        "corpus_id": _text_id(identity, "corpus"),
        "validation_id": _text_id(identity, "validation"),
    }


def distinct(rows: Sequence["Row"]) -> list[str]:
    """Return a name for each row.

    A name shared by several stores is followed by the start of the store's digest. If a store was measured with several
    ``--min-count``, that of the row comes last.
    """
    stores: dict[str, set[str]] = {}
    limits: dict[str, set[int]] = {}
    for row in rows:
        stores.setdefault(row.model, set()).add(row.store)
        limits.setdefault(row.store, set()).add(row.min_count)
    names = []
    for row in rows:
        name = f"{row.model} ({row.store[:_SHOWN]})" if len(stores[row.model]) > 1 else row.model
        names.append(f"{name}, {limit_of(row)}" if len(limits[row.store]) > 1 else name)
    return names


def limit_of(row: "Row") -> str:
    """Return the heading of a row among those of one store that differ in ``--min-count``."""
    return f"N_c ≥ {row.min_count:,}"


def is_crossed(rows: Sequence["Row"]) -> bool:
    """Whether each of several rows' stores was measured with the same several ``--min-count``, to compare them."""
    limits: dict[str, list[int]] = {}
    for row in rows:
        limits.setdefault(row.store, []).append(row.min_count)
    return len({tuple(each) for each in limits.values()}) == 1 and all(len({*each}) > 1 for each in limits.values())


def mixed(rows: Iterable["Row | Mapping[str, Any]"], *, apart: Container[str] = ()) -> list[str]:
    """Return a remark for each field that differs between rows but must be equal to compare their numbers.

    Args:
        rows: Rows, or the records of a table. Missing fields, as in rows of features files or of earlier versions, are
            ignored.
        apart: Fields that may differ.

    >>> mixed([{"dtype": "float32", "min_count": 1}, {"dtype": "bfloat16", "min_count": 1}, {"val_loss": 2.0}])
    ['rows of different dtypes are mixed: float32 (1 row), bfloat16 (1 row)']
    """
    records = [row if isinstance(row, Mapping) else vars(row) for row in rows]
    remarks = []
    for name, (what, label) in COMPARED.items():
        if name in apart or (name == OWN_LIMIT and not any(map(has_own_limit, records))):
            continue
        counted: dict[Any, list[Any]] = {}
        for record in records:
            value = limit_of_validation(record) if name == OWN_LIMIT else _given(record.get(name))
            if _is_compared(record, name, value):
                counted.setdefault(value, []).append(record.get(label) if label else None)
        if len(counted) > 1:
            remarks.append(f"rows of different {what} are mixed: {_listed(counted)}")
    return remarks


def corpora_of(frame: "pd.DataFrame") -> list[str]:
    """Return the names of the texts in a table. A features file names only itself, so its rows name no text."""
    if "corpus" not in frame:
        return []
    pairs = zip(frame["corpus"].fillna(""), frame.get("weights", frame["corpus"]), strict=True)
    return sorted({str(corpus) for corpus, weights in pairs if corpus and not str(weights).startswith(_FEATURES)})


def limit_of_validation(record: Mapping[str, Any]) -> Any:
    """Return how many chunks of the validation text a record's row has at most: its own limit, else that of each text.

    >>> limit_of_validation({"max_chunks": 9, "max_validation_chunks": 5}), limit_of_validation({"max_chunks": 9})
    (5, 9)
    """
    own = _given(record.get(OWN_LIMIT))
    return _given(record.get("max_chunks")) if own is None else own


def has_own_limit(record: Mapping[str, Any]) -> bool:
    """Whether a record's row limits its validation text apart from the training text."""
    return _given(record.get(OWN_LIMIT)) is not None


def _is_compared(record: Mapping[str, Any], name: str, value: Any) -> bool:
    """Whether a record has something to compare: no limit at all is something, unless there are no chunks."""
    if name == OWN_LIMIT and _given(record.get("validation_id")) is None:
        return False
    limit = name in ("max_chunks", OWN_LIMIT)
    return value is not None or name == "class_set" or (limit and _given(record.get("chunk_length")) is not None)


def _listed(counted: Mapping[Any, Sequence[Any]], most: int = 4) -> str:
    said = []
    for value, labels in list(counted.items())[:most]:
        label = _given(labels[0])
        named = "" if label is None else f"{shortened(str(label), _LONGEST)} {str(value)[:_SHOWN]}"
        shown = "none" if value is None else named or value
        said.append(f"{shown} ({len(labels)} row{'s' if len(labels) > 1 else ''})")
    return ", ".join(said) + (f", and {len(counted) - most} more" if len(counted) > most else "")


def _given(value: Any) -> Any:
    """Return a value of a table, None if it is missing; a whole number becomes an int, even if stored as a float."""
    try:
        if value is None or value != value:  # NaN differs from itself
            return None
    except TypeError:  # pandas' NA is neither equal nor different
        return None
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _model(store: "Store") -> str:
    name = store.named.get("model")
    return shown_model(name, store.identity.get("model_args") or {}, store.revision) if name else store.model


def _weights(identity: Mapping[str, Any]) -> str | None:
    weights, arguments = identity.get("weights"), identity.get("model_args")
    if weights is not None and identity.get("null") == "untrained":
        weights = f"untrained:{weights}"
    if weights is None or not arguments:
        return weights
    return f"{weights}+{sha256_of(arguments)[:_SHOWN]}"


def _null(identity: Mapping[str, Any]) -> str:
    """Return what follows the name of a model of which a null was collected."""
    return f" ({identity['null']})" if identity.get("null") else ""


def _text_id(identity: Mapping[str, Any], text: str) -> str | None:
    """Hash of a text, and of how it was cut into chunks if that differs from the defaults."""
    changed = {name: identity[name] for name, default in CUT.items() if identity.get(name) not in (None, default)}
    return _hashed({**identity[text], **changed}) if identity.get(text) else None


def _hashed(identity: Mapping[str, Any] | None) -> str | None:
    return sha256_of(identity) if identity else None
