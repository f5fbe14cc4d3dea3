"""Merge the parts of one collection into a store: check what is given; folding.py combines the states."""

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from pathlib import Path

from collapse.core.paths import expanded
from collapse.errors import StoreError, UsageError
from collapse.plugin.guarding import outside_inference_mode
from collapse.stores.folding import fold_training, fold_validation, training_hash
from collapse.stores.joining import checked_in_order
from collapse.stores.manifest import is_store
from collapse.stores.shards import Part, Shard, all_shards, gaps, shards_in
from collapse.stores.slice_ranges import spans
from collapse.stores.store import Store, load_same
from collapse.stores.store_folder import locked_store_folder


@outside_inference_mode
def merge(parts: Iterable[str | Path | Part | Store], *, store: str | Path) -> Store:
    """Merge the parts of one collection into a store; the order of the arguments does not matter.

    Parts of the training pass give a store without the statistics of the validation text. Copies of this store, each
    with a part of the validation pass, give a complete store. To add layers in parts, copy a complete store, collect
    one part of the new layers into each copy, and merge the copies.

    Args:
        parts: The parts, or copies of the trained store, or their folders.
        store: Folder of the result. If it already holds this result, nothing is written.

    Raises:
        UsageError: No parts are given.
        StoreError: Parts overlap, do not cover all slices, or differ in identity; the message names them.
        CollapseError: The result's folder holds another store, or cannot be written.
    """
    given = [parts] if isinstance(parts, str | Path | Part | Store) else parts
    folders = [_folder_of(each) for each in given]
    if not folders:
        raise UsageError("nothing to merge: give the folders of the parts")
    target = expanded(store)
    copies = [Store.load(folder) for folder in folders if is_store(folder)]
    for each in copies:
        finished = each.state == "complete" and not all_shards(Path(str(each.path)))
        if finished or len(copies) < len(folders):  # stores beside parts of a first pass
            raise StoreError(
                f"{each} already holds the statistics of a whole text, so it is not a part of a collection: merge the "
                "parts without it"
            )
    phase = _phase_of(folders, copies)
    shards = _covering(folders, phase)
    if copies:
        _check_copies(copies, shards)
    fold_phase: Callable[..., Store] = fold_validation if phase == "validation" else fold_training
    fold = partial(fold_phase, shards=shards, store=copies[0].check() if copies else None)
    with locked_store_folder(target):
        if not is_store(target):
            return fold(target)
    return load_same(target, fold(None))  # check that the target already holds this result


def _phase_of(folders: Sequence[Path], copies: Sequence[Store]) -> str:
    """Return the phase whose shards are merged.

    If no folder is a store, this is training. If they are copies of a store, training shards (of new layers) mean
    training; otherwise it is validation. Only the first folder is examined, because :func:`_covering` checks all.
    """
    return "validation" if copies and not shards_in(folders[0], "train") else "train"


def _folder_of(part: str | Path | Part | Store) -> Path:
    folder = part.path if isinstance(part, Part | Store) else expanded(part)
    if folder is None:
        raise StoreError(f"{part} is not a part of a collection: merge parts that were collected into folders")
    return folder


def _covering(folders: Sequence[Path], phase: str) -> list[Shard]:
    """Return the shards of a phase in some folders, in order; they must cover the text without overlap."""
    shards: list[Shard] = []
    for folder in folders:
        found = shards_in(folder, phase)
        if not found:
            what = "part of a collection" if phase == "train" else "validation results"
            raise StoreError(f"{folder} holds no {what}: run collapse collect MODEL --store {folder} --part k/n")
        shards += found
    shards = checked_in_order(shards)
    if missing := gaps(shards):
        raise StoreError(
            f"{phase} slices {spans(missing)} of {shards[0].slices} are missing from the parts: collect them "
            "(--part k/n), then merge all parts"
        )
    return shards


def _check_copies(copies: Sequence[Store], shards: Sequence[Shard]) -> None:
    """Raise StoreError unless the stores have equal content, and any validation shards used its class means."""
    first = copies[0]
    for other in copies[1:]:
        if other.digest != first.digest:
            raise StoreError(
                f"{first} and {other} are not copies of the same store: collect the parts in copies of one store"
            )
    of_validation = (shard.header for shard in shards if shard.phase == "validation")
    if any(header["trained"] != training_hash(first, header["layers"]) for header in of_validation):
        raise StoreError(f"the class means of {first} changed after its validation: collect its validation again")
