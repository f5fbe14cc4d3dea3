"""Merge the parts of one collection into a store: joining.py checks the parts, folding.py combines their states.

If parts are collected into one folder, the process that finishes last folds them (collection/passes.py).
"""

from pathlib import Path

from collapse.core.paths import expanded
from collapse.errors import StoreError, UsageError
from collapse.plugin.guarding import outside_inference_mode
from collapse.stores.dealing_slices import spans
from collapse.stores.folding import fold_training, training_hash
from collapse.stores.joining import Parts, joined
from collapse.stores.manifest import differences, is_part, is_store
from collapse.stores.shards import gaps
from collapse.stores.store import Store, another_store
from collapse.stores.store_folder import locked_store_folder


@outside_inference_mode
def merge(parts: Parts, *, store: str | Path) -> Store:
    """Merge the parts of one collection into a store; the order of the arguments does not matter.

    The store lacks the statistics of the validation text: to add them, collect into the store's folder.

    Args:
        parts: Two or more parts, their folders, or the folder that holds them.
        store: Folder of the result. If it already holds this result, with or without a validation, nothing is
            written.

    Raises:
        UsageError: There are fewer than two parts, or the result's folder holds an unfinished collection.
        StoreError: Parts overlap, do not cover all slices, or differ in identity; the message names them.
        CollapseError: The result's folder holds another store, or cannot be written.
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
    # reading a store needs no lock
    new, held = fold_training(None, shards), Store.load(target)
    if held.layers == new.layers and training_hash(held, held.layers) == training_hash(new, new.layers):
        return held.check()
    differ = differences(held.identity, new.identity, sides=("there", "new")) or ["its statistics"]
    raise another_store(target, differ)
