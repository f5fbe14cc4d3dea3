"""Collect a model on a text into a store: :func:`collect` opens an existing store, or collects what it lacks."""

from functools import partial
from pathlib import Path
from typing import Any, overload

from collapse.collection.passes import Collection
from collapse.core.paths import expanded
from collapse.core.precision import exact_arithmetic
from collapse.core.progress import Report, shows_progress
from collapse.errors import UsageError, near_names
from collapse.inputs.accepted_options import accepts
from collapse.inputs.collection_spec import CollectionSpec
from collapse.inputs.resolving import resolve
from collapse.plugin.guarding import outside_inference_mode
from collapse.plugin.plugin_manager import plugins
from collapse.stores.manifest import is_store
from collapse.stores.request import Request
from collapse.stores.shards import Part
from collapse.stores.store import Store
from collapse.stores.store_folder import Alone


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


@accepts()
@shows_progress
@outside_inference_mode
@exact_arithmetic()
def collect(
    model: str | Path, *, store: str | Path | None = None, progress: Report | None = None, **options: Any
) -> Store | Part:
    """Collect a model's embedding statistics into a store, or open the store that already holds them.

    Without ``store``, this looks for an existing store in the local cache, then in the model's own repository. A
    published store may have any text, chunk length and number of chunks that the options do not specify.

    Args:
        model: A local folder, a Hub id (``repo@revision``), or a features file.
        store: Folder of the store; None for the local cache, where stores are found by their identity (for a features
            file: for a store in memory).
        progress: Called as progress(what, done, total).
        {options}

    Returns:
        The store: complete, or only trained if there is no validation text. With ``part``, while the folder lacks
        slices: a :class:`collapse.Part` or, if a part of the validation was collected, the trained store (see
        :func:`collapse.merge`).

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
    return request.find_or(partial(_collect_missing, request, progress))


def _collect_missing(request: Request, report: Report | None, folder: Path | None, alone: Alone) -> Store | Part:
    """Collect what a locked folder does not hold yet, and fold in ``alone``; no folder for a store in memory."""
    known = plugins().statistics
    kinds = [kind for name, kind in sorted(known.items()) if name not in request.without]
    trained = Store.load(folder) if folder is not None and is_store(folder) else None
    with exact_arithmetic(deterministic=request.deterministic):  # before the first product: torch asks cuBLAS once
        source = request.load(trained, report)
    with exact_arithmetic(deterministic=request.deterministic):  # again: loading the model may reset it
        return Collection(source, folder, kinds, request.batch_size, request.part, alone, report).run(trained)
