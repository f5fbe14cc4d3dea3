"""The command that validates a store whose collection stopped before."""

import os
import shlex
from pathlib import Path
from typing import Any

from collapse.inputs.collection_spec import CollectionSpec, typed
from collapse.inputs.known_tokenizers import known_tokenizers
from collapse.inputs.references import folder_name
from collapse.paths import expanded
from collapse.stores.naming import recorded_arguments, recorded_model
from collapse.stores.store import Store

_HELD = (
    *("chunk_length", "max_chunks", "max_validation_chunks", "shards", "eos_between"),
    *("dtype", "fast_attention", "exact_loss", "null"),
)
"""Options of a store that must be given again. A model that records its texts takes no numbers of chunks from it."""


def command_to_validate(store: Store, *, unasked: bool = False) -> str | None:
    """Return the command that validates a store of this machine that is only trained; None for any other.

    The model's folder stands in it where it is known here, and the names of the files of a local text, else a word in
    capitals; a store holds no paths of files, so that one stands before those that are not in the current folder.

    Args:
        store: The store.
        unasked: Also of a store for which nobody asked for a validation.
    """
    identity, named = store.identity, store.manifest["corpus"].get("validation")
    if store.state != "trained" or store.path is None or "features" in identity:
        return None
    if not (named or _was_begun(store) or unasked):
        return None
    text = identity.get("validation") or {}
    spec: dict[str, Any] = {name: identity[name] for name in _HELD if identity.get(name) is not None}
    if not text.get("revision"):
        files = str(named).split(", ") if named and " … " not in named else ["FILES"]
        spec["validation_text"] = [each if each == "FILES" or Path(each).exists() else f"PATH/{each}" for each in files]
    if text.get("column", "text") != "text":
        spec["text_column"] = text["column"]
    arguments = {name: value for name, value in (identity.get("model_args") or {}).items() if name != "gguf_file"}
    if arguments:
        spec["model_args"] = arguments
    words = ["collapse", "collect", _model(store), "--store", str(store.path)]
    return f"{shlex.join(words)} {typed(CollectionSpec(**spec))}".rstrip()


def _was_begun(store: Store) -> bool:
    return bool(store.manifest["coverage"]["validation"])


def _model(store: Store) -> str:
    """Return the name of a store's model on the Hub, or its folder or GGUF file on this machine, or MODEL."""
    name, arguments = recorded_model(store.manifest), recorded_arguments(store.manifest)
    if store.revision is not None:
        return f"{name}@{store.revision}"
    gguf_file = str(arguments.get("gguf_file") or "")
    for folder in (expanded(name), *known_tokenizers(str(store.identity.get("tokenizer")))):
        if folder.is_dir() and folder_name(folder) == name and (folder / gguf_file).exists():
            return os.path.relpath(folder / gguf_file) if folder.is_relative_to(Path.cwd()) else str(folder / gguf_file)
    return "MODEL"
