"""Collect a model on a text into a store: :func:`collect` opens an existing store, or collects what it lacks.

1. ``collect`` makes a :class:`Request <collapse.stores.request.Request>`.
2. On rank 0, ``Request.claimed`` yields what the folder already holds, or locks the folder (``_with_all_ranks``).
3. If something is missing, ``_collect`` loads the source on all ranks (for texts: ``open_texts`` in
   inputs/text_source.py).
4. ``Collection.run`` (passes.py) runs the passes: batches.py computes the embeddings, and accumulators.py adds them to
   class moments (numerics/class_moments.py) and decisions (numerics/decisions.py). Last, the shards of the passes
   become the store (stores/folding_shards.py).
"""

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, cast, overload

from collapse.collection.passes import Collection
from collapse.core import ranks
from collapse.core.paths import expanded
from collapse.core.precision import exact_arithmetic
from collapse.core.progress import Report, shows_progress
from collapse.errors import CollapseError, UsageError, near_names
from collapse.inputs.accepted_options import accepts
from collapse.inputs.collection_spec import OF_SOURCE, CollectionSpec, check_applies
from collapse.inputs.live_model import is_live, live_model
from collapse.inputs.resolving import resolve
from collapse.inputs.source import Source, source_request
from collapse.inputs.text_request import text_request
from collapse.plugin.guarding import outside_inference_mode
from collapse.plugin.plugin_manager import plugins
from collapse.stores.identity_differences import differences
from collapse.stores.provenance import Clock
from collapse.stores.request import Claim, Request
from collapse.stores.shards import Part
from collapse.stores.store import Store


@overload
def collect(
    model: Any,
    *,
    store: str | Path | None = None,
    name: str | None = None,
    progress: Report | None = None,
    part: None = None,
    **options: Any,
) -> Store: ...


@overload
def collect(
    model: Any,
    *,
    store: str | Path,
    name: str | None = None,
    progress: Report | None = None,
    part: tuple[int, int],
    **options: Any,
) -> Store | Part: ...


@accepts()
@shows_progress
@outside_inference_mode
@exact_arithmetic()
def collect(
    model: Any,
    *,
    store: str | Path | None = None,
    name: str | None = None,
    progress: Report | None = None,
    **options: Any,
) -> Store | Part:
    """Collect the embedding statistics of a model or source into a store, or open the store that already holds them.

    Without ``store``, this looks for an existing store in the local cache, then in the model's own repository. If no
    option gives a text, a chunk length or a limit, a published store is accepted whatever its text, chunk length and
    limits are.

    A loaded model is run in place: it is not saved, copied or changed, so this also works inside a training loop. To
    resume, repeat the call with the same ``store``. The model must then still compute the same embeddings.

    Args:
        model: A local folder, a Hub id (``repo@revision``), a features file, or a loaded model of transformers. For a
            loaded model, give ``tokenizer``, which may be a loaded tokenizer; texts may be lists of strings. Or a
            :class:`collapse.Source` of your own, for which only the options ``batch_size``, ``deterministic``,
            ``part``, ``recollect`` and ``without`` apply.
        store: Folder of the store. If None, the store is in the local cache; but for a features file, a loaded model or
            a source, the store is in memory.
        name: A loaded model's name in tables; None for the last part of ``model.name_or_path``.
        progress: Called as progress(what, done, total[, note]).
        {options}

    Returns:
        The store: complete, or only trained if there is no validation text. With ``part``, the folder may still lack
        slices of other parts. While training slices are missing, the result is a :class:`collapse.Part` (see
        :func:`collapse.merge`). While only validation slices are missing, it is the trained store.

    Raises:
        UsageError: An option is invalid, or no corpus is known.
        StoreError: The folder holds another store; the message names the fields that differ, with both values.
        CollapseError: Something cannot be found, read, loaded or written, or an embedding is not finite.
    """
    with _requested(model, name, store, options) as found:
        return found if isinstance(found, Store) else _with_all_ranks(found, progress)


@contextmanager
def _requested(
    model: Any, name: str | None, store: str | Path | None, options: Mapping[str, Any]
) -> Iterator[Request | Store]:
    """Yield the request of :func:`collect`, or a published store that already has what is requested."""
    folder = None if store is None else expanded(store)
    if is_live(model):
        with live_model(model, name, folder, options) as (reference, spec):
            yield text_request(reference, _checked(spec, store), folder=folder)
    elif isinstance(model, Source):
        spec = _checked(CollectionSpec(**options), store)
        check_applies(f"{model.model['name']} is a source", spec.given, OF_SOURCE)
        yield source_request(model, spec, folder)
    elif isinstance(model, str | Path):
        spec = _checked(CollectionSpec(**options), store)
        with ranks.first_rank_first():
            found = resolve(str(model), spec, folder)
        yield found
    else:
        raise UsageError(
            f"collect() takes a folder, a Hub id, a loaded model or a source, not a {type(model).__name__}"
        )


def _checked(spec: CollectionSpec, store: str | Path | None) -> CollectionSpec:
    """Return ``spec`` unchanged if its options are consistent.

    Raise UsageError for ``part`` without ``store``, for ``part`` with ``recollect``, and for an unknown statistic in
    ``without``.
    """
    if spec.part is not None and store is None:
        raise UsageError("--part needs a folder for the part: give --store (store=)")
    if spec.part is not None and spec.recollect:
        raise UsageError(
            "--recollect cannot be used with --part: to collect a part again, delete its folder and remove --recollect"
        )
    for name in spec.without:
        if name not in plugins().statistics:
            raise UsageError(f"--without: no statistic is called {name!r}; {near_names(name, plugins().statistics)}")
    return spec


def _with_all_ranks(request: Request, report: Report | None) -> Store | Part:
    """Open or collect a request's store or part: rank 0 locks the folder, and all ranks collect what the folder lacks.

    Rank 0 first sends the claim to the other ranks; then all ranks exchange data in :func:`_collect`; last, rank 0
    sends the result.
    """
    if ranks.rank() > 0:
        claim = cast("Claim", ranks.from_first_rank(None))
        if claim.done is None:
            _check_shared(request.folder)
            _collect(request, claim, report)
        return cast("Store | Part", ranks.from_first_rank(None))
    # together(): if one rank fails, all stop before the folder is unlocked
    with request.claimed() as claim, ranks.together():
        ranks.from_first_rank(claim)
        done = claim.done or _collect(request, claim, report)
    # only now: at the end of claimed(), --recollect moves the new store to the request's folder
    return ranks.from_first_rank(request.result(done))


def _check_shared(folder: Path | None) -> None:
    """Raise CollapseError if this rank, which is not rank 0, does not see the folder that rank 0 has locked."""
    for _ in range(60):  # a network file system may show it late
        if folder is None or folder.is_dir():
            return
        time.sleep(1)
    raise CollapseError(f"{folder} is not on this node: give a --store on a file system that all nodes share")


def _collect(request: Request, claim: Claim, report: Report | None) -> Store | Part:
    """Collect what a claimed folder lacks."""
    clock, known = Clock(), plugins().statistics
    statistic_types = [kind for name, kind in sorted(known.items()) if name not in request.without]
    with exact_arithmetic(deterministic=request.deterministic):  # before the first product, which configures cuBLAS
        source = request.load(claim.store, report)
    if differ := differences(ranks.from_first_rank(source.identity), source.identity, sides=("rank 0", "this rank")):
        raise CollapseError(
            f"the ranks differ in {'; '.join(differ)}: run the same command with the same files and packages everywhere"
        )
    with exact_arithmetic(deterministic=request.deterministic):  # again: loading the model may reset it
        passes = Collection(source, claim.folder, statistic_types, request.batch_size, request.part, report, clock)
        return passes.run(claim.store)
