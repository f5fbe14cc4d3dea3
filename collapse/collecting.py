"""Model × text → store: what :func:`collect` finds there already, what it refuses, and what it sets to work."""

import dataclasses
import logging
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from collapse.accumulate import Statistic
from collapse.errors import StoreError, UsageError
from collapse.features import collect_features, is_features_file
from collapse.finding import find_store
from collapse.guarding import outside_inference_mode
from collapse.held import check_features_options, check_store_options
from collapse.manifest import differences, is_store
from collapse.models import pick_device
from collapse.partial import Partial
from collapse.passes import Collection
from collapse.places import RECOLLECTED, discard_recollected, replace, settled, writing
from collapse.planning import Plan, part_of, plan_collection
from collapse.plugin_manager import plugins
from collapse.precision import exact_arithmetic
from collapse.reporting import Report
from collapse.spec import CollectionSpec, accepts
from collapse.store import Store, load_same

log = logging.getLogger("collapse")


@accepts(CollectionSpec)
@outside_inference_mode
@exact_arithmetic()
def collect(
    model: str | Path, *, store: str | Path | None = None, progress: Report | None = None, **options: Any
) -> Store:
    """Collect a model's embedding statistics into a store, or open the store that already holds them.

    Without ``store`` these are, in this order, the one in the local cache and one that is published in the model's own
    repository, if it is of the same identity (see :func:`collapse.finding.find_store`).

    Args:
        model: A local folder, a Hub id (``repo@revision``), or a features file.
        store: Folder of the store; None for the local cache, where it is found again by what it holds.
        progress: Called as progress(what, done, total).
        {options}

    Returns:
        The store: complete, trained but not validated (no validation text), or a part (see :func:`collapse.merge`).

    Raises:
        UsageError: An option is wrong, or no corpus is known.
        StoreError: The folder holds a store of something else; the fields and both values are named.
        CollapseError: Something cannot be found, read, loaded or written, or an embedding is not finite.
    """
    spec = CollectionSpec(**options)
    if spec.part is not None and store is None:
        raise UsageError("a part needs a folder of its own, to be merged from: give --store")
    known = plugins().statistics
    for name in spec.without:
        if name not in known:
            raise UsageError(f"no statistic is called {name!r}; there are {', '.join(sorted(known)) or 'none'}")
    kinds = [kind for name, kind in sorted(known.items()) if name not in spec.without]
    if is_features_file(model):
        check_features_options(model, spec.given)
        pick_device(spec.device)  # nothing runs, but what is named must be there
        return _features(Path(model), Path(store) if store else None, kinds)
    if store is None and spec.part is None and not spec.recollect:
        found = find_store(str(model), spec)
        if found is not None:
            return found
    there = None
    if store and is_store(store):
        held = Store.load(store)
        there = held.identity
        trained_on = there.get("corpus") or {}
        if spec.text is None and not spec.recollect and "text_column" not in options and not trained_on.get("lines"):
            spec = dataclasses.replace(spec, text_column=trained_on.get("column", spec.text_column))
        if not spec.recollect:
            check_store_options(held, _not_compared({name: getattr(spec, name) for name in options}))
    if there and spec.recollect:  # the texts are read anew, so they must be named
        there = {**there, "corpus": None, "validation": None}
    plan = plan_collection(str(model), spec, there=there)
    folder = Path(store) if store else plan.cached
    if spec.recollect:
        _refuse_to_replace(folder, plan, cached=store is None)
    done = None if spec.recollect else _finished(folder, plan)
    if done is not None and settled(folder):
        return done.called(plan.names)
    with writing(folder, cached=store is None):
        done = None if spec.recollect else _finished(folder, plan)  # another process may have finished it just now
        if done is not None:
            _clear_finished(done, folder)
            return done.called(plan.names)
        if spec.recollect and not _goes_on(folder, plan, kinds):
            discard_recollected(folder)
        made = Collection(plan, folder / RECOLLECTED if spec.recollect else folder, kinds, progress).run()
        if spec.recollect:
            replace(folder)
            made = Store.load(folder)
        return made.called(plan.names)


# What a store that is there is not compared with, unless one of these texts is named.
_NOT_COMPARED: dict[str, tuple[str, ...]] = {
    "split": ("text",),
    "validation_split": ("validation_text",),
    "text_column": ("text", "validation_text"),
    "without": (),
}


def _not_compared(given: Mapping[str, Any]) -> dict[str, Any]:
    return {n: given[n] for n, texts in _NOT_COMPARED.items() if n in given and not any(given.get(t) for t in texts)}


def _features(path: Path, folder: Path | None, kinds: Sequence[type[Statistic]]) -> Store:
    made = collect_features(path, kinds=kinds)
    if folder is None:
        return made
    if not is_store(folder) or not settled(folder):
        with writing(folder):
            if not is_store(folder):
                return made.save(folder)
    return load_same(folder, made).called({"model": made.model, "corpus": made.corpus})


def _refuse_to_replace(folder: Path, plan: Plan, *, cached: bool) -> None:
    """Let ``--recollect`` replace only a store of the same model and texts, and of the same slices."""
    part = plan.spec.part
    if not is_store(folder):
        return
    try:
        store = Store.load(folder)
    except StoreError:
        if cached:  # its folder's name says what it is of
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
    """Whether an unfinished ``--recollect`` is of what is asked for now."""
    target = folder / RECOLLECTED
    try:
        if is_store(target):
            store = Store.load(target)
            dropped = store.manifest["provenance"].get("dropped_statistics", {})
            differ, held = _differences(store, plan), {**store.identity["statistics"], **dropped}
        else:
            place = Partial(target).read()
            differ = [] if place is None else _beside_loading(place.identity, plan)
            if place and place.identity.get("validation") is None and not plan.texts.wanted_beside(None):
                differ = [each for each in differ if not each.startswith("validation")]  # an optional split: absent
            held = place.identity.get("statistics", {}) if place else {kind.name: kind.version for kind in kinds}
        if held.keys() != {kind.name for kind in kinds}:
            differ.append(f"statistics: {', '.join(held) or 'none'} and {', '.join(k.name for k in kinds) or 'none'}")
    except StoreError as error:
        differ = [str(error)]
    if differ:
        log.warning("%s: an unfinished --recollect is discarded: it differs in %s", folder, "; ".join(differ))
    return not differ


def _clear_finished(store: Store, folder: Path) -> None:
    """Remove what a run that was killed once its store was there had no time to remove."""
    partial = Partial(folder)
    place = partial.read()
    if place is None or store.state == "complete" or place.phase == "train":
        partial.clear()


def _finished(folder: Path, plan: Plan) -> Store | None:
    """The store in a folder, if it holds what is asked for; None if there is work to do on it or none is there."""
    if not is_store(folder):
        return None
    store = Store.load(folder).check()
    differ = _differences(store, plan)
    if differ:
        raise StoreError(
            f"{folder} holds another store, which differs in {'; '.join(differ)} (there and now): "
            "choose another --store"
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
    """In what a store is not what is planned; a validation that it does not have may be added."""
    differ = _beside_loading(store.identity, plan)
    validated = store.manifest["coverage"]["validation"] is not None or store.state == "part"
    adopts = store.identity.get("validation") is None or not validated
    return [each for each in differ if not (adopts and each.split(".")[0].split(":")[0] == "validation")]


def _beside_loading(identity: Mapping[str, Any], plan: Plan) -> list[str]:
    """In what an identity differs from a plan's, beside what is known once the model is loaded."""
    known_later = {"attention", "head", "statistics"}
    differ = differences(identity, plan.identity)
    return [each for each in differ if each.split(".")[0].split(":")[0] not in known_later]
