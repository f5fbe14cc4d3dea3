"""The folder of a store: who may write into it, and how ``--recollect`` replaces its content.

A store's tensor files are written first and its manifest last, each atomically: a folder without a manifest is no
store. A store that is collected again is complete in a subfolder before it replaces the old one.
"""

import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from collapse.errors import StoreError
from collapse.stores.lock import LOCK, locked
from collapse.stores.manifest import LAYER, MANIFEST, ORIGIN, SHARDS, is_store, read_manifest, render
from collapse.stores.shards import remove_shards
from collapse.stores.writing import sync_folder, write_atomic, write_error

RECOLLECTED = ".collapse-recollect"
"""Subfolder into which ``--recollect`` collects, until the new store is complete."""


@contextmanager
def writing(folder: Path) -> Iterator[None]:
    """Lock a store's folder for writing, and finish a replacement that a killed process began.

    This waits for another process that writes into the folder. A folder that this creates is removed again if the block
    raises before anything is written into it.

    Raises:
        StoreError: The folder holds other things than a store.
        CollapseError: The folder cannot be written.
    """
    refuse_other_things(folder)
    with locked(folder, wait=True):
        if is_store(folder / RECOLLECTED) and not is_store(folder):
            replace_by_recollected(folder)
        yield


def refuse_other_things(folder: Path) -> None:
    """Reject a folder that is neither absent, nor empty, nor one that collapse writes.

    Raises:
        StoreError: It holds other things, some of which the message names; or it is a file, or inside a store.
    """
    if folder.parts and folder.parts[0].startswith("~"):
        raise StoreError(f"{folder}: cannot expand {folder.parts[0]}: no such user; give the full path of --store")
    for outer in folder.resolve().parents:
        if is_store(outer):
            raise StoreError(f"{folder} lies inside the store {outer}: choose a folder outside it for --store")
    if folder.exists() and not folder.is_dir():
        raise StoreError(f"{folder} is a file: a store is a folder; choose another --store")
    if not folder.is_dir() or is_store(folder) or is_store(folder / RECOLLECTED):
        return
    found = {each.name for each in folder.iterdir()}
    ours = {ORIGIN}
    if all(each.name.startswith((".", "train-")) for each in (folder / SHARDS).glob("*")):
        ours.add(SHARDS)
    if found & {LOCK, *ours}:  # a killed command leaves one of them beside its tensor files
        ours.add(LAYER)
    strange = sorted(each for each in found - ours if not each.startswith((LOCK, f".{MANIFEST}", RECOLLECTED)))
    if strange:
        raise StoreError(
            f"{folder} holds other things than a store ({', '.join(strange[:3])}): "
            "choose an empty or a new folder for --store"
        )


def write_files(folder: Path, files: Iterable[tuple[str, bytes]], manifest: Callable[[], Mapping[str, Any]]) -> None:
    """Write tensor files by name, and last the manifest; after an error, remove them again.

    Raises:
        CollapseError: A file cannot be written.
    """
    written: list[Path] = []
    try:
        for name, data in files:
            write_atomic(folder / name, data)
            written.append(folder / name)
        write_atomic(folder / MANIFEST, render(manifest()))
    except BaseException:
        with suppress(OSError):
            for file in written:
                file.unlink()
            (folder / LAYER).rmdir()
        raise


def replace_by_recollected(folder: Path) -> None:
    """Replace the store in a folder by the one that was collected again; the caller holds the lock.

    From the first step to the last the folder holds no store, and :func:`writing` repeats what is left of the steps.

    Raises:
        CollapseError: A file cannot be moved.
    """
    new, layer = folder / RECOLLECTED, folder / LAYER
    names = set(read_manifest(new)["files"])
    try:
        (folder / MANIFEST).unlink(missing_ok=True)
        sync_folder(folder)
        layer.mkdir(exist_ok=True)
        for file in (new / LAYER).glob("*.safetensors"):
            file.replace(layer / file.name)
        for file in layer.glob("*.safetensors"):
            if f"{LAYER}/{file.name}" not in names:
                file.unlink()
        sync_folder(layer)
        (new / MANIFEST).replace(folder / MANIFEST)
        sync_folder(folder)
    except OSError as error:
        raise write_error(folder, error) from error
    remove_shards(folder)
    shutil.rmtree(new, ignore_errors=True)
