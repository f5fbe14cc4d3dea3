"""What a row is of, and whether rows can be compared: names that tell stores apart, and a remark on mixtures."""

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from collapse.files import sha256_of
from collapse.spec import CollectionSpec

if TYPE_CHECKING:
    from collapse.rows import Row
    from collapse.store import Store

_SHOWN = 12  # characters of a digest
_PART_OF_A_REPOSITORY = ("subfolder", "gguf_file")  # model arguments that choose one of several models of one name
_COMPARED = {  # what must be equal where numbers are compared: a row's field, its plural, and its name if it is a hash
    "corpus_id": ("training texts", "corpus"),
    "validation_id": ("validation texts", "validation"),
    "chunk_length": ("chunk lengths", None),
    "max_chunks": ("limits of --max-chunks", None),
    "dtype": ("dtypes", None),
    "min_count": ("limits of --min-count", None),
}


def about(store: "Store") -> dict[str, Any]:
    """The fields of a row that say what it is of."""
    identity, named = store.identity, store.named
    features = identity.get("features")
    return {
        "model": _chosen(named.get("model") or store.model, identity.get("model_args") or {}),
        "revision": store.revision,
        "corpus": named.get("corpus") or store.corpus,
        "store": store.digest,
        "origin": store.origin or store.pulled_from,
        "validation": named.get("validation") or store.manifest["corpus"].get("validation"),
        "chunk_length": identity.get("chunk_length"),
        "max_chunks": identity.get("max_chunks"),
        "dtype": identity.get("dtype"),
        "weights": f"features:{features}" if features else _weights(identity),
        "tokenizer": identity.get("tokenizer"),
        "corpus_id": _text_id(identity, "corpus"),
        "validation_id": _text_id(identity, "validation"),
    }


def distinct(rows: Sequence["Row"]) -> list[str]:
    """A name for each row; a name that stands for several stores is followed by the beginning of the store's digest."""
    stores: dict[str, set[str]] = {}
    for row in rows:
        stores.setdefault(row.model, set()).add(row.store)
    return [f"{row.model} ({row.store[:_SHOWN]})" if len(stores[row.model]) > 1 else row.model for row in rows]


def mixed(rows: Iterable["Row | Mapping[str, Any]"]) -> list[str]:
    """A remark for each thing that should be equal where numbers are compared, and differs between rows.

    Args:
        rows: Rows, or the records of a table. What a row does not say, as those of a features file or of an earlier
            version, is passed over.

    >>> mixed([{"dtype": "float32", "min_count": 1}, {"dtype": "bfloat16", "min_count": 1}, {"val_loss": 2.0}])
    ['rows of different dtypes are mixed: float32 (1 row), bfloat16 (1 row)']
    """
    records = [row if isinstance(row, Mapping) else vars(row) for row in rows]
    remarks = []
    for name, (what, label) in _COMPARED.items():
        counted: dict[Any, list[Any]] = {}
        for record in records:
            value = _given(record.get(name))
            if value is not None or (name == "max_chunks" and _given(record.get("chunk_length")) is not None):
                counted.setdefault(value, []).append(record.get(label) if label else None)
        if len(counted) > 1:
            remarks.append(f"rows of different {what} are mixed: {_listed(counted)}")
    return remarks


def _listed(counted: Mapping[Any, Sequence[Any]], most: int = 4) -> str:
    said = []
    for value, labels in list(counted.items())[:most]:
        label = _given(labels[0])
        shown = "none" if value is None else f"{label} {value[:_SHOWN]}" if label is not None else value
        said.append(f"{shown} ({len(labels)} row{'s' if len(labels) > 1 else ''})")
    return ", ".join(said) + (f", and {len(counted) - most} more" if len(counted) > most else "")


def _given(value: Any) -> Any:
    """A value of a table, None where it is missing; whole numbers are whole, as whatever a table holds them."""
    try:
        if value is None or value != value:  # NaN differs from itself
            return None
    except TypeError:  # pandas' NA is neither equal nor different
        return None
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _chosen(name: str, model_args: Mapping[str, Any]) -> str:
    """The name of a model, with what chooses it among several of that name."""
    parts = [str(model_args[each]) for each in _PART_OF_A_REPOSITORY if model_args.get(each)]
    return "/".join([name, *(part for part in parts if not name.endswith(f"/{part}"))])


def _weights(identity: Mapping[str, Any]) -> str | None:
    weights, arguments = identity.get("weights"), identity.get("model_args")
    if weights is None or not arguments:
        return weights
    return f"{weights}+{sha256_of(arguments)[:_SHOWN]}"


def _text_id(identity: Mapping[str, Any], text: str) -> str | None:
    """Hash of a text, with how it was laid end to end where that is not as usual: other chunks came of it."""
    usual = CollectionSpec()
    laid = {name: identity.get(name, getattr(usual, name)) for name in ("shards", "eos_between")}
    unusual = {name: value for name, value in laid.items() if value not in (None, getattr(usual, name))}
    return _hashed({**identity[text], **unusual}) if identity.get(text) else None


def _hashed(identity: Mapping[str, Any] | None) -> str | None:
    return sha256_of(identity) if identity else None
