"""Collect a request into a folder: return the store that is there, resume what is unfinished, or start."""

import logging
import shutil
from pathlib import Path

from collapse.collection.passes import Collection
from collapse.core.precision import exact_arithmetic
from collapse.core.progress import Report
from collapse.errors import StoreError, UsageError, near_names
from collapse.inputs.request import Request, part_of, refuse_unfinished
from collapse.plugin.plugin_manager import plugins
from collapse.plugin.statistic import Statistic
from collapse.stores.manifest import SHARDS, is_store
from collapse.stores.shards import Part, gaps, remove_shards, shards_in
from collapse.stores.store import Store
from collapse.stores.store_folder import RECOLLECTED, replace_by_recollected, writing

log = logging.getLogger("collapse")


def collect_into(folder: Path | None, request: Request, report: Report | None = None) -> Store | Part:
    """Collect a request into a folder, unless its store is there.

    Args:
        folder: The store's folder; None for a store in memory.
        request: What to collect.
        report: Called as report(what, done, total).

    Raises:
        StoreError: The folder holds something else; the message names the fields and both values.
        CollapseError: Something cannot be loaded or written, or an embedding is not finite.
    """
    kinds = wanted_statistics(request)
    if folder is None:
        return _collected(None, request, kinds, report)
    if request.recollect:
        return _collected_again(folder, request, kinds, report)
    done = _finished(folder, request)
    if done is None or (done.state == "complete" and (folder / SHARDS).is_dir()):
        with writing(folder):
            done = _finished(folder, request)  # another process may have just written it
            if done is None:
                done = _collected(folder, request, kinds, report)
            elif done.state == "complete":  # a process was killed before it removed them
                remove_shards(folder)
    return done.called(request.names)


def wanted_statistics(request: Request) -> list[type[Statistic]]:
    """Return the plugin statistics that a request fills; raises UsageError for an unknown one that it leaves out."""
    known = plugins().statistics
    for name in request.without:
        if name not in known:
            raise UsageError(f"no statistic is called {name!r}; {near_names(name, known)}")
    return [kind for name, kind in sorted(known.items()) if name not in request.without]


def _collected(
    folder: Path | None, request: Request, kinds: list[type[Statistic]], report: Report | None
) -> Store | Part:
    """Collect what a folder, which this process has locked, does not hold yet."""
    trained = Store.load(folder) if folder is not None and is_store(folder) else None
    source = request.source(trained, report)
    with exact_arithmetic(deterministic=request.deterministic):  # the model's code may have changed settings
        return Collection(source, folder, kinds, request.batch_size, request.part, report).run(trained)


def _collected_again(
    folder: Path, request: Request, kinds: list[type[Statistic]], report: Report | None
) -> Store | Part:
    """Collect a request into a subfolder, which then replaces the store that is there."""
    if request.part is not None:
        raise UsageError("--recollect collects a whole store again: leave it out, and delete the folder of the part")
    if not is_store(folder):
        _finished_part(folder, request)
    elif differ := request.differences_of(Store.load(folder)):
        raise StoreError(
            f"--recollect would overwrite another store: {folder} differs in {'; '.join(differ)} (there and now). "
            "Choose another --store, or delete it"
        )
    new = folder / RECOLLECTED
    with writing(folder):
        try:
            done = _finished(new, request)
        except StoreError as error:
            log.warning("%s: an unfinished --recollect is discarded: %s", folder, error)
            shutil.rmtree(new)
            done = None
        if done is None:
            _collected(new, request, kinds, report)
        replace_by_recollected(folder)
    return Store.load(folder).called(request.names)


def _finished(folder: Path, request: Request) -> Store | Part | None:
    """Return the store or part in a folder if it holds what is requested; None if it still lacks something."""
    if not is_store(folder):
        return _finished_part(folder, request)
    store = Store.load(folder).check()
    if differ := request.differences_of(store) + request.statistics_in(store):
        raise StoreError(
            f"{folder} holds another store, which differs in {'; '.join(differ)} (there and now): "
            "give the same options, or choose another --store"
        )
    if store.state == "trained" and request.validates_beside(store.manifest["corpus"].get("validation")):
        return None
    return store


def _finished_part(folder: Path, request: Request) -> Part | None:
    """Return the part in a folder if it holds what is requested; refuse shards of something else."""
    shards = shards_in(folder, "train", repair=True)
    for shard in shards[:1]:
        refuse_unfinished(folder, request.differences(shard.about["identity"]))
    if not request.part or not shards or gaps(shards, part_of(shards[0].slices, request.part)):
        return None
    return Part(folder, shards)
