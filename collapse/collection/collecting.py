"""Collect a model on a text into a store: :func:`collect` reuses, resumes, rejects or starts a collection."""

import dataclasses
import logging
from collections.abc import Mapping, Sequence
from contextlib import nullcontext, suppress
from pathlib import Path
from typing import Any

from collapse.collection.features import collect_features, store_features
from collapse.collection.finding import find_store
from collapse.collection.known_texts import as_trained
from collapse.collection.opening_source import open_text
from collapse.collection.passes import Collection
from collapse.collection.planning import Plan, part_of, plan_collection
from collapse.collection.store_options import check_features_options, check_store_options, warn_of_stale
from collapse.errors import StoreError, UsageError
from collapse.inputs.collection_spec import CollectionSpec, accepts
from collapse.inputs.features import is_features_file
from collapse.inputs.text_pair import check_limits
from collapse.numerics.devices import pick_device
from collapse.paths import expanded
from collapse.plugin.guarding import outside_inference_mode
from collapse.plugin.plugin_manager import plugins
from collapse.plugin.statistic import Statistic
from collapse.precision import exact_arithmetic
from collapse.progress import Report
from collapse.progress_bar import shows_progress
from collapse.scoped import deterministic_algorithms
from collapse.stores.manifest import KNOWN_LATER, OF_VALIDATION, differences, is_store
from collapse.stores.partial import Partial, Progress
from collapse.stores.store import Store
from collapse.stores.store_folder import RECOLLECTED, discard_recollected, replace, settled, writing

log = logging.getLogger("collapse")


@accepts(CollectionSpec)
@shows_progress
@outside_inference_mode
@exact_arithmetic()
def collect(
    model: str | Path, *, store: str | Path | None = None, progress: Report | None = None, **options: Any
) -> Store:
    """Collect a model's embedding statistics into a store, or open the store that already holds them.

    Without ``store``, this looks in the local cache first, then for a published store of the same identity in the
    model's own repository (see :func:`collapse.collection.finding.find_store`).

    Args:
        model: A local folder, a Hub id (``repo@revision``), or a features file.
        store: Folder of the store; None for the local cache, where stores are found by their identity.
        progress: Called as progress(what, done, total).
        {options}

    Returns:
        The store: complete, trained but not validated (no validation text), or a part (see :func:`collapse.merge`).

    Raises:
        UsageError: An option is wrong, or no corpus is known.
        StoreError: The folder holds a store of something else; the message names the fields and both values.
        CollapseError: Something cannot be found, read, loaded or written, or an embedding is not finite.
    """
    model, options = _in_its_folder(model, options)
    spec = CollectionSpec(**as_trained(model, options, store))
    if spec.part is not None and store is None:
        raise UsageError("a part needs a folder of its own, to be merged from: give --store")
    kinds = _wanted_statistics(spec)
    if is_features_file(model):
        check_features_options(model, spec.given)
        pick_device(spec.device)  # not used, but an unavailable device is an error
        if store is None:
            return collect_features(model, kinds=kinds, null=spec.null)
        return store_features(model, Path(store), kinds, spec.without, spec.recollect, spec.null)
    if store is None and not spec.recollect and spec.null is None:  # what is published as a null is not trusted
        found = find_store(str(model), spec)
        if found is not None:
            return found
    there = None
    if store and is_store(store):
        held = Store.load(store)
        there = None if spec.recollect else held.identity  # to recollect is to request everything anew
        trained_on = held.identity.get("corpus") or {}
        if spec.text is None and not spec.recollect and "text_column" not in options and not trained_on.get("lines"):
            spec = dataclasses.replace(spec, text_column=trained_on.get("column", spec.text_column))
        if not spec.recollect:
            check_store_options(held, _not_compared({name: getattr(spec, name) for name in options}))
    plan = plan_collection(str(model), spec, there=there)
    check_limits(spec, plan.texts)
    if store is None and not spec.recollect and not is_store(plan.cached):
        beside = _beside(plan)
        if beside is not None:
            return beside.called(plan.names)
    folder = Path(store) if store else plan.cached
    if spec.recollect:
        _refuse_to_replace(folder, plan, cached=store is None)
    done = None if spec.recollect else _finished(folder, plan)
    if done is not None and settled(folder):
        warn_of_stale(done)
        return done.called(plan.names)
    with writing(folder, cached=store is None):
        done = None if spec.recollect else _finished(folder, plan)  # another process may have just written it
        if done is not None:
            _clear_finished(done, folder)
            warn_of_stale(done)
            return done.called(plan.names)
        if spec.recollect and not _goes_on(folder, plan, kinds):
            discard_recollected(folder)
        target = folder / RECOLLECTED if spec.recollect else folder
        trained = Store.load(target) if is_store(target) else None
        with deterministic_algorithms() if spec.deterministic else nullcontext():
            source = open_text(plan, trained, progress)
            made = Collection(source, target, kinds, spec.batch_size, spec.part, progress).run(trained)
        if spec.recollect:
            replace(folder)
            made = Store.load(folder)
        return made.called(plan.names)


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


def _beside(plan: Plan) -> Store | None:
    """Return a complete store of a plan that lies in the folder ``stores`` of its local model, such as a run's."""
    if not plan.model.is_local:
        return None
    for folder in sorted(Path(plan.model.location).glob("stores/*")):
        if is_store(folder):
            with suppress(StoreError):
                store = Store.load(folder)
                unwanted = {*plan.spec.without} & {*store.manifest["statistics"]}
                if store.state == "complete" and not unwanted and not _differences(store, plan):
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


def _refuse_to_replace(folder: Path, plan: Plan, *, cached: bool) -> None:
    """Raise StoreError unless ``--recollect`` replaces a store of the same identity and slices."""
    part = plan.spec.part
    if not is_store(folder):
        return
    try:
        store = Store.load(folder)
    except StoreError:
        if cached:  # its folder is named after the identity
            return
        raise
    differ = _differences(store, plan)
    if (store.state == "part") != (part is not None) or (part is not None and not _is_part(store, part)):
        wanted = "all" if part is None else f"part {part[0]}/{part[1]}"
        differ.append(f"slices: {store.covered() if store.state == 'part' else 'all'} and {wanted}")
    if differ:
        raise StoreError(
            f"{folder} holds a store that --recollect would lose: it differs in {'; '.join(differ)} (there and now): "
            "choose another --store, or delete it"
        )


def _goes_on(folder: Path, plan: Plan, kinds: Sequence[type[Statistic]]) -> bool:
    """Whether an unfinished ``--recollect`` can be resumed, because it collects what is requested now."""
    target = folder / RECOLLECTED
    try:
        if is_store(target):
            store = Store.load(target)
            differ, held = _differences(store, plan), store.identity["statistics"]
        else:
            place = Partial(target).read()
            differ, held = [], {kind.name: kind.version for kind in kinds}
            if place is not None:
                differ, held = _differs_unfinished(place, plan), place.identity.get("statistics", {})
        if held.keys() != {kind.name for kind in kinds}:
            differ.append(f"statistics: {', '.join(held) or 'none'} and {', '.join(k.name for k in kinds) or 'none'}")
    except StoreError as error:
        differ = [str(error)]
    if differ:
        log.warning("%s: an unfinished --recollect is discarded: it differs in %s", folder, "; ".join(differ))
    return not differ


def _clear_finished(store: Store, folder: Path) -> None:
    """Remove the state that remains if a run was killed after it wrote the store."""
    partial = Partial(folder)
    place = partial.read()
    if place is None or store.state == "complete" or place.phase == "train":
        partial.clear()


def _finished(folder: Path, plan: Plan) -> Store | None:
    """Return the store in a folder if it is finished; None if there is no store or it still lacks something."""
    if not is_store(folder):
        return None
    store = Store.load(folder).check()
    differ = _differences(store, plan)
    if differ:
        raise StoreError(
            f"{folder} holds another store, which differs in {'; '.join(differ)} (there and now): "
            "give the same options, or choose another --store"
        )
    check_store_options(store, {"without": plan.spec.without})
    if store.state == "complete":
        return store
    if store.state == "part":
        if plan.spec.part is not None and _is_part(store, plan.spec.part):
            return store
        raise StoreError(
            f"{folder} holds {store.covered()}: collect other parts into other stores, "
            "then: collapse merge STORE… --store DIR"
        )
    return None if plan.texts.wanted_beside(store.manifest["corpus"]["validation"]) else store


def _is_part(store: Store, part: tuple[int, int]) -> bool:
    train = store.manifest["coverage"]["train"]
    return bool(part[1] <= train["slices"] and [list(part_of(train["slices"], part))] == train["done"])


def _differences(store: Store, plan: Plan) -> list[str]:
    """Describe how a store differs from a plan. A missing validation is no difference, because it can be added."""
    validated = store.manifest["coverage"]["validation"] is not None or store.state == "part"
    adopts = store.identity.get("validation") is None or not validated
    return differences(store.identity, plan.identity, apart=_apart(validation=adopts))


def _differs_unfinished(place: Progress, plan: Plan) -> list[str]:
    """Describe how an unfinished collection differs from a plan."""
    absent = place.identity.get("validation") is None and not plan.texts.wanted_beside(None)  # the optional split
    return differences(place.identity, plan.identity, apart=_apart(validation=absent))


def _apart(*, validation: bool) -> frozenset[str]:
    """Return the fields of an identity that no plan has, with those of the validation if they may differ too."""
    return KNOWN_LATER | OF_VALIDATION if validation else KNOWN_LATER
