"""Collect a model on a text into a store: :func:`collect` opens an existing store, or collects what it lacks."""

import logging
import shutil
from pathlib import Path
from typing import Any, overload

from collapse.collection.passes import Collection
from collapse.core.paths import expanded
from collapse.core.precision import exact_arithmetic
from collapse.core.progress import Report, shows_progress
from collapse.errors import StoreError, UsageError, near_names
from collapse.inputs.collection_spec import CollectionSpec, accepts
from collapse.inputs.resolving import resolve
from collapse.plugin.guarding import outside_inference_mode
from collapse.plugin.plugin_manager import plugins
from collapse.stores.manifest import is_store
from collapse.stores.request import Request
from collapse.stores.shards import Part, remove_shards, repair_shards
from collapse.stores.store import Store
from collapse.stores.store_folder import RECOLLECTED, replace_by_recollected, writing

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


@accepts
@shows_progress
@outside_inference_mode
@exact_arithmetic()
def collect(
    model: str | Path, *, store: str | Path | None = None, progress: Report | None = None, **options: Any
) -> Store | Part:
    """Collect a model's embedding statistics into a store, or open the store that already holds them.

    Without ``store``, this looks in the local cache first, then for a published store of the same identity in the
    model's own repository (see :func:`collapse.inputs.resolving.find_store`).

    Args:
        model: A local folder, a Hub id (``repo@revision``), or a features file.
        store: Folder of the store; None for the local cache, where stores are found by their identity.
        progress: Called as progress(what, done, total).
        {options}

    Returns:
        The store: complete, or without a validation text trained but not validated. With ``part``, while slices are
        missing in the folder, a :class:`collapse.Part` (see :func:`collapse.merge`).

    Raises:
        UsageError: An option is invalid, or no corpus is known.
        StoreError: The folder holds another store; the message names the fields that differ, with both values.
        CollapseError: Something cannot be found, read, loaded or written, or an embedding is not finite.
    """
    if not isinstance(model, str | Path):
        raise UsageError(
            f"collect() takes a folder or a Hub id, not a {type(model).__name__}; for a loaded model: "
            "collapse.collect_loaded(model, tokenizer, texts)"
        )
    spec = CollectionSpec(**options)
    if spec.part is not None and store is None:
        raise UsageError("--part needs a folder for the part: give --store (store=)")
    if spec.part is not None and spec.recollect:
        raise UsageError(
            "--recollect cannot be used with --part: to collect a part again, delete its folder and remove --recollect"
        )
    for name in spec.without:
        if name not in plugins().statistics:
            raise UsageError(f"no statistic is called {name!r}; {near_names(name, plugins().statistics)}")
    request = resolve(str(model), spec, None if store is None else expanded(store))
    if isinstance(request, Store):
        return request
    return _held_or_collected(request, progress).called(request.names)


def _held_or_collected(request: Request, report: Report | None) -> Store | Part:
    """Open the requested store or part in its folder; first collect what it lacks, while the folder is locked."""
    folder = request.folder
    if folder is None:
        return _collect_missing(request, None, report)
    done = request.find_in(folder) if is_store(folder) and not request.recollect else None  # readers need no lock
    if done is None:
        with writing(folder):
            if request.recollect:
                return _collect_again(request, folder, report)
            repair_shards(folder)
            done = request.find_in(folder) or _collect_missing(request, folder, report)
    if done.state == "complete":
        remove_shards(folder)  # a killed process may have left some
    return done


def _collect_again(request: Request, folder: Path, report: Report | None) -> Store:
    """Collect into a subfolder of the locked folder; at the end, the new store replaces the old one."""
    if is_store(folder):
        there = Store.load(folder)
        if differ := request.identity_differences(there.identity, trained=there.state == "trained"):
            raise StoreError(
                f"--recollect would overwrite another store: {folder} differs in {'; '.join(differ)}. "
                f"Choose another --store, or delete {folder}"
            )
    else:
        request.own_shards(folder)  # raises for shards of another collection, which must not be overwritten
    new = folder / RECOLLECTED
    repair_shards(new)
    try:
        differ = request.differences_in(new)
    except StoreError as error:  # a file is damaged
        differ = [str(error)]
    if differ:
        discarding = "%s: discarding an unfinished collection of --recollect: %s. Collecting again from the start"
        log.warning(discarding, folder, "; ".join(differ))
        shutil.rmtree(new)
    if request.find_in(new) is None:
        _collect_missing(request, new, report)
    replace_by_recollected(folder)
    return Store.load(folder)


def _collect_missing(request: Request, folder: Path | None, report: Report | None) -> Store | Part:
    """Collect what a locked folder does not hold yet; ``folder`` is None for a store in memory."""
    known = plugins().statistics
    kinds = [kind for name, kind in sorted(known.items()) if name not in request.without]
    trained = Store.load(folder) if folder is not None and is_store(folder) else None
    source = request.load(trained, report)
    with exact_arithmetic(deterministic=request.deterministic):  # the model's code may have changed settings
        return Collection(source, folder, kinds, request.batch_size, request.part, report).run(trained)
