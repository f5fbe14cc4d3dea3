"""The texts of a request: those that its options name, else those on which a plugin knows the model was trained."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from collapse.core.paths import expanded
from collapse.inputs.corpus import find_corpus
from collapse.plugin.plugin_manager import plugins
from collapse.stores.manifest import is_store
from collapse.stores.store import Store


def as_trained(model: str | Path, options: dict[str, Any], store: str | Path | None) -> dict[str, Any]:
    """Return the options of a collection with the texts of a local model that a plugin knows, unless they name any.

    So the same command means the same texts before, during and after a collection. A store of another text keeps it,
    unless it is to be collected again.

    Args:
        model: The model.
        options: Options of :func:`collapse.collect` as they were given.
        store: Folder of the store, or None.

    Raises:
        CollapseError: The model or its texts are not what they were.
        StoreError: The store cannot be read.
    """
    folder = expanded(str(model))
    given = {name: value for name, value in options.items() if value is not None}
    if not folder.is_dir() or "text" in given or "split" in given:
        return options
    known = next((known for _, known in plugins().answers("collapse_trained_on", folder) if known), None)
    if not known or (store and is_store(store) and not given.get("recollect") and not _is_of(Store.load(store), known)):
        return options
    if given.get("validation_text"):  # the known split is one of the known text
        known = {name: value for name, value in known.items() if name not in ("validation_text", "validation_split")}
    return {**known, **given}


def _is_of(store: Store, known: Mapping[str, Any]) -> bool:
    """Whether a store's training text is the one that a plugin knows."""
    text, split = known.get("text"), known.get("split")
    if not text:
        return False
    found = find_corpus(text, split=split, text_column=known.get("text_column", "text"))
    return found.identity() == store.identity.get("corpus")
