"""Reject options that contradict a finished store, instead of ignoring them; the message says what the store holds."""

import logging
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from collapse.errors import CollapseError, UsageError, first_line, near_names
from collapse.inputs.collection_spec import CollectionSpec, flag_of, options_of
from collapse.inputs.option import Role

if TYPE_CHECKING:
    from collapse.stores.store import Store

log = logging.getLogger("collapse")

_RUNNING = ("batch_size", "trust_remote_code", "deterministic")
_TEXTS = (("corpus", "text", "split"), ("validation", "validation_text", "validation_split"))
_INSTEAD = "leave the option out, or collect another store from the model"


def check_store_options(store: "Store", given: Mapping[str, Any], *, alone: bool = False) -> None:
    """Raise UsageError for options that contradict the content of a store.

    Args:
        store: A finished store.
        given: Fields of a :class:`collapse.inputs.collection_spec.CollectionSpec` that were given.
        alone: Nothing else is measured: options that concern only the run of a model do not apply either.

    Raises:
        UsageError: An option does not apply; the message says what the store holds.
    """
    from collapse.stores.naming import recorded_arguments

    texts = {"corpus": store.corpus, "validation": store.manifest["corpus"].get("validation")}
    if given.get("revision"):
        _check_revision(store, given["revision"])
    arguments = recorded_arguments(store.manifest)
    held = {**store.identity, "model_args": arguments, "statistics": store.manifest["statistics"]}
    _refuse(str(store), [*_unlike(held, texts, given), *_not_running(given, alone)])


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


def check_features_options(path: str | Path, given: Mapping[str, Any], *, alone: bool = False) -> None:
    """Raise UsageError for options that do not apply to a features file; arguments as :func:`check_store_options`."""
    identity: dict[str, Any] = {"features": str(path), "statistics": {}}
    if "dtype" in given:
        identity["dtype"] = _features_dtype(path)
    others: list[tuple[str, Any, Any]] = []
    if given.get("revision"):
        others.append(("--revision", given["revision"], None))
    if given.get("null") == "untrained":
        raise UsageError(f"{path} has no model to initialize: --null untrained does not apply, --null shuffled does")
    identity["null"] = given.get("null")
    if given.get("part"):
        others.append(("--part", "{}/{}".format(*given["part"]), None))
    running = _not_running({name: value for name, value in given.items() if name != "recollect"}, alone)
    _refuse(str(path), [*_unlike(identity, {}, given), *others, *running])


def _refuse(name: str, unlike: list[tuple[str, Any, Any]]) -> None:
    for flag, asked, held in unlike:
        shown = flag if asked is True else f"{flag} {asked}"
        if held is None:
            raise UsageError(f"{name} was made of a features file: {shown} does not apply; leave the option out")
        raise UsageError(f"{name} {held}: {shown} does not apply; {_INSTEAD}")


def _unlike(
    identity: Mapping[str, Any], texts: Mapping[str, str | None], given: Mapping[str, Any]
) -> Iterator[tuple[str, Any, Any]]:
    """Yield each option that contradicts the identity: flag, value, and what the store holds, or None for nothing."""
    from collapse.plugin.plugin_manager import plugins

    features = "features" in identity
    yield from _unlike_texts(identity, texts, given)
    for name, about in options_of().items():
        if name not in given or name == "model_args" or about.role not in (Role.RECORDED, Role.CHANGED):
            continue
        unsaid = getattr(CollectionSpec, name) if about.role is Role.CHANGED else None  # its default
        if given[name] != identity.get(name, unsaid):
            shown = True if isinstance(given[name], bool) else given[name]
            yield flag_of(name), shown, _holds(_what(name, identity), features, name)
    for name in given.get("without", ()):
        if name not in plugins().statistics and name not in (identity.get("statistics") or {}):
            raise UsageError(f"no statistic is called {name!r}; {near_names(name, plugins().statistics)}")
        if name in (identity.get("statistics") or {}):
            yield flag_of("without"), name, f"holds the statistic {name}"
    if given.get("tokenizer"):
        held = identity.get("tokenizer")
        if features or not _is_tokenizer(given["tokenizer"], identity):
            yield "--tokenizer", given["tokenizer"], _holds(f"the tokenizer {_begin(held)}", features)
    if given.get("model_args"):
        asked = options_of()["model_args"].record(given["model_args"])
        held = identity.get("model_args") or {}
        if any(held.get(name) != value for name, value in asked.items()):
            said = ", ".join(f"{name}={value}" for name, value in held.items()) or "no model arguments"
            yield "--model-arg", next(iter(given["model_args"])), _holds(said, features)


def _is_tokenizer(name: str, identity: Mapping[str, Any]) -> bool:
    """Whether a name refers to the tokenizer of a store."""
    from collapse.inputs.references import find_tokenizer

    return find_tokenizer(name).tokenizer == identity.get("tokenizer")


def _what(name: str, identity: Mapping[str, Any]) -> str:
    """Describe what a store holds for an option."""
    if name == "eos_between":
        return f"{'' if identity.get(name) else 'no '}end-of-text tokens between texts"
    if name == "fast_attention":
        return f"attention {identity.get('attention')}"
    if name == "exact_loss":
        return f"a loss summed in float{'64' if identity.get(name) else '32'}"
    if name == "null":
        return f"the null {identity['null']}" if identity.get("null") else "the model as it is"
    if name == "max_chunks" and identity.get(name) is None:
        return "all chunks"
    if name == "max_validation_chunks" and identity.get(name) is None:
        return "no limit for the validation text alone"
    return f"{name.replace('_', ' ')} {_said(identity.get(name))}"


def _unlike_texts(
    identity: Mapping[str, Any], texts: Mapping[str, str | None], given: Mapping[str, Any]
) -> Iterator[tuple[str, Any, Any]]:
    from collapse.inputs.corpus import find_corpus
    from collapse.stores.manifest import differences

    features = "features" in identity
    names_a_text = bool(given.get("text") or given.get("validation_text"))
    for key, text, split in _TEXTS:
        held = identity.get(key) or {}
        begin = held.get("sha256") or held.get("revision")
        said = f"{key} text {texts.get(key)} ({_begin(begin)})" if held else f"no {key} text"
        if given.get(text):
            column = given.get("text_column", "text")
            asked = find_corpus(
                list(given[text]), split=given.get(split), text_column=column, validation=key == "validation"
            )
            if differences(held, asked.identity()):
                yield flag_of(text), " ".join(given[text]), _holds(said, features)
            continue
        for name, field in ((split, "split"), ("text_column", "column")):
            if name not in given or (name == "text_column" and key == "validation" and (names_a_text or not held)):
                continue
            if given[name] != held.get(field):
                yield flag_of(name), given[name], _holds(f"{said}, {field} {_said(held.get(field))}", features)


def _not_running(given: Mapping[str, Any], alone: bool) -> Iterator[tuple[str, Any, Any]]:
    """Yield the options that only affect running a model, if nothing runs."""
    if given.get("recollect"):
        yield "--recollect", True, "is measured as it is, and names no model to collect from"
    for name in _RUNNING:
        if alone and name in given:
            yield flag_of(name), given[name], "is measured as it is, and no model is run"


def _check_revision(store: "Store", revision: str) -> None:
    from collapse.inputs.references import find_model
    from collapse.stores.naming import recorded_model

    held = store.revision
    if held is not None and (held.startswith(revision) and len(revision) >= 7):
        return
    if held is None or find_model(recorded_model(store.manifest), revision=revision).revision != held:
        said = f"{store.model} @ {_begin(held)}" if held else f"{store.model}, without a revision"
        raise UsageError(f"{store} holds {said}: --revision {revision} does not apply; {_INSTEAD}")


def _features_dtype(path: str | Path) -> str | None:
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(path, "pt") as file:
            return str(file.get_slice("train_features")[:1].dtype).removeprefix("torch.")
    except (SafetensorError, OSError, ValueError, KeyError) as error:
        raise CollapseError(f"{path} cannot be read as a features file: {first_line(error)}") from error


def _holds(what: str, features: bool, name: str = "") -> str | None:
    return None if features and name != "dtype" else f"holds {what}"


def _begin(digest: str | None) -> str:
    return f"{digest[:19]}…" if digest and len(digest) > 20 else str(digest or "")


def _said(value: Any) -> Any:
    return "none" if value is None else value
