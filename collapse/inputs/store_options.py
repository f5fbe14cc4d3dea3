"""Options beside a finished store: those that ask for what it holds, and those that do not apply."""

from collections.abc import Iterable, Mapping
from typing import Any

from collapse.errors import UsageError
from collapse.inputs.collection_spec import flag_of, options_of

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


def refuse_options(store: object, given: Iterable[str]) -> None:
    """Raise UsageError for options of a collection beside a finished store."""
    for name in given:
        if options_of()[name].role != "running" or name == "recollect":
            raise UsageError(f"{store} is a store, and is measured as it is: leave out {flag_of(name)}")
