"""Merge the parts of one collection into a store.

This module checks and orders the shards of the parts; folding_shards.py combines the shards.
If parts are collected into one folder, the process that finishes last folds them (collection/passes.py).
"""

from collections.abc import Iterable, Sequence
from itertools import pairwise
from pathlib import Path

from collapse.core.paths import expanded
from collapse.errors import StoreError, UsageError
from collapse.plugin.guarding import outside_inference_mode
from collapse.stores.dealing_slices import spans
from collapse.stores.folding_shards import fold_training, training_hash
from collapse.stores.identity_differences import differences
from collapse.stores.manifest import is_part, is_store
from collapse.stores.shards import Part, Shard, fields_to_compare, gaps
from collapse.stores.store import Store, another_store
from collapse.stores.store_folder import locked_store_folder

Parts = str | Path | Part | Iterable[Part | str | Path]
"""Parts of a collection, or their folders.

A single path is the folder that holds all parts, or the parts' folders joined by commas.
"""


@outside_inference_mode
def merge(parts: Parts, *, store: str | Path) -> Store:
    """Merge the parts of one collection into a store; the order of the arguments does not matter.

    The store lacks the statistics of the validation text: to add them, collect into the store's folder.

    Args:
        parts: At least two parts or folders of parts; or one folder that has the folders of all parts in it.
        store: Folder of the result. If it already holds this result, with or without a validation, nothing is
            written.

    Raises:
        UsageError: There are fewer than two parts, or the result's folder holds an unfinished collection.
        StoreError: Parts overlap, do not cover all slices, or differ in identity; the message names them. Or the
            result's folder holds another store or other files.
        CollapseError: The result's folder cannot be written.
    """
    shards, target = joined(parts).shards, expanded(store)
    if is_part(target):
        raise UsageError(
            f"{target} holds an unfinished collection, which the store would replace: give another --store"
        )
    if missing := gaps(shards):
        raise StoreError(
            f"training slices {spans(missing)} of {shards[0].slices_in_phase} are missing from the parts: collect them "
            "(--part k/n), then merge all parts"
        )
    with locked_store_folder(target):
        if not is_store(target):
            return fold_training(target, shards)
    # the store is folded again in memory, to compare it with the one that is there; reading a store needs no lock
    new, held = fold_training(None, shards), Store.load(target)
    if held.layers == new.layers and training_hash(held, held.layers) == training_hash(new, new.layers):
        return held.check()
    differ = differences(held.identity, new.identity, sides=("there", "new")) or ["its statistics"]
    raise another_store(target, differ)


def joined(parts: Parts) -> Part:
    """Return one part with the shards of all given parts, in the order of their slices.

    The folder of the result is the folder of the first given part. Nothing is written. Slices may be missing.

    Raises:
        UsageError: There are fewer than two parts.
        StoreError: A folder holds no part, or as in :func:`checked_in_order`.
    """
    if isinstance(parts, str | Path):
        folder = expanded(parts)
        found = sorted(each for each in folder.iterdir() if is_part(each)) if folder.is_dir() else []
        parts = found or [each for each in str(parts).split(",") if each]
    given = [parts] if isinstance(parts, Part) else parts
    opened = [each if isinstance(each, Part) else Part.load(str(each)) for each in given]
    if len(opened) < 2:
        held = "".join(f" ({each} holds {each.covered()})" for each in opened)
        raise UsageError(
            f"at least two parts are needed, got {len(opened)}{held}: collect with --part 1/n to --part n/n"
        )
    return Part(opened[0].path, checked_in_order([shard for part in opened for shard in part.shards]))


def checked_in_order(shards: Sequence[Shard]) -> list[Shard]:
    """Return the shards of one or several folders in the order of their slices.

    Raises:
        StoreError: The shards are of different collections, or overlap.
    """
    in_order = sorted(shards, key=lambda each: (each.start, each.stop))
    for other in in_order[1:]:
        first = in_order[0]
        sides = str(first.folder), str(other.folder)
        if differ := differences(fields_to_compare(first.header), fields_to_compare(other.header), sides=sides):
            raise StoreError(
                f"{' and '.join(sides)} are not parts of one collection: they differ in {'; '.join(differ)}. "
                "Collect all parts with the same options"
            )
    for first, other in pairwise(in_order):
        if other.start < first.stop:
            shared = (other.start, min(first.stop, other.stop))
            raise StoreError(
                f"{first.folder} and {other.folder} overlap: both hold {first.phase} slices {spans([shared])} (of "
                f"{first.slices_in_phase} slices in total). Give only one of these two parts"
            )
    return in_order
