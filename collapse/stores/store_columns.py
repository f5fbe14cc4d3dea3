"""Return the columns of a row that identify a store, and the store's last measurements."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from collapse.core.reading import read_json
from collapse.core.steps import run_and_step, tokens_of
from collapse.stores.files import sha256_of
from collapse.stores.layer_names import TOP
from collapse.stores.manifest import RESULTS
from collapse.stores.naming import shown_model

if TYPE_CHECKING:
    from collapse.stores.store import Store

CUT = {"shards": 2, "eos_between": False, "special_tokens": True, "ignore_tokens": None}
"""Options of a collection that determine how a text becomes samples, with their defaults."""
_SAME = ("chunk_length", "max_chunks", "max_validation_chunks", "dtype", "tokenizer")  # as in the identity
FEATURES = "features:"
"""Prefix of a features file's fingerprint. In a row, this fingerprint replaces the fingerprint of the weights."""


def row_columns(store: "Store", layer: str = TOP) -> dict[str, Any]:
    """Return the fields of a row that identify what was measured."""
    identity, named = store.identity, store.named
    arguments, features = identity.get("model_args") or {}, identity.get("features")
    model = shown_model(named["model"], arguments, store.revision) if named.get("model") else store.model
    step, tokens = (named.get(name, store.manifest["model"].get(name)) for name in ("step", "tokens"))
    return {
        "model": model + (f" ({identity['null']})" if identity.get("null") else ""),
        "step": run_and_step(model)[1] if step is None else int(step),
        "tokens": tokens_of(model) if tokens is None else int(tokens),
        "revision": named.get("revision") or store.revision,
        "corpus": named.get("corpus") or store.corpus,
        "store": store.digest,
        "validation": named.get("validation") or store.manifest["corpus"].get("validation"),
        "weights": f"{FEATURES}{features}" if features else _weights(identity),
        **{name: identity.get(name) for name in _SAME},
        **{f"{text}_id": _text_id(identity, text) for text in ("corpus", "validation")},
        "origin": store.origin or store.pulled_from,
        "layer": layer,
        "depth": store.depth(layer),
    }


def cut_columns(store: "Store") -> dict[str, Any]:
    """Return the options by which a store's texts are cut into samples, and hashes of the texts before they are cut."""
    identity = store.identity
    texts = {f"{text}_id": sha256_of(identity[text]) for text in ("corpus", "validation") if identity.get(text)}
    return texts | {name: identity.get(name, default) for name, default in CUT.items()}


def kept_results(store: "Store") -> dict[str, Any] | None:
    """Return the last measurements of a store as a row of a results file.

    None for a store in memory, if the file is missing or damaged, or if the store's content has changed since then.
    """
    if store.path is None:
        return None
    try:
        kept = read_json(store.path / RESULTS)
        row: dict[str, Any] = kept["row"]
        return row if kept["store"] == store.digest and kept["sha256"] == sha256_of(row) else None
    except (OSError, ValueError, KeyError, TypeError):  # absent, damaged or outdated
        return None


def _weights(identity: Mapping[str, Any]) -> str | None:
    weights = identity.get("weights")
    if weights is None:
        return None
    weights = f"untrained:{weights}" if identity.get("null") == "untrained" else weights
    changes = [identity[name] for name in ("model_args", "adapter", "quantize") if identity.get(name)]
    return "+".join([weights, *(sha256_of(each)[:12] for each in changes)])


def _text_id(identity: Mapping[str, Any], text: str) -> str | None:
    """Return a hash of one text of an identity ("corpus" or "validation"), or None if there is no such text.

    The hash also covers the options by which the text is cut into chunks; options with default values are omitted.
    """
    changed = {name: identity[name] for name, default in CUT.items() if identity.get(name) not in (None, default)}
    return sha256_of({**identity[text], **changed}) if identity.get(text) else None
