"""Find the tokenizer of a store, or load the user's tokenizer and compare its fingerprint with the store's."""

import os
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from collapse.core.paths import expanded
from collapse.errors import CollapseError, first_line
from collapse.hub.references import ModelReference, find_tokenizer, known_tokenizer
from collapse.inputs.model_loading import load_tokenizer
from collapse.stores.store import Store


def find_tokenizer_of(store: Store | None, given: Any = None) -> tuple[Any, str | None]:
    """Return the tokenizer that decodes a store's classes to texts, and a remark on this tokenizer or None.

    A store records the fingerprint of its tokenizer and, if the tokenizer is on the Hub, the address there. The folder
    of a local tokenizer is found if a collection on this machine used this folder, or if the store's name for its model
    is the relative path of this folder.

    Args:
        store: The store; None for statistics without a store, which have no tokenizer.
        given: A folder, a GGUF file, a Hub id, or a tokenizer of transformers; None for the store's own.

    Returns:
        The tokenizer and the remark. For a classifier, the list of its classes' names replaces the tokenizer. If no
        tokenizer is found, the first value is None and the remark says why.

    Raises:
        UsageError: There is no such tokenizer.
        CollapseError: The given tokenizer cannot be loaded.
    """
    held = str(store.identity.get("tokenizer") or "") if store is not None else ""
    arguments = store.found_at[1] if store is not None else {}
    if isinstance(given, str | os.PathLike):
        found = _named(str(given), arguments, held)
        return load_tokenizer(found), _difference(found, held)
    if given is not None:
        return given, None
    if store is not None and (names := store.manifest["model"].get("classes")):
        return names, None
    if store is None or not held:
        return None, f"{'statistics have' if store is None else 'the store records'} no tokenizer: only ids are shown"
    why = f"its files ({_begin(held)}) were not found"
    try:
        own = _own(store, arguments, held)
        if own is not None:
            return load_tokenizer(own), None
    except CollapseError as error:
        why = first_line(error)
    name = f"the file {store.model}" if arguments.get("gguf_file") else "its folder"
    said = f"the store's tokenizer is not available, so only ids are shown: {why}"
    return None, f"{said}; give {name} with --tokenizer (tokenizer=)"


def _own(store: Store, arguments: Mapping[str, Any], held: str) -> ModelReference | None:
    """Find the tokenizer that a store records; None if the folder of a local tokenizer is not found.

    ``arguments`` choose a tokenizer in a folder or repository, for example by the name of a GGUF file. ``held`` is the
    fingerprint that the store records.
    """
    if name := store.manifest["model"].get("tokenizer"):
        return find_tokenizer(name)
    if store.revision:
        return find_tokenizer(f"{store.found_at[0]}@{store.revision}", arguments)
    for folder in (store.named.get("tokenizer"), store.found_at[0], known_tokenizer(held)):
        if folder and expanded(folder).is_dir():
            with suppress(CollapseError, OSError):  # the folder may hold anything
                found = _named(str(expanded(folder)), arguments, held)
                if found.tokenizer == held:
                    return found
    return None


def _named(name: str, arguments: Mapping[str, Any], held: str) -> ModelReference:
    """Find a tokenizer by name: a folder, a GGUF file or a Hub id.

    ``arguments`` choose a tokenizer in a folder, for example by the name of a GGUF file. They are ignored if the name
    is no folder, or if the chosen tokenizer does not have the fingerprint ``held``.
    """
    if arguments and expanded(name).is_dir():
        found = find_tokenizer(name, arguments)
        if found.tokenizer == held:
            return found
    return find_tokenizer(name)


def _difference(found: ModelReference, held: str) -> str | None:
    """Return a remark if a tokenizer differs from the store's tokenizer, or if the store records none; else None."""
    if held == found.tokenizer:
        return None
    if not held:
        return f"the store records no tokenizer: the texts are those of {found.name}"
    return (
        f"the tokenizer {found.name} ({_begin(found.tokenizer)}) differs from the store's ({_begin(held)}): "
        "the texts may be those of other tokens"
    )


def _begin(fingerprint: str) -> str:
    return f"{fingerprint[:19]}…"
