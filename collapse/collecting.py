"""Model × text → store: what :func:`collect` finds there already, what it refuses, and what it sets to work."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from collapse.accumulate import Statistic
from collapse.errors import StoreError, UsageError
from collapse.features import collect_features, is_features_file
from collapse.lock import locked
from collapse.manifest import MANIFEST, differences, is_store
from collapse.models import check_dtype
from collapse.partial import Partial
from collapse.passes import Collection
from collapse.planning import Plan, part_of, plan_collection
from collapse.plugin_manager import plugins
from collapse.reporting import Report
from collapse.store import LAYER, Store, load_same


def collect(
    model: str | Path,
    *,
    store: str | Path | None = None,
    text: str | Sequence[str] | None = None,
    validation_text: str | Sequence[str] | None = None,
    split: str = "train",
    validation_split: str = "validation",
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

    Args:
        model: A local folder, a Hub id (``repo@revision``), or a features file.
        store: Folder of the store; None for the local cache, where it is found again by what it holds.
        text: Training text: files or globs (.txt, .jsonl, .parquet), or a Hub data set; None for the one that the
            model's card names.
        validation_text: The same for validation; None for the data set's validation split, if it has one.
        split, validation_split, text_column: Of a data set.
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
        recollect: Collect anew even where a store is there.
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
    if is_features_file(model):
        return _features(Path(model), Path(store) if store else None, kinds)
    there = Store.load(store) if store and is_store(store) else None
    plan = plan_collection(
        str(model),
        there=there.identity if there else None,
        text=text,
        validation_text=validation_text,
        split=split,
        validation_split=validation_split,
        text_column=text_column,
        tokenizer=tokenizer,
        revision=revision,
        chunk_length=chunk_length,
        shards=shards,
        eos_between=eos_between,
        max_chunks=max_chunks,
        dtype=dtype,
        model_args=model_args,
        fast_attention=fast_attention,
    )
    folder = Path(store) if store else plan.cached
    done = None if recollect else _finished(folder, plan, part)
    if done is not None and not (folder / "partial").exists():
        return done
    _refuse_other_folder(folder)
    with locked(folder):
        done = None if recollect else _finished(folder, plan, part)  # another process may have finished it just now
        if done is not None:
            _clear_finished(done, folder)
            return done
        if recollect:
            (folder / MANIFEST).unlink(missing_ok=True)
            Partial(folder).clear()
        collection = Collection(plan, folder, kinds, batch_size, part, progress)
        return collection.run(device=device, trust_remote_code=trust_remote_code, deterministic=deterministic)


def _features(path: Path, folder: Path | None, kinds: Sequence[type[Statistic]]) -> Store:
    made = collect_features(path, kinds=kinds)
    if folder is None:
        return made
    if is_store(folder):
        return load_same(folder, made)
    _refuse_other_folder(folder)
    with locked(folder):
        return made.save(folder)


def _refuse_other_folder(folder: Path) -> None:
    if folder.is_file():
        raise StoreError(f"{folder} is a file: a store is a folder; choose another --store")
    if not folder.is_dir() or is_store(folder) or (folder / "partial").is_dir():
        return
    # what a killed command may leave: files half written, markers of the lock
    left = (".lock", f".{MANIFEST}.partial")
    strange = sorted(each.name for each in folder.iterdir() if each.name != LAYER and not each.name.startswith(left))
    if strange:
        raise StoreError(
            f"{folder} holds other things than a store ({', '.join(strange[:3])}): "
            "choose an empty or a new folder for --store"
        )


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
    known_later = {"attention", "head", "statistics"}
    adopts = {"validation"} if store.identity.get("validation") is None else set()
    differ = [
        each
        for each in differences(store.identity, plan.identity)
        if each.split(".")[0].split(":")[0] not in known_later | adopts
    ]
    if differ:
        raise StoreError(
            f"{folder} holds another store, which differs in {'; '.join(differ)} (there and now): "
            "choose another --store"
        )
    if store.state == "complete":
        return store
    if store.state == "part":
        train = store.manifest["coverage"]["train"]
        if part is not None and [list(part_of(train["slices"], part))] == train["done"]:
            return store
        raise StoreError(
            f"{folder} holds {store.covered()}: collect other parts into other stores, "
            "then: collapse merge STORE… --store DIR"
        )
    if plan.validation is None or (plan.optional_validation and store.manifest["corpus"]["validation"] is None):
        return store
    return None
