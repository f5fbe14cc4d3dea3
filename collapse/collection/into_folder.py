"""Collect a request into a folder: return the store that is there, go on with what is unfinished, or start."""

import logging
from collections.abc import Sequence
from pathlib import Path

from collapse.collection.request import Request, part_of, refuse_other_shards
from collapse.collection.store_options import check_store_options, warn_of_stale
from collapse.core.progress import Report
from collapse.errors import StoreError
from collapse.plugin.statistic import Statistic
from collapse.stores.manifest import is_store
from collapse.stores.shards import Part, gaps, intact_shards, remove_shards
from collapse.stores.store import Store
from collapse.stores.store_folder import RECOLLECTED, discard_recollected, replace, settled, writing

log = logging.getLogger("collapse")


def collect_into(
    folder: Path,
    request: Request,
    kinds: Sequence[type[Statistic]],
    report: Report | None = None,
    *,
    recollect: bool = False,
    cached: bool = False,
) -> Store | Part:
    """Collect a request into a folder, unless its store is there.

    Args:
        folder: The store's folder.
        request: What to collect.
        kinds: Plugin statistics that it fills.
        report: Called as report(what, done, total).
        recollect: Collect again beside the store that is there, and replace it at the end.
        cached: The folder is in the cache, and is named after the request's identity.

    Raises:
        StoreError: The folder holds something else; the message names the fields and both values.
        CollapseError: Something cannot be loaded or written, or an embedding is not finite.
    """
    if recollect:
        _refuse_to_replace(folder, request, cached=cached)
    elif (done := _finished(folder, request)) is not None and (isinstance(done, Part) or settled(folder)):
        return done.called(request.names)
    with writing(folder, cached=cached):
        if recollect:
            _resume_or_discard(folder, request, kinds)
            request.collect(folder / RECOLLECTED, kinds, report)
            replace(folder, folder / RECOLLECTED)
            return Store.load(folder).called(request.names)
        done = _finished(folder, request)  # another process may have just written it
        if done is None:
            return request.collect(folder, kinds, report).called(request.names)
        if done.state == "complete":
            remove_shards(folder)
        return done.called(request.names)


def _finished(folder: Path, request: Request) -> Store | Part | None:
    """Return the store or part in a folder if it holds what is requested; None if it still lacks something."""
    if not is_store(folder):
        refuse_other_shards(folder, request)
        return _finished_part(folder, request)
    store = Store.load(folder).check()
    differ = request.differences(store)
    if differ:
        raise StoreError(
            f"{folder} holds another store, which differs in {'; '.join(differ)} (there and now): "
            "give the same options, or choose another --store"
        )
    check_store_options(store, {"without": request.without})
    if store.state == "trained" and request.validates_beside(store.manifest["corpus"].get("validation")):
        return None
    warn_of_stale(store)
    return store


def _finished_part(folder: Path, request: Request) -> Part | None:
    shards = intact_shards(folder, "train") if request.part else []
    if not shards or gaps(shards, part_of(shards[0].slices, request.part)):
        return None
    return Part(folder, shards)


def _refuse_to_replace(folder: Path, request: Request, *, cached: bool) -> None:
    """Raise StoreError unless ``--recollect`` replaces a store, or unfinished work, of the same identity."""
    if not is_store(folder):
        refuse_other_shards(folder, request)
        return
    try:
        store = Store.load(folder)
    except StoreError:
        if cached:
            return
        raise
    differ = request.differences(store)
    if differ:
        raise StoreError(
            f"--recollect would overwrite another store: {folder} differs in {'; '.join(differ)} (there and now). "
            "Choose another --store, or delete it"
        )


def _resume_or_discard(folder: Path, request: Request, kinds: Sequence[type[Statistic]]) -> None:
    """Discard an unfinished ``--recollect`` that does not collect what is requested now."""
    target, asked = folder / RECOLLECTED, {kind.name for kind in kinds}
    differ: list[str] = []
    if is_store(target):
        store = Store.load(target)
        differ, held = request.differences(store), {*store.manifest["statistics"]}
    elif shards := intact_shards(target, "train"):
        differ, held = request.differences_of(shards[0]), {*shards[0].about["statistics"]}
        asked = {kind.name for kind in kinds if kind.phase == "train"}
    else:
        return
    if store_lacks := held ^ asked:
        differ.append(f"statistics: {', '.join(sorted(store_lacks))}")
    if differ:
        log.warning("%s: an unfinished --recollect is discarded: it differs in %s", folder, "; ".join(differ))
        discard_recollected(folder)
