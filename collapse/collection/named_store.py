"""Open the store for a name: a local store, a store on the Hub, or a store collected from a model or features file."""

from collections.abc import Mapping
from typing import Any

from collapse.collection.collecting import collect
from collapse.collection.nulls import refuse_store
from collapse.core.paths import expanded
from collapse.core.progress import Report
from collapse.errors import UsageError
from collapse.hub.client import at_revision
from collapse.hub.opening import is_hub_place, open_named
from collapse.inputs.collection_spec import CollectionSpec, refuse_options
from collapse.inputs.features import check_features_options, is_features_file
from collapse.inputs.resolving import find_store_at
from collapse.stores.manifest import is_part, is_store
from collapse.stores.store import Store


def named_store(name: str, *, store: str | None, progress: Report | None, **options: Any) -> Store:
    """Open the store for a name, or collect it.

    Args:
        name: A local store, a model, a features file, or a store or model on the Hub.
        store: Folder of a model's store, or a repository of stores on the Hub; None for the local cache.
        progress: Called as progress(what, done, total).
        **options: Options of :func:`collapse.collect` that :func:`check_options` accepts.

    Raises:
        UsageError: An option is invalid, or does not apply to the store.
        CollapseError: As in :func:`collapse.collect`.
    """
    if is_store(name) or is_part(name):  # for a part, load() raises an error that says what to do
        if store is not None:
            raise UsageError(f"{name} is a store: --store {store} does not apply; remove the option")
        return Store.load(name)
    may_be_on_hub = not is_features_file(name) and not expanded(name).exists()
    if may_be_on_hub and not options.get("recollect"):
        named = open_named(at_revision(name, options.get("revision")))
        if named is not None:
            # the revision is of the store's repository, and has already been used
            refuse_options(named, [each for each in options if each != "revision"])
            return named
        if store is not None and is_hub_place(store):
            found = find_store_at(store, name, CollectionSpec(**options))
            if found is not None:
                return found
    return collect(name, store=store, progress=progress, **options)


def check_options(name: str, options: Mapping[str, Any], *, null: bool) -> None:
    """Raise UsageError for options of :func:`named_store` that do not apply to a local store or a features file."""
    if is_store(name):
        if null:
            refuse_store(name)
        refuse_options(name, options)
    elif is_features_file(name):
        check_features_options(name, options)
