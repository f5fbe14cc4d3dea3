"""Collect a request into a folder: return the store that is there, go on with what is unfinished, or start."""

import logging
from collections.abc import Callable, Sequence
from pathlib import Path

from collapse.collection.request import Request
from collapse.collection.store_options import check_store_options, warn_of_stale
from collapse.errors import StoreError
from collapse.plugin.statistic import Statistic
from collapse.stores.manifest import is_store
from collapse.stores.partial import Partial
from collapse.stores.store import Store
from collapse.stores.store_folder import RECOLLECTED, discard_recollected, replace, settled, writing

log = logging.getLogger("collapse")


def collect_into(
    folder: Path,
    request: Request,
    kinds: Sequence[type[Statistic]],
    make: Callable[[Path], Store],
    *,
    recollect: bool = False,
    cached: bool = False,
) -> Store:
    """Collect a request into a folder, unless its store is there.

    Args:
        folder: The store's folder.
        request: What to collect.
        kinds: Plugin statistics that it fills.
        make: Collects it into a folder, which this process has locked, except for what the folder already holds.
        recollect: Collect again beside the store that is there, and replace it at the end.
        cached: The folder is in the cache, and is named after the request's identity.

    Raises:
        StoreError: The folder holds something else; the message names the fields and both values.
        CollapseError: Something cannot be loaded or written, or an embedding is not finite.
    """
    if recollect:
        _refuse_to_replace(folder, request, cached=cached)
    elif (done := _finished(folder, request)) is not None and settled(folder):
        return done.called(request.names)
    with writing(folder, cached=cached):
        if recollect:
            _resume_or_discard(folder, request, kinds)
            make(folder / RECOLLECTED)
            replace(folder)
            return Store.load(folder).called(request.names)
        done = _finished(folder, request)  # another process may have just written it
        if done is None:
            return make(folder).called(request.names)
        _clear_finished(done, folder)
        return done.called(request.names)


def _finished(folder: Path, request: Request) -> Store | None:
    """Return the store in a folder if it is finished; None if there is no store or it still lacks something."""
    if not is_store(folder):
        return None
    store = Store.load(folder).check()
    differ = request.differences(store)
    if differ:
        raise StoreError(
            f"{folder} holds another store, which differs in {'; '.join(differ)} (there and now): "
            "give the same options, or choose another --store"
        )
    check_store_options(store, {"without": request.without})
    if store.state == "part" and not request.has_slices_of(store):
        raise StoreError(
            f"{folder} holds {store.covered()}: collect other parts into other stores, "
            "then: collapse merge STORE… --store DIR"
        )
    if store.state == "trained" and request.validates_beside(store.manifest["corpus"].get("validation")):
        return None
    warn_of_stale(store)
    return store


def _refuse_to_replace(folder: Path, request: Request, *, cached: bool) -> None:
    """Raise StoreError unless ``--recollect`` replaces a store, or unfinished work, of the same identity and slices."""
    if not is_store(folder):
        partial = Partial(folder)
        place = partial.read()
        if place is not None and place.file:
            partial.refuse(request.differs_unfinished(place))
        return
    try:
        store = Store.load(folder)
    except StoreError:
        if cached:
            return
        raise
    differ = request.differences(store)
    if not request.has_slices_of(store):
        wanted = "all" if request.part is None else "part {}/{}".format(*request.part)
        differ.append(f"slices: {store.covered() if store.state == 'part' else 'all'} and {wanted}")
    if differ:
        raise StoreError(
            f"{folder} holds a store that --recollect would lose: it differs in {'; '.join(differ)} (there and now): "
            "choose another --store, or delete it"
        )


def _resume_or_discard(folder: Path, request: Request, kinds: Sequence[type[Statistic]]) -> None:
    """Discard an unfinished ``--recollect`` that does not collect what is requested now."""
    target, asked = folder / RECOLLECTED, {kind.name for kind in kinds}
    try:
        if is_store(target):
            store = Store.load(target)
            differ, held = request.differences(store), {*store.manifest["statistics"]}
        elif (place := Partial(target).read()) is not None:
            differ, held = request.differs_unfinished(place), {*place.identity.get("statistics", {})}
        else:
            return
        if held != asked:
            differ.append(f"statistics: {', '.join(sorted(held)) or 'none'} and {', '.join(sorted(asked)) or 'none'}")
    except StoreError as error:
        differ = [str(error)]
    if differ:
        log.warning("%s: an unfinished --recollect is discarded: it differs in %s", folder, "; ".join(differ))
        discard_recollected(folder)


def _clear_finished(store: Store, folder: Path) -> None:
    """Remove the state that remains if a run was killed after it wrote the store."""
    partial = Partial(folder)
    place = partial.read()
    if place is None or store.state == "complete" or place.phase == "train":
        partial.clear()
