"""Find what a model and options refer to: the request of a collection, or the store that makes it unnecessary."""

import logging
from contextlib import suppress
from pathlib import Path

from collapse.errors import CollapseError, StoreError
from collapse.inputs.collection_spec import CollectionSpec
from collapse.inputs.features import is_features_file
from collapse.inputs.features_request import FeaturesRequest
from collapse.inputs.finding import find_store
from collapse.inputs.request import Request
from collapse.inputs.text_request import TextRequest, text_request
from collapse.stores.manifest import is_store
from collapse.stores.store import Store

log = logging.getLogger("collapse")


def resolve(model: str | Path, spec: CollectionSpec, folder: Path | None) -> Request | Store:
    """Return the request of a collection; or, into the cache, the store elsewhere that makes it unnecessary.

    Args:
        model: A local folder, a Hub id, a GGUF file or a features file.
        spec: The options.
        folder: Folder of the store; None for the cache.

    Raises:
        UsageError: An option is wrong, or no corpus is known.
        CollapseError: Something cannot be found or read.
    """
    if is_features_file(model):
        return FeaturesRequest(model, spec)
    if folder is not None:
        held = Store.load(folder) if is_store(folder) and not spec.recollect else None
        return text_request(str(model), spec, held=held)
    try:
        request = text_request(str(model), spec)
    except CollapseError:  # a published store may supply what the options do not say
        found = None if spec.recollect or spec.null else find_store(str(model), spec)
        if found is None:
            raise
        return found
    if spec.recollect or is_store(request.cached):
        return request
    found = None if spec.null else find_store(str(model), spec)  # what is published as a null is not trusted
    return found or _beside_model(request) or request


def _beside_model(request: TextRequest) -> Store | None:
    """Return a complete store of a request in the folder ``stores`` of its local model, such as a run's."""
    if not request.model.is_local:
        return None
    for folder in sorted(Path(request.model.location).glob("stores/*")):
        if is_store(folder):
            with suppress(StoreError):
                store = Store.load(folder)
                if store.state == "complete" and not request.differences_of(store) + request.statistics_in(store):
                    log.warning("using the store %s, which holds exactly this collection", folder)
                    return store.check().called(request.names)
    return None
