"""Find the options with which a store was collected, and reject options that do not apply to a finished store."""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from collapse.errors import UsageError
from collapse.inputs.collection_spec import check_applies, options_of
from collapse.stores.manifest import is_store

_TEXTS = (("corpus", "text", "split"), ("validation", "validation_text", "validation_split"))
_LIMITS = ("chunk_length", "max_chunks", "max_validation_chunks")
_HOW = ("shards", "eos_between", "special_tokens", "ignore_tokens", "dtype", "quantize", "fast_attention", "exact_loss")


def options_held(identity: Mapping[str, Any], given: Mapping[str, Any], *, texts_only: bool = False) -> dict[str, Any]:
    """Return the options ``given``, completed with options that a store's ``identity`` records.

    Local texts are not added, because the identity holds only their hashes. With ``texts_only``, only options of the
    texts are added: names, splits, column, chunk length and limits.
    """
    names = _LIMITS if texts_only else (*_LIMITS, *_HOW)
    found = {name: identity[name] for name in names if identity.get(name) is not None}
    for key, text, split in () if "task" in identity else _TEXTS:  # with --task, the user gives the data again
        held = identity.get(key) or {}
        if held.get("revision") and text not in given:
            found |= {text: f"{held['name']}@{held['revision']}", split: held["split"]}
        if held.get("column"):
            found.setdefault("text_column", held["column"])
    return {**found, **given}


def refuse_options(what: str, given: Iterable[str]) -> None:
    """Raise UsageError for a given option that needs a new collection; ``what`` begins the message with the reason."""
    applying = {name for name, each in options_of().items() if each.role in ("running", "layers")} - {"recollect"}
    check_applies(what, given, applying)


def refuse_store(name: str | Path) -> None:
    """Raise UsageError if a name refers to a store, because null baselines need a model and a text."""
    if is_store(name):
        raise UsageError(
            f"{name} is a store, and null baselines need a model and a text: run collapse measure MODEL --text FILES "
            "--null"
        )
