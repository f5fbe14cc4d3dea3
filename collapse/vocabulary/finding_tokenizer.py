"""Find the tokenizer of a store, which gives its classes their texts, or take and compare the one that a user names."""

import os
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from collapse.errors import CollapseError, UsageError, first_line
from collapse.hub.fingerprints import tokenizer_fingerprint
from collapse.inputs.known_tokenizers import known_tokenizers
from collapse.inputs.model_loading import load_tokenizer
from collapse.inputs.references import ModelReference, find_model, find_tokenizer
from collapse.paths import expanded
from collapse.stores.naming import recorded_arguments, recorded_model
from collapse.stores.store import Store

_REMEDY = "name it with --tokenizer (tokenizer=)"
_METHODS = ("convert_ids_to_tokens", "decode", "encode")


def find_tokenizer_of(store: Store | None, given: Any = None) -> tuple[Any, str | None]:
    """Return the tokenizer that gives a store's classes their texts, and a remark on it, or None.

    A store records its tokenizer by a commit on the Hub, which is loaded from there or from the cache, or by the hash
    of a folder's files. The folder is found again if it was collected from on this machine, if it lies beside the
    store, or if the model's name leads to it from the current folder.

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
            raise UsageError(f"a {type(given).__name__} is no tokenizer: give a folder, a Hub id or a transformers one")
        return given, None
    if given is not None:
        reference, arguments = _named(str(given), identity)
        return load_tokenizer(reference, model_args=arguments), _difference(reference, arguments, identity)
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
    kind, _, rest = str(identity["tokenizer"]).partition(":")
    arguments = identity.get("model_args") or {}
    if kind == "commit":
        repo, _, commit = rest.rpartition(":")
        own = repo == recorded_model(store.manifest)
        return find_model(repo, revision=commit, what="tokenizer"), arguments if own else {}
    for folder in _candidates(store, str(identity["tokenizer"])):
        if folder.is_dir():
            with suppress(CollapseError, OSError):  # any folder may lie there
                found = _named(str(folder), identity)
                if _difference(*found, identity) is None:
                    return found
    return None


def _candidates(store: Store, tokenizer: str) -> Iterator[Path]:
    """Yield the folders in which a store's tokenizer may lie; its hash tells."""
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
        fingerprint = tokenizer_fingerprint(folder.parent, arguments, alone=True)
        return ModelReference(folder.name, str(folder.parent), None, "", fingerprint), arguments
    if not folder.is_dir() or not _is_read_with(folder, arguments, identity):
        return find_tokenizer(name), {}
    fingerprint = tokenizer_fingerprint(folder, arguments, alone=True)
    return ModelReference(folder.resolve().name, str(folder), None, "", fingerprint), arguments


def _is_read_with(folder: Path, arguments: Mapping[str, Any], identity: Mapping[str, Any]) -> bool:
    try:
        return bool(arguments) and tokenizer_fingerprint(folder, arguments) == identity.get("tokenizer")
    except (CollapseError, OSError):  # no such GGUF file or subfolder in it
        return False


def _difference(reference: ModelReference, arguments: Mapping[str, Any], identity: Mapping[str, Any]) -> str | None:
    """Say that a tokenizer is not the store's, or that this is not known; None if it is."""
    held = str(identity.get("tokenizer") or "")
    own = {reference.tokenizer}
    if reference.is_local:  # in the model's own folder, config.json is hashed with the weights
        own.add(tokenizer_fingerprint(Path(reference.location), arguments))
    if held in own:
        return None
    given = f"the tokenizer {reference.name} ({_begin(reference.tokenizer)})"
    if not held:
        return f"the store records no tokenizer: the texts are those of {reference.name}"
    if held.partition(":")[0] != reference.tokenizer.partition(":")[0]:
        return f"{given} cannot be compared with the store's ({_begin(held)}): a commit is no hash of files"
    return f"{given} differs from the store's ({_begin(held)}): the texts may be those of other tokens"


def _begin(identity: str) -> str:
    return f"{identity[:-28]}…" if identity.startswith("commit:") else f"{identity[:19]}…"
