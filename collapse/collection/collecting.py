"""Collect a model on a text into a store: :func:`collect` opens the store that is there, or collects what it lacks."""

import logging
from contextlib import suppress
from pathlib import Path
from typing import Any, overload

from collapse.collection.features import FeaturesRequest
from collapse.collection.finding import find_store
from collapse.collection.into_folder import collect_into
from collapse.collection.request import Request
from collapse.collection.store_options import check_store_options, options_held
from collapse.collection.text_request import TextRequest, text_request
from collapse.errors import CollapseError, StoreError, UsageError
from collapse.inputs.collection_spec import CollectionSpec, accepts
from collapse.inputs.corpus import find_corpus
from collapse.inputs.features import is_features_file
from collapse.paths import expanded
from collapse.plugin.guarding import outside_inference_mode
from collapse.plugin.plugin_manager import plugins
from collapse.precision import exact_arithmetic
from collapse.progress import Report
from collapse.progress_bar import shows_progress
from collapse.stores.manifest import is_store
from collapse.stores.shards import Part
from collapse.stores.store import Store

log = logging.getLogger("collapse")


@overload
def collect(
    model: str | Path,
    *,
    store: str | Path | None = None,
    progress: Report | None = None,
    part: None = None,
    **options: Any,
) -> Store: ...


@overload
def collect(
    model: str | Path, *, store: str | Path, progress: Report | None = None, part: tuple[int, int], **options: Any
) -> Store | Part: ...


@accepts(CollectionSpec)
@shows_progress
@outside_inference_mode
@exact_arithmetic()
def collect(
    model: str | Path, *, store: str | Path | None = None, progress: Report | None = None, **options: Any
) -> Store | Part:
    """Collect a model's embedding statistics into a store, or open the store that already holds them.

    Without ``store``, this looks in the local cache first, then for a published store of the same identity in the
    model's own repository (see :func:`collapse.collection.finding.find_store`).

    Args:
        model: A local folder, a Hub id (``repo@revision``), or a features file.
        store: Folder of the store; None for the local cache, where stores are found by their identity.
        progress: Called as progress(what, done, total).
        {options}

    Returns:
        The store: complete, or trained but not validated (no validation text). With ``part``, as long as slices are
        missing in the folder, a :class:`collapse.Part` (see :func:`collapse.merge`).

    Raises:
        UsageError: An option is wrong, or no corpus is known.
        StoreError: The folder holds a store of something else; the message names the fields and both values.
        CollapseError: Something cannot be found, read, loaded or written, or an embedding is not finite.
    """
    if not isinstance(model, str | Path):
        raise UsageError(
            f"collect() takes a folder or a Hub id, not a {type(model).__name__}; for a loaded model: "
            "collapse.collect_loaded(model, tokenizer, texts)"
        )
    if is_features_file(model):
        request: Request = FeaturesRequest(model, CollectionSpec(**options))
        return collect_into(Path(store) if store else None, request, progress)
    model, given = _in_its_folder(str(model), options)
    given = _with_texts(model, given, store)
    spec = CollectionSpec(**given)
    if spec.part is not None and store is None:
        raise UsageError("a part needs a folder of its own, to be merged from: give --store")
    if store is not None:
        return collect_into(Path(store), _beside_store(model, given, Path(store)), progress)
    found = _found(model, spec)
    return found if isinstance(found, Store) else collect_into(found.cached, found, progress)


def _in_its_folder(model: str, options: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    """Return the folder of a GGUF file, and the given options with the file's name; other models unchanged."""
    given = {name: value for name, value in options.items() if value is not None}
    path = expanded(model)
    if path.suffix != ".gguf" or not path.is_file():
        return model, given
    return str(path.parent), {**given, "model_args": {**given.get("model_args", {}), "gguf_file": path.name}}


def _with_texts(model: str, given: dict[str, Any], store: str | Path | None) -> dict[str, Any]:
    """Return the options with the texts that a plugin knows the model was trained on, unless they name any.

    So the same command refers to the same texts before, during and after a collection. A store of another text keeps
    it, unless it is collected again.
    """
    known = {} if "text" in given or "split" in given else plugins().trained_on(expanded(model))
    if not known:
        return given
    if store and is_store(store) and not given.get("recollect"):
        text = find_corpus(known["text"], split=known.get("split"), text_column=known.get("text_column", "text"))
        if text.identity() != Store.load(store).identity.get("corpus"):
            return given
    if given.get("validation_text"):  # the known split is one of the known text
        known = {name: value for name, value in known.items() if name not in ("validation_text", "validation_split")}
    return {**known, **given}


def _beside_store(model: str, given: dict[str, Any], folder: Path) -> TextRequest:
    """Return the request for a folder; options that name no text mean that of the store which is there."""
    spec = CollectionSpec(**given)
    if spec.text is not None or spec.recollect or not is_store(folder):
        return text_request(model, spec)
    store = Store.load(folder)
    apart = ("validation_split", "text_column") if spec.validation_text else ()
    check_store_options(store, {name: given[name] for name in _OF_TEXTS if name in given and name not in apart})
    spec = CollectionSpec(**options_held(store.identity, given, texts_only=True))
    return text_request(model, spec, there=None if spec.text else store.identity)


_OF_TEXTS = ("split", "validation_split", "text_column", "without")


def _found(model: str, spec: CollectionSpec) -> Store | TextRequest:
    """Return the store that makes a collection into the cache unnecessary, else the request for it."""
    if spec.recollect:
        return text_request(model, spec)
    try:
        request, problem = text_request(model, spec), None
    except CollapseError as error:
        request, problem = None, error
    if request is None or not is_store(request.cached):
        # what is published as a null is not trusted
        found = find_store(model, spec) if spec.null is None else None
        found = found or (_beside_model(request) if request else None)
        if found is not None:
            return found
    if problem is not None:
        raise problem
    assert request is not None  # else there is a problem
    return request


def _beside_model(request: TextRequest) -> Store | None:
    """Return a complete store of a request in the folder ``stores`` of its local model, such as a run's."""
    if not request.model.is_local:
        return None
    for folder in sorted(Path(request.model.location).glob("stores/*")):
        if is_store(folder):
            with suppress(StoreError):
                store = Store.load(folder)
                if store.state == "complete" and not request.differences_of(store):
                    log.warning("using the store %s, which holds exactly this collection", folder)
                    return store.check().called(request.names)
    return None
