"""Turn a model and options into the request of a collection, or into a store that makes collecting unnecessary."""

import logging
from collections.abc import Iterable
from pathlib import Path

from collapse.errors import CollapseError
from collapse.hub.references import ModelReference
from collapse.inputs.classifier_source import classifier_request
from collapse.inputs.collection_spec import OF_SOURCE, CollectionSpec, check_applies
from collapse.inputs.features import features_request, is_features_file
from collapse.inputs.source import Source, source_request
from collapse.inputs.text_request import asked_model, text_request
from collapse.plugin.plugin_manager import plugins
from collapse.stores.request import Request
from collapse.stores.store import Store

log = logging.getLogger("collapse")


def resolve(model: str, spec: CollectionSpec, folder: Path | None) -> Request | Store:
    """Return the request of a collection, or a published store that makes it unnecessary.

    ``model`` is the name of a model, the path of a features file, or a name that a plugin's source accepts. Without a
    folder, the store is in the cache or, for a features file, in memory.

    Raises:
        UsageError: An option does not apply, or the model or a text does not exist.
        CollapseError: The model or a text is not available.
    """
    if is_features_file(model):
        return features_request(Path(model), spec, folder)
    if (source := _plugin_source(model, spec)) is not None:
        return source_request(source, spec, folder).with_default_folder()
    reference = asked_model(model, spec)
    may_use_published = folder is None and not spec.recollect and not spec.null  # published nulls are not used
    try:
        request = _request(reference, spec, folder=folder).with_default_folder()
    except CollapseError:  # a published store may supply missing options
        if may_use_published and (found := find_store(reference, spec)):
            return found
        raise
    if may_use_published and not request.folder_has_store and (found := find_store(reference, spec)):
        return found
    return request


def _plugin_source(model: str, spec: CollectionSpec) -> Source | None:
    """Return a plugin's source for the name ``model``, or None; raise UsageError if an option does not apply."""
    answers = plugins().answers("collapse_sources", model)
    plugin, source = next((each for each in answers if each[1] is not None), ("", None))
    if source is not None:
        check_applies(f"{model} is a source of plugin {plugin}", spec.given, OF_SOURCE)
    return source


def _request(
    reference: ModelReference, spec: CollectionSpec, *, folder: Path | None = None, accept_any_text: bool = False
) -> Request:
    if spec.task:
        return classifier_request(reference, spec, folder)
    return text_request(reference, spec, folder=folder, accept_any_text=accept_any_text)


def find_store(reference: ModelReference, spec: CollectionSpec) -> Store | None:
    """Find a store in the model's folder or repository that has what the options request; None if there is none.

    If the model is on the Hub, and the options specify no text, chunk length or limit, the store may have any of these.
    Of several stores, those of whole texts come first, then those of the longest chunks.
    """
    stores: list[Store] = []
    files = reference.files
    for folder in files.stores():
        try:
            stores.append(files.open(folder))
        except CollapseError as error:
            log.warning("ignoring a store: %s", error)
    if not stores:
        return None
    request = _request(reference, spec, accept_any_text=not reference.is_local)
    return _chosen(stores, request)


def _chosen(stores: Iterable[Store], request: Request) -> Store | None:
    """Return the preferred one of the stores that match the request, or None if no store matches.

    The returned store shows the request's names of model and texts, except the names of open fields.
    """

    def order(store: Store) -> tuple[bool, bool, int, str]:
        limited = [store.identity.get(name) is not None for name in ("max_chunks", "max_validation_chunks")]
        return limited[0], limited[1], -int(store.identity.get("chunk_length") or 0), str(store)

    fitting = []
    for store in stores:
        if differ := request.store_differences(store, whole=True):
            log.debug("%s is not the requested store: it differs in %s", store, "; ".join(differ))
        else:
            fitting.append(store)
    if not fitting:
        return None
    store = min(fitting, key=order)
    limits = {"tokens per chunk": "chunk_length", "chunks": "max_chunks", "validation chunks": "max_validation_chunks"}
    what = [f"{store.identity[name]} {words}" for words, name in limits.items() if store.identity.get(name)]
    message = "%s: using the existing store %s (%s). To collect it yourself, add --recollect"
    log.warning(message, request.shown_names["model"], store, ", ".join([store.corpus, *what]))
    names = request.shown_names.items()
    return store.with_names({kind: name for kind, name in names if kind not in request.open_fields})
