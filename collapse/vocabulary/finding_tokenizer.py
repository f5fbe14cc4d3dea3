"""Find the tokenizer of a store, or load the one that the user gives and compare its hash."""

import os
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from collapse.core.paths import expanded
from collapse.errors import CollapseError, UsageError, first_line
from collapse.hub.fingerprints import Folder, tokenizer_fingerprint
from collapse.inputs.known_tokenizers import known_tokenizers
from collapse.inputs.model_loading import load_tokenizer
from collapse.inputs.references import ModelReference, find_tokenizer
from collapse.stores.naming import recorded_arguments, recorded_model
from collapse.stores.store import Store

_REMEDY = "name it with --tokenizer (tokenizer=)"
_METHODS = ("convert_ids_to_tokens", "decode", "encode")


def find_tokenizer_of(store: Store | None, given: Any = None) -> tuple[Any, str | None]:
    """Return the tokenizer that gives a store's classes their texts, and a remark on it, or None.

    A store records the fingerprint of its tokenizer, and where it is on the Hub. A folder is found again if it was
    collected from on this machine, if it lies beside the store, or if the model's name leads to it from the current
    folder.

    Args:
        store: The store; None for bare statistics, which have no tokenizer.
        given: A folder, a GGUF file, a Hub id, or a tokenizer of transformers; None for the store's own.

    Returns:
        The tokenizer, or None if none is found: the remark then says why.

    Raises:
        UsageError: There is no such tokenizer.
        CollapseError: The given one cannot be loaded.
    """
    identity = store.identity | {"model_args": recorded_arguments(store.manifest)} if store is not None else {}
    if given is not None and not isinstance(given, str | os.PathLike):
        if not all(callable(getattr(given, method, None)) for method in _METHODS):
            raise UsageError(
                f"tokenizer must be a folder, a Hub id or a transformers tokenizer, got a {type(given).__name__}"
            )
        return given, None
    if given is not None:
        reference, arguments = _named(str(given), identity)
        return load_tokenizer(reference, model_args=arguments), _difference(reference, identity)
    if store is None or not identity.get("tokenizer"):
        return None, f"{'statistics have' if store is None else 'the store records'} no tokenizer: ids have no texts"
    try:
        found = _own(store, identity)
        if found is not None:
            return load_tokenizer(found[0], model_args=found[1]), None
        why = f"its files ({_begin(identity['tokenizer'])}) are not found"
        remedy = _remedy(store)
    except CollapseError as error:
        why, remedy = first_line(error), _REMEDY
    return None, f"ids have no texts without the store's tokenizer: {why}; {remedy}"


def _own(store: Store, identity: Mapping[str, Any]) -> tuple[ModelReference, Mapping[str, Any]] | None:
    """Find the recorded tokenizer; None if its folder is not found."""
    model, arguments = store.manifest["model"], identity.get("model_args") or {}
    if model.get("tokenizer"):
        return find_tokenizer(model["tokenizer"]), {}
    if store.revision:
        return find_tokenizer(f"{recorded_model(store.manifest)}@{store.revision}", arguments), arguments
    for folder in _candidates(store, str(identity["tokenizer"])):
        if folder.is_dir():
            with suppress(CollapseError, OSError):  # any folder may lie there
                found = _named(str(folder), identity)
                if _difference(found[0], identity) is None:
                    return found
    return None


def _candidates(store: Store, tokenizer: str) -> Iterator[Path]:
    """Yield folders that may hold a store's tokenizer; the caller compares hashes."""
    model = recorded_model(store.manifest)
    yield from (expanded(name) for name in (store.named.get("tokenizer"), model) if name)
    yield from known_tokenizers(tokenizer)
    if store.path is not None:
        # the folder stores/ lies in the model's own, as in a training run, or beside those of models
        for above in store.path.resolve().parents[:2]:
            yield from (above, above / "tokenizer", above / model, above / "models" / model)


def _remedy(store: Store) -> str:
    gguf_file = recorded_arguments(store.manifest).get("gguf_file")
    return f"name {f'the file {store.model}' if gguf_file else 'its folder'} with --tokenizer (tokenizer=)"


def _named(name: str, identity: Mapping[str, Any]) -> tuple[ModelReference, Mapping[str, Any]]:
    """Find a named tokenizer, and the model's arguments if it is read with them, as one in a GGUF file is."""
    folder, arguments = expanded(name), identity.get("model_args") or {}
    if folder.suffix == ".gguf" and folder.is_file():
        arguments = {"gguf_file": folder.name}
        fingerprint = tokenizer_fingerprint(Folder(folder.parent), arguments)
        return ModelReference(folder.name, str(folder.parent), None, "", fingerprint), arguments
    if arguments and folder.is_dir():
        fingerprint = tokenizer_fingerprint(Folder(folder), arguments)
        if fingerprint == identity.get("tokenizer"):
            return ModelReference(folder.resolve().name, str(folder), None, "", fingerprint), arguments
    return find_tokenizer(name), {}


def _difference(reference: ModelReference, identity: Mapping[str, Any]) -> str | None:
    """Return a remark if a tokenizer is not, or may not be, the store's; else None."""
    held = str(identity.get("tokenizer") or "")
    if held == reference.tokenizer:
        return None
    given = f"the tokenizer {reference.name} ({_begin(reference.tokenizer)})"
    if not held:
        return f"the store records no tokenizer: the texts are those of {reference.name}"
    return f"{given} differs from the store's ({_begin(held)}): the texts may be those of other tokens"


def _begin(fingerprint: str) -> str:
    return f"{fingerprint[:19]}…"
