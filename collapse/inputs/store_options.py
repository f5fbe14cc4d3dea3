"""Reject options that contradict a finished store, instead of ignoring them."""

from collections.abc import Mapping
from typing import Any

from collapse.errors import UsageError, near_names
from collapse.inputs.collection_spec import CollectionSpec, options_of, record, text_names
from collapse.inputs.corpus import find_corpus
from collapse.inputs.references import find_tokenizer
from collapse.plugin.plugin_manager import plugins
from collapse.stores.manifest import differences
from collapse.stores.naming import recorded_arguments
from collapse.stores.store import Store

_TEXTS = (("corpus", "text", "split"), ("validation", "validation_text", "validation_split"))
_LIMITS = ("chunk_length", "max_chunks", "max_validation_chunks")
_HOW = ("shards", "eos_between", "dtype", "fast_attention", "exact_loss")


def options_held(identity: Mapping[str, Any], given: Mapping[str, Any], *, texts_only: bool = False) -> dict[str, Any]:
    """Return the options that ask for what a store holds, except for those that are given; local texts have no names.

    Args:
        identity: The store's identity.
        given: The options that are given.
        texts_only: Only the texts, and how much of them.
    """
    names = _LIMITS if texts_only else (*_LIMITS, *_HOW)
    found = {name: identity[name] for name in names if identity.get(name) is not None}
    for key, text, split in _TEXTS:
        held = identity.get(key) or {}
        if held.get("revision") and text not in given:
            found |= {text: f"{held['name']}@{held['revision']}", split: held["split"]}
        if held.get("column"):
            found.setdefault("text_column", held["column"])
    return {**found, **given}


def check_store_options(store: Store, given: Mapping[str, Any]) -> None:
    """Raise UsageError for options that ask for another collection than the one that a store holds.

    Args:
        store: A finished store.
        given: Fields of a :class:`collapse.inputs.collection_spec.CollectionSpec` that were given.

    Raises:
        UsageError: An option does not apply; the message says what the store holds.
    """
    if given.get("recollect"):
        raise UsageError(f"{store} is measured as it is, and names no model to collect from: leave out --recollect")
    held = {**store.identity, "model_args": recorded_arguments(store.manifest), "revision": store.revision}
    asked = _asked(held, given)
    unsaid = {name: getattr(CollectionSpec, name) for name, about in options_of().items() if about.role == "changed"}
    differ = differences({name: held.get(name, unsaid.get(name)) for name in asked}, asked)
    for name in text_names(given.get("without")):
        if name in store.manifest["statistics"]:
            differ.append(f"statistics: it holds {name}")
        elif name not in plugins().statistics:
            raise UsageError(f"no statistic is called {name!r}; {near_names(name, plugins().statistics)}")
    if differ:
        raise UsageError(
            f"{store} differs in {'; '.join(differ)} (there and asked): leave the option out, or collect another store "
            "from the model"
        )


def _asked(held: Mapping[str, Any], given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of an identity that options ask for, without those of which they say nothing."""
    column, names_texts = given.get("text_column"), bool(given.get("text") or given.get("validation_text"))
    asked = {
        name: record(name, given[name])
        for name, about in options_of().items()
        if name in given and about.role in ("recorded", "changed")
    }
    for key, text, split in _TEXTS:
        if given.get(text):
            how: dict[str, Any] = {"split": given.get(split), "text_column": column}
            asked[key] = find_corpus(list(given[text]), validation=key == "validation", **how).identity()
        elif given.get(split):
            asked[key] = {**(held.get(key) or {}), "split": given[split]}
    if column and not names_texts:
        asked["corpus"] = {**asked.get("corpus", held.get("corpus") or {}), "column": column}
    if given.get("tokenizer"):
        asked["tokenizer"] = find_tokenizer(given["tokenizer"]).tokenizer
    if given.get("revision"):
        asked["revision"] = given["revision"]
    return asked
