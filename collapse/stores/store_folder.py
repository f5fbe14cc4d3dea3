"""The folder of a store: who may write into it, and how new content replaces the old.

New content is written completely into a subfolder, its manifest last, and then moved up, its manifest last. A folder
without a manifest is no store. If a process is killed while files move, the next command that writes finishes the move.
Only files that a manifest names are replaced or removed.
"""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from collapse.errors import StoreError
from collapse.stores.lock import LOCK, locked
from collapse.stores.manifest import MANIFEST, ORIGIN, SHARDS, is_ours, is_store, read_manifest
from collapse.stores.shards import remove_shards
from collapse.stores.writing import move, write_error

INCOMING = ".collapse-new"
"""Subfolder of a store's folder in which new content is written."""
RECOLLECTED = ".collapse-recollect"
"""Subfolder into which ``--recollect`` collects, until the new store is complete."""

_REPLACED = "replaced.json"


@contextmanager
def writing(folder: Path, *, cached: bool = False) -> Iterator[None]:
    """Lock a store's folder for writing, and finish what a killed command left unfinished.

    This waits for another process that writes into the folder. A folder that this creates is removed again if the block
    raises before anything is written into it.

    Args:
        folder: The store's folder, created if it is missing.
        cached: The folder is in the cache, and is written whatever it holds.

    Raises:
        StoreError: The folder holds other things than a store.
        CollapseError: The folder cannot be written.
    """
    if not cached:
        refuse_other_things(folder)
    with locked(folder, wait=True):
        settle(folder)
        try:
            yield
        finally:
            for each in (folder / RECOLLECTED / SHARDS, folder / RECOLLECTED, folder / SHARDS):
                with suppress(OSError):
                    each.rmdir()  # if it is empty


def refuse_other_things(folder: Path) -> None:
    """Reject a folder that is neither absent, nor empty, nor one that collapse writes.

    Raises:
        StoreError: It holds other things, some of which the message names; or it is a file, or inside a store.
    """
    if folder.parts and folder.parts[0].startswith("~"):
        raise StoreError(f"{folder}: no home folder is called {folder.parts[0]}: write the path of --store in full")
    for outer in folder.resolve().parents:
        if is_store(outer):
            raise StoreError(f"{folder} lies inside the store {outer}: choose a folder outside it for --store")
    if folder.exists() and not folder.is_dir():
        raise StoreError(f"{folder} is a file: a store is a folder; choose another --store")
    if not folder.is_dir() or is_store(folder) or is_store(folder / INCOMING) or is_store(folder / RECOLLECTED):
        return
    ours = (LOCK, f".{MANIFEST}", INCOMING, RECOLLECTED)  # what a killed process may leave
    strange = sorted(each.name for each in folder.iterdir() if not each.name.startswith(ours))
    if ORIGIN in strange and is_ours(folder / ORIGIN):  # pull writes it first
        strange.remove(ORIGIN)
    if SHARDS in strange and all(each.name.startswith((".", "train-")) for each in (folder / SHARDS).glob("*")):
        strange.remove(SHARDS)
    if strange:
        raise StoreError(
            f"{folder} holds other things than a store ({', '.join(strange[:3])}): "
            "choose an empty or a new folder for --store"
        )


def settled(folder: Path) -> bool:
    """Whether a folder contains nothing from a killed command that the next command must finish or remove."""
    return not any((folder / each).exists() for each in (SHARDS, INCOMING))


def settle(folder: Path) -> None:
    """Finish a replacement that a killed process began; the caller holds the lock.

    Raises:
        StoreError: The new content's manifest is damaged.
        CollapseError: A file cannot be moved.
    """
    for new in (folder / INCOMING, folder / RECOLLECTED):
        if is_store(new) and not is_store(folder):
            replace(folder, new)
    _remove_tree(folder / INCOMING)


@contextmanager
def staging(folder: Path) -> Iterator[Path]:
    """Yield a folder for a store's new content, the manifest written last; then replace the old content by it."""
    incoming = folder / INCOMING
    _remove_tree(incoming)
    try:
        yield incoming
    except BaseException:
        _remove_tree(incoming)
        raise
    replace(folder, incoming)


def replace(folder: Path, new: Path) -> None:
    """Replace the store in a folder by the one in a subfolder; the caller holds the lock.

    Raises:
        CollapseError: A file cannot be moved.
    """
    coming = set(read_manifest(new)["files"])
    held = _named(folder, MANIFEST) | _named(new, _REPLACED)
    moved = {name for name in coming if (new / name).is_file()}
    if moved & held and is_store(folder):  # from now on, and until all is moved, the folder holds no store
        move(folder / MANIFEST, new / _REPLACED)
    for name in sorted(moved):
        move(new / name, folder / name)
    move(new / MANIFEST, folder / MANIFEST)
    for name in held - coming:
        _remove_file(folder / name)
    remove_shards(folder)
    _remove_tree(new)


def discard_recollected(folder: Path) -> None:
    """Remove everything that an unfinished ``--recollect`` collected."""
    _remove_tree(folder / RECOLLECTED)


def _named(folder: Path, manifest: str) -> set[str]:
    """Return the tensor files that a manifest names; none if it is missing or damaged."""
    with suppress(StoreError):
        return set(read_manifest(folder, manifest)["files"])
    return set()


def _remove_file(file: Path) -> None:
    try:
        file.unlink(missing_ok=True)
    except OSError as error:
        raise write_error(file, error) from error


def _remove_tree(folder: Path) -> None:
    with suppress(FileNotFoundError):
        shutil.rmtree(folder)
