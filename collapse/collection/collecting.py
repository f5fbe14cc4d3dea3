"""Collect a model on a text into a store: :func:`collect` reuses, resumes, rejects or starts a collection."""

import dataclasses
import logging
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, overload

from collapse.collection.features import FeaturesRequest
from collapse.collection.finding import find_store
from collapse.collection.into_folder import collect_into
from collapse.collection.known_texts import as_trained
from collapse.collection.planning import plan_collection
from collapse.collection.store_options import check_store_options
from collapse.collection.text_request import TextRequest
from collapse.core.paths import expanded
from collapse.core.precision import exact_arithmetic
from collapse.core.progress import Report, shows_progress
from collapse.errors import StoreError, UsageError
from collapse.inputs.collection_spec import CollectionSpec, accepts
from collapse.inputs.features import is_features_file
from collapse.inputs.text_pair import check_limits
from collapse.plugin.guarding import outside_inference_mode
from collapse.plugin.plugin_manager import plugins
from collapse.plugin.statistic import Statistic
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
    model, options = _in_its_folder(model, options)
    spec = CollectionSpec(**as_trained(model, options, store))
    if spec.part is not None and store is None:
        raise UsageError("a part needs a folder of its own, to be merged from: give --store")
    if spec.part is not None and spec.recollect:
        raise UsageError("--recollect collects a whole store again: leave it out, and delete the folder of the part")
    kinds = _wanted_statistics(spec)
    if is_features_file(model):
        features = FeaturesRequest(model, spec)
        if store is None:
            return features.collect(None, kinds)
        return collect_into(Path(store), features, kinds, progress, recollect=spec.recollect)
    if store is None and not spec.recollect and spec.null is None:  # what is published as a null is not trusted
        found = find_store(str(model), spec)
        if found is not None:
            return found
    plan = _planned(str(model), spec, options, store)
    if store is None and not spec.recollect and not is_store(plan.cached):
        beside = _beside(plan)
        if beside is not None:
            return beside.called(plan.names)
    folder = Path(store) if store else plan.cached
    return collect_into(folder, plan, kinds, progress, recollect=spec.recollect, cached=store is None)


def _planned(model: str, spec: CollectionSpec, options: Mapping[str, Any], store: str | Path | None) -> TextRequest:
    """Return the plan of a collection, which takes what it leaves open from the store that is there.

    To recollect is to request everything anew.
    """
    there = None
    if store and is_store(store) and not spec.recollect:
        held = Store.load(store)
        there = held.identity
        trained_on = there.get("corpus") or {}
        if spec.text is None and "text_column" not in options and not trained_on.get("lines"):
            spec = dataclasses.replace(spec, text_column=trained_on.get("column", spec.text_column))
        check_store_options(held, _not_compared({name: getattr(spec, name) for name in options}))
    plan = plan_collection(model, spec, there=there)
    check_limits(spec, plan.texts)
    return plan


def _wanted_statistics(spec: CollectionSpec) -> list[type[Statistic]]:
    known = plugins().statistics
    for name in spec.without:
        if name not in known:
            raise UsageError(f"no statistic is called {name!r}; there are {', '.join(sorted(known)) or 'none'}")
    return [kind for name, kind in sorted(known.items()) if name not in spec.without]


def _in_its_folder(model: str | Path, options: dict[str, Any]) -> tuple[str | Path, dict[str, Any]]:
    """Return the folder of a GGUF file, and the options with the file's name; anything else unchanged."""
    if not isinstance(model, str | Path):
        raise UsageError(
            f"collect() takes a folder or a Hub id, not a {type(model).__name__}; for a loaded model: "
            "collapse.collect_loaded(model, tokenizer, texts)"
        )
    path = expanded(str(model))
    if path.suffix != ".gguf" or not path.is_file():
        return model, options
    return path.parent, {**options, "model_args": {**(options.get("model_args") or {}), "gguf_file": path.name}}


def _beside(plan: TextRequest) -> Store | None:
    """Return a complete store of a plan that lies in the folder ``stores`` of its local model, such as a run's."""
    if not plan.model.is_local:
        return None
    for folder in sorted(Path(plan.model.location).glob("stores/*")):
        if is_store(folder):
            with suppress(StoreError):
                store = Store.load(folder)
                unwanted = {*plan.spec.without} & {*store.manifest["statistics"]}
                if store.state == "complete" and not unwanted and not plan.differences(store):
                    log.warning("using the store %s, which holds exactly this collection", folder)
                    return store.check()
    return None


# Options that are not compared with an existing store, unless one of these texts is given.
_NOT_COMPARED: dict[str, tuple[str, ...]] = {
    "split": ("text",),
    "validation_split": ("validation_text",),
    "text_column": ("text", "validation_text"),
    "without": (),
}


def _not_compared(given: Mapping[str, Any]) -> dict[str, Any]:
    given = {name: value for name, value in given.items() if value is not None}
    return {n: given[n] for n, texts in _NOT_COMPARED.items() if n in given and not any(given.get(t) for t in texts)}
