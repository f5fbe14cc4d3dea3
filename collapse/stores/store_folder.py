"""The folder of a store: who may write into it, and how new content replaces the old.

New content is written completely into ``.collapse-new/``, its manifest last. From then on the folder holds the new
store. Its files are then moved up, the manifest last. If the process is killed at any moment, the folder holds the old
store or the new one: readers look into both places, and the next command that writes finishes the move. Only files
that a manifest or a state names are replaced or removed. Any other folder that is not empty is rejected.
"""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from collapse.errors import StoreError
from collapse.stores.lock import LOCK, locked
from collapse.stores.manifest import INCOMING, MANIFEST, ORIGIN, is_ours, is_store, read_manifest_file
from collapse.stores.partial import PARTIAL, Partial
from collapse.stores.writing import move, write_error

RECOLLECTED = ".collapse-recollect"
"""Subfolder of a store's folder into which ``--recollect`` collects, until the new store is complete."""


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
            _remove_unbegun(folder)


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
    if not folder.is_dir() or is_store(folder) or Partial(folder).read() is not None:
        return
    ours = (LOCK, f".{MANIFEST}", INCOMING, RECOLLECTED)  # what a killed process may leave
    strange = sorted(each.name for each in folder.iterdir() if not each.name.startswith(ours))
    if ORIGIN in strange and is_ours(folder / ORIGIN):  # pull writes it first
        strange.remove(ORIGIN)
    if strange == [PARTIAL] and all(each.name.startswith(".") for each in (folder / PARTIAL).glob("*")):
        return  # killed before it wrote its first state
    if strange:
        raise StoreError(
            f"{folder} holds other things than a store ({', '.join(strange[:3])}): "
            "choose an empty or a new folder for --store"
        )


def settled(folder: Path) -> bool:
    """Whether a folder contains nothing from a killed command that the next command must finish or remove."""
    return not any((folder / each).exists() for each in (PARTIAL, INCOMING))


def settle(folder: Path) -> None:
    """Move new content up if it is complete, else remove it; the caller holds the lock.

    Raises:
        StoreError: The new content's manifest is damaged.
        CollapseError: A file cannot be moved.
    """
    incoming = folder / INCOMING
    manifest = incoming / MANIFEST
    if manifest.is_file():
        new, old = set(read_manifest_file(manifest)["files"]), _named(folder / MANIFEST)
        for name in sorted(new):
            if (incoming / name).is_file():
                move(incoming / name, folder / name)
        for name in old - new:
            (folder / name).unlink(missing_ok=True)
        move(manifest, folder / MANIFEST)
    _remove_tree(incoming)


@contextmanager
def staging(folder: Path) -> Iterator[Path]:
    """Yield a folder for a store's new content, the manifest written last; then replace the old content by it."""
    settle(folder)
    incoming = folder / INCOMING
    try:
        yield incoming
    except BaseException:
        if not (incoming / MANIFEST).is_file():
            _remove_tree(incoming)
        raise
    settle(folder)


def replace(folder: Path) -> None:
    """Replace the store in a folder by the recollected one; the caller holds the lock.

    Raises:
        CollapseError: A file cannot be moved.
    """
    settle(folder / RECOLLECTED)
    settle(folder)
    try:
        (folder / RECOLLECTED).rename(folder / INCOMING)  # from now on the folder holds the new store
    except OSError as error:
        raise write_error(folder / INCOMING, error) from error
    settle(folder)
    Partial(folder).clear()


def discard_recollected(folder: Path) -> None:
    """Remove everything that an unfinished ``--recollect`` collected."""
    _remove_tree(folder / RECOLLECTED)


def _remove_tree(folder: Path) -> None:
    with suppress(FileNotFoundError):
        shutil.rmtree(folder)


def _remove_unbegun(folder: Path) -> None:
    """Remove the state of collections that have not finished a slice."""
    for each in (folder / RECOLLECTED, folder):
        with suppress(StoreError):
            state = Partial(each).read()
            if state is not None and not state.file:
                Partial(each).clear()
        with suppress(OSError):
            (each / PARTIAL).rmdir()
    with suppress(OSError):
        (folder / RECOLLECTED).rmdir()


def _named(manifest: Path) -> set[str]:
    """Return the tensor files that a manifest names; none if it is missing or damaged."""
    with suppress(StoreError, OSError):
        return set(read_manifest_file(manifest)["files"])
    return set()
