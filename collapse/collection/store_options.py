"""Reject options that contradict a finished store, instead of ignoring them; the message says what the store holds."""

import logging
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from collapse.errors import UsageError, near_names
from collapse.inputs.collection_spec import CollectionSpec, flag_of, options_of, record

if TYPE_CHECKING:
    from collapse.stores.store import Store

log = logging.getLogger("collapse")

_TEXTS = {"corpus": ("text", "split"), "validation": ("validation_text", "validation_split")}
_OF_FEATURES = ("without", "null", "recollect", "batch_size", "device", "deterministic", "trust_remote_code")
Unlike = tuple[str, Any, str, Any]  # an option's name, its value, a field of the identity, and the field's value


def check_store_options(store: "Store", given: Mapping[str, Any]) -> None:
    """Raise UsageError for options that ask for another collection than the one that a store holds.

    Args:
        store: A finished store.
        given: Fields of a :class:`collapse.inputs.collection_spec.CollectionSpec` that were given.

    Raises:
        UsageError: An option does not apply; the message says what the store holds.
    """
    if given.get("recollect"):
        raise UsageError(f"{store} is measured as it is, and names no model to collect from: leave out --recollect")
    for name, asked, what, held in _unlike(store, given):
        shown = flag_of(name) if isinstance(asked, bool) else f"{flag_of(name)} {asked}"
        raise UsageError(
            f"{store} holds {what.replace('_', ' ')} {_short(held)}: {shown} does not apply; "
            "leave the option out, or collect another store from the model"
        )


def check_features_options(path: str | Path, given: Mapping[str, Any]) -> None:
    """Raise UsageError for options that do not apply to a features file; arguments as :func:`check_store_options`."""
    for name in given:
        if name not in _OF_FEATURES:
            raise UsageError(f"{path} is a features file: {flag_of(name)} does not apply; leave the option out")
    if given.get("null") == "untrained":
        raise UsageError(f"{path} has no model to initialize: --null untrained does not apply, --null shuffled does")


def warn_of_stale(store: "Store") -> None:
    """Warn of statistics in a store that the installed plugins did not fill, whose metrics are null therefore."""
    from collapse.plugin.filling import conflict
    from collapse.plugin.plugin_manager import plugins

    made_by = store.manifest.get("statistics_by", {})
    for name, version in store.manifest["statistics"].items():
        kind = plugins().statistics.get(name)
        differ = conflict(kind, version, made_by.get(name)) if kind else ""
        if differ:
            log.warning("%s: %s cannot be used: the collection %s: collect again (--recollect)", store, name, differ)


def _unlike(store: "Store", given: Mapping[str, Any]) -> Iterator[Unlike]:
    """Yield each option that contradicts a store's identity."""
    from collapse.inputs.references import find_tokenizer
    from collapse.stores.naming import recorded_arguments

    identity = {**store.identity, "model_args": recorded_arguments(store.manifest)}
    for name, about in options_of().items():
        if name not in given or about.role not in ("recorded", "changed"):
            continue
        unsaid = getattr(CollectionSpec, name) if about.role == "changed" else None  # its default
        if record(name, given[name]) != identity.get(name, unsaid):
            yield name, given[name], name, identity.get(name, unsaid)
    yield from _unlike_texts(identity, given)
    yield from _unlike_statistics(store, given)
    if given.get("tokenizer") and find_tokenizer(given["tokenizer"]).tokenizer != identity.get("tokenizer"):
        yield "tokenizer", given["tokenizer"], "tokenizer", identity.get("tokenizer")
    if given.get("revision") and not _is_revision(given["revision"], store):
        yield "revision", given["revision"], "revision", store.revision


def _unlike_texts(identity: Mapping[str, Any], given: Mapping[str, Any]) -> Iterator[Unlike]:
    from collapse.inputs.corpus import find_corpus
    from collapse.stores.manifest import differences

    column = given.get("text_column")
    for key, (text, split) in _TEXTS.items():
        held, validation = identity.get(key) or {}, key == "validation"
        if given.get(text):
            names, of = list(given[text]), given.get(split)
            asked = find_corpus(names, split=of, text_column=column or "text", validation=validation).identity()
            if differences(held, asked):
                yield text, " ".join(names), f"{key} text", held.get("sha256") or held.get("revision")
        elif split in given and given[split] != held.get("split"):
            yield split, given[split], f"{key} split", held.get("split")
    if column and not (given.get("text") or given.get("validation_text")):
        held = (identity.get("corpus") or {}).get("column")
        if column != held:
            yield "text_column", column, "text column", held


def _unlike_statistics(store: "Store", given: Mapping[str, Any]) -> Iterator[Unlike]:
    from collapse.plugin.plugin_manager import plugins

    held = store.manifest["statistics"]
    for name in given.get("without", ()):
        if name not in plugins().statistics and name not in held:
            raise UsageError(f"no statistic is called {name!r}; {near_names(name, plugins().statistics)}")
        if name in held:
            yield "without", name, "the statistic", name


def _is_revision(revision: str, store: "Store") -> bool:
    from collapse.inputs.references import find_model
    from collapse.stores.naming import recorded_model

    held = store.revision
    if held is None or (held.startswith(revision) and len(revision) >= 7):
        return held is not None
    return find_model(recorded_model(store.manifest), revision=revision).revision == held


def _short(value: Any) -> str:
    if value is None or value == {}:
        return "none"
    text = value if isinstance(value, str) else str(value).lower()
    return f"{text[:19]}…" if len(text) > 40 else text
