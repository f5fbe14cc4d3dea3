"""Model × text → store: what :func:`collect` finds there already, what it refuses, and what it sets to work."""

import logging
from collections.abc import Mapping, Sequence
from inspect import signature
from pathlib import Path
from typing import Any

from collapse.accumulate import Statistic
from collapse.errors import StoreError, UsageError
from collapse.features import collect_features, is_features_file
from collapse.finding import find_store
from collapse.guarding import outside_inference_mode
from collapse.held import check_features_options
from collapse.manifest import differences, is_store
from collapse.models import check_dtype
from collapse.partial import Partial
from collapse.passes import Collection
from collapse.places import RECOLLECTED, discard_recollected, replace, settled, writing
from collapse.planning import Plan, part_of, plan_collection
from collapse.plugin_manager import plugins
from collapse.reporting import Report
from collapse.store import Store, load_same

log = logging.getLogger("collapse")


@outside_inference_mode
def collect(
    model: str | Path,
    *,
    store: str | Path | None = None,
    text: str | Sequence[str] | None = None,
    validation_text: str | Sequence[str] | None = None,
    split: str | None = None,
    validation_split: str | None = None,
    text_column: str = "text",
    tokenizer: str | None = None,
    revision: str | None = None,
    dtype: str = "float32",
    device: str = "auto",
    chunk_length: int | None = None,
    max_chunks: int | None = None,
    batch_size: int | str = "auto",
    shards: int = 2,
    eos_between: bool = False,
    model_args: Mapping[str, Any] | None = None,
    trust_remote_code: bool = False,
    without: Sequence[str] = (),
    part: tuple[int, int] | None = None,
    deterministic: bool = False,
    fast_attention: bool = True,
    recollect: bool = False,
    progress: Report | None = None,
) -> Store:
    """Collect a model's embedding statistics into a store, or open the store that already holds them.

    Without ``store`` these are, in this order, the one in the local cache and one that is published in the model's own
    repository, if it is of the same identity (see :func:`collapse.finding.find_store`).

    Args:
        model: A local folder, a Hub id (``repo@revision``), or a features file.
        store: Folder of the store; None for the local cache, where it is found again by what it holds.
        text: Training text: files or globs (.txt, .jsonl, .parquet), or a Hub data set; None for the one that the
            model's card names.
        validation_text: The same for validation; None for the data set's validation split, if it has one.
        split, validation_split: Of a data set on the Hub; None for "train" and "validation".
        text_column: Column that holds the text.
        tokenizer: Another tokenizer than the model's own.
        revision: Of a Hub model.
        dtype: In which the model runs; float32 as in the paper.
        device: "auto", "cpu", "cuda", ...
        chunk_length: T, tokens a chunk; None for min(2048, the model's limit).
        max_chunks: At most this many chunks of each text.
        batch_size: Chunks a batch, or "auto": halved when memory runs out.
        shards: Contiguous shards of the text before grouping (the paper's preprocessing used 2 workers).
        eos_between: Put the tokenizer's end-of-text token after each text.
        model_args: Passed to transformers' ``from_pretrained`` of config, model and tokenizer.
        trust_remote_code: Whether code of the model's repository may run.
        without: Names of plugin statistics not to fill, such as "covariance".
        part: (k, n): only the k-th of n shares of the slices; merge them with :func:`collapse.merge`.
        deterministic: Ask torch for deterministic algorithms (on CUDA, for byte-identical reruns).
        fast_attention: Let plugins swap in an equal, faster attention, as the zoo does for GPT-Neo; its name stands in
            the manifest.
        recollect: Collect anew even where a store is there, here or on the Hub. The one here is replaced once the new
            one is complete.
        progress: Called as progress(what, done, total).

    Returns:
        The store: complete, trained but not validated (no validation text), or a part.

    Raises:
        UsageError: An option is wrong, or no corpus is known.
        StoreError: The folder holds a store of something else; the fields and both values are named.
        CollapseError: Something cannot be found, read, loaded or written, or an embedding is not finite.
    """
    check_dtype(dtype)
    known = plugins().statistics
    for name in without:
        if name not in known:
            raise UsageError(f"no statistic is called {name!r}; there are {', '.join(sorted(known)) or 'none'}")
    if batch_size != "auto" and (not isinstance(batch_size, int) or batch_size < 1):
        raise UsageError(f"--batch-size {batch_size} makes no sense: give a number of chunks, or auto")
    kinds = [kind for name, kind in sorted(known.items()) if name not in without]
    options: dict[str, Any] = {
        "text": text,
        "validation_text": validation_text,
        "split": split,
        "validation_split": validation_split,
        "text_column": text_column,
        "tokenizer": tokenizer,
        "revision": revision,
        "chunk_length": chunk_length,
        "shards": shards,
        "eos_between": eos_between,
        "max_chunks": max_chunks,
        "dtype": dtype,
        "model_args": model_args,
        "fast_attention": fast_attention,
        "trust_remote_code": trust_remote_code,
    }
    if is_features_file(model):
        check_features_options(model, _given(options, part))
        return _features(Path(model), Path(store) if store else None, kinds)
    if store is None and part is None and not recollect:
        found = find_store(str(model), options)
        if found is not None:
            return found
    there = Store.load(store).identity if store and is_store(store) else None
    if there and recollect:  # the texts are read anew, so they must be named
        there = {**there, "corpus": None, "validation": None}
    plan = plan_collection(str(model), there=there, **options)
    folder = Path(store) if store else plan.cached
    if recollect:
        _refuse_to_replace(folder, plan, part, cached=store is None)
    done = None if recollect else _finished(folder, plan, part)
    if done is not None and settled(folder):
        return done.called(plan.names)
    with writing(folder, cached=store is None):
        done = None if recollect else _finished(folder, plan, part)  # another process may have finished it just now
        if done is not None:
            _clear_finished(done, folder)
            return done.called(plan.names)
        if recollect and not _goes_on(folder, plan):
            discard_recollected(folder)
        target = folder / RECOLLECTED if recollect else folder
        collection = Collection(plan, target, kinds, batch_size, part, progress)
        made = collection.run(device=device, trust_remote_code=trust_remote_code, deterministic=deterministic)
        if recollect:
            replace(folder)
            made = Store.load(folder)
        return made.called(plan.names)


def _given(options: Mapping[str, Any], part: tuple[int, int] | None) -> dict[str, Any]:
    """Those of :func:`collect`'s options that are not as they are by default, as the command line has them."""
    parameters = signature(collect).parameters
    given = {name: value for name, value in options.items() if value != parameters[name].default}
    if part is not None:
        given["part"] = f"{part[0]}/{part[1]}"
    if given.pop("fast_attention", None) is not None:
        given["no_fast_attention"] = True
    return given | {
        name: [given[name]] if isinstance(given[name], str) else given[name]
        for name in ("text", "validation_text")
        if name in given
    }


def _features(path: Path, folder: Path | None, kinds: Sequence[type[Statistic]]) -> Store:
    made = collect_features(path, kinds=kinds)
    if folder is None:
        return made
    if not is_store(folder) or not settled(folder):
        with writing(folder):
            if not is_store(folder):
                return made.save(folder)
    return load_same(folder, made).called({"model": made.model, "corpus": made.corpus})


def _refuse_to_replace(folder: Path, plan: Plan, part: tuple[int, int] | None, *, cached: bool) -> None:
    """Let ``--recollect`` replace only a store of the same model and texts, and of the same slices."""
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


def _goes_on(folder: Path, plan: Plan) -> bool:
    """Whether an unfinished ``--recollect`` is of what is asked for now."""
    target = folder / RECOLLECTED
    try:
        if is_store(target):
            differ = _differences(Store.load(target), plan)
        else:
            place = Partial(target).read()
            differ = [] if place is None else _beside_loading(place.identity, plan)
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


def _finished(folder: Path, plan: Plan, part: tuple[int, int] | None) -> Store | None:
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
    if store.state == "complete":
        return store
    if store.state == "part":
        if part is not None and _is_part(store, part):
            return store
        raise StoreError(
            f"{folder} holds {store.covered()}: collect other parts into other stores, "
            "then: collapse merge STORE… --store DIR"
        )
    if plan.validation is None or (plan.optional_validation and store.manifest["corpus"]["validation"] is None):
        return store
    return None


def _is_part(store: Store, part: tuple[int, int]) -> bool:
    train = store.manifest["coverage"]["train"]
    return bool(part[1] <= train["slices"] and [list(part_of(train["slices"], part))] == train["done"])


def _differences(store: Store, plan: Plan) -> list[str]:
    """In what a store is not what is planned; a validation that it does not have may be added."""
    differ = _beside_loading(store.identity, plan)
    adopts = store.identity.get("validation") is None
    return [each for each in differ if not (adopts and each.split(".")[0].split(":")[0] == "validation")]


def _beside_loading(identity: Mapping[str, Any], plan: Plan) -> list[str]:
    """In what an identity differs from a plan's, beside what is known once the model is loaded."""
    known_later = {"attention", "head", "statistics"}
    differ = differences(identity, plan.identity)
    return [each for each in differ if each.split(".")[0].split(":")[0] not in known_later]
