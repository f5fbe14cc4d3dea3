"""The folder of a store: who may write into it, and how new content takes the place of the old.

New content is written whole into ``.collapse-new/``, its manifest last: from that moment it is what the folder holds.
Then its files move up, the manifest last. A kill at any moment leaves the old store or the new one: readers look into
both places, and the next command that writes finishes the move. Only files that a manifest or a state names are
replaced or removed; a folder that holds anything else is refused.
"""

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from collapse.errors import StoreError
from collapse.files import move, write_error
from collapse.lock import locked
from collapse.manifest import INCOMING, MANIFEST, ORIGIN, RESULTS, is_ours, is_store, manifest_file, read_manifest_file
from collapse.partial import PARTIAL, Partial

RECOLLECTED = ".collapse-recollect"
"""The folder in a store's folder where ``--recollect`` collects, until its store is complete."""

_LOCK = ".lock"  # and markers that begin with it
_LAYER = "top"
_FILES = ("train", "classifier", "validation")


@contextmanager
def writing(folder: Path, *, cached: bool = False) -> Iterator[None]:
    """Write into a store's folder, as the only process: its lock is held, and what a killed command left is finished.

    Where nothing was finished, a folder that this made is removed again.

    Args:
        folder: Made where it is missing.
        cached: It lies in the cache, and is ours whatever it holds.

    Raises:
        StoreError: The folder holds other things than a store.
        CollapseError: Another process holds it, or it cannot be written.
    """
    if not cached:
        refuse_other_things(folder)
    made = [each for each in (folder, *folder.parents) if not each.exists()]
    try:
        with locked(folder):
            settle(folder)
            try:
                yield
            finally:
                _remove_unbegun(folder)
    except BaseException:
        for each in made:
            with suppress(OSError):
                each.rmdir()
        raise


def refuse_other_things(folder: Path) -> None:
    """Refuse a folder that holds what no command of ours wrote; beside a store, only what stands where its files go.

    Raises:
        StoreError: Some of it is named; or the path cannot name the folder that was meant, or lies inside a store.
    """
    _refuse_misnamed(folder)
    for outer in folder.resolve().parents:
        if is_store(outer):
            raise StoreError(f"{folder} lies inside the store {outer}: choose a folder outside it for --store")
    if folder.exists() and not folder.is_dir():
        raise StoreError(f"{folder} is a file: a store is a folder; choose another --store")
    strange = list(_strange(folder)) if folder.is_dir() else []
    if strange and is_store(folder):
        raise StoreError(
            f"{folder} holds files that its {MANIFEST} does not name ({', '.join(strange[:3])}): move them away"
        )
    if strange:
        raise StoreError(
            f"{folder} holds other things than a store ({', '.join(strange[:3])}): "
            "choose an empty or a new folder for --store"
        )


def _refuse_misnamed(folder: Path) -> None:
    """Refuse a path that begins with a ``~`` that nothing replaced, or that has a link to nothing in it."""
    if folder.parts and folder.parts[0].startswith("~") and not Path(folder.parts[0]).exists():
        raise StoreError(f"{folder}: no home folder is called {folder.parts[0]}: write the path of --store in full")
    for each in (folder, *folder.parents):
        if each.is_symlink() and not each.exists():
            raise StoreError(
                f"{each} is a symbolic link to {os.readlink(each)}, which is not there: make that folder, or choose "
                "another --store"
            )


def settled(folder: Path) -> bool:
    """Whether no killed command left anything in a folder that the next one must finish or remove."""
    return not any((folder / each).exists() for each in (PARTIAL, INCOMING))


def settle(folder: Path) -> None:
    """Move new content up, where it is complete, and remove it where it is not; by the holder of the lock.

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
    """Give the folder to write a store's new content into, its manifest last; then it takes the place of the old."""
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
    """Put the store that was collected anew in the place of the one that is there; by the holder of the lock.

    Raises:
        CollapseError: A file cannot be moved.
    """
    settle(folder / RECOLLECTED)
    settle(folder)
    try:
        (folder / RECOLLECTED).rename(folder / INCOMING)  # from here on this is the folder's store
    except OSError as error:
        raise write_error(folder / INCOMING, error) from error
    settle(folder)
    Partial(folder).clear()


def discard_recollected(folder: Path) -> None:
    """Remove what an unfinished ``--recollect`` has so far."""
    _remove_tree(folder / RECOLLECTED)


def _remove_tree(folder: Path) -> None:
    with suppress(FileNotFoundError):
        shutil.rmtree(folder)


def _remove_unbegun(folder: Path) -> None:
    """Remove the state of collections that have finished no slice."""
    for each in (folder / RECOLLECTED, folder):
        with suppress(StoreError):
            state = Partial(each).read()
            if state is not None and not state.file:
                Partial(each).clear()
        with suppress(OSError):
            (each / PARTIAL).rmdir()
    with suppress(OSError):
        (folder / RECOLLECTED).rmdir()


def _strange(folder: Path) -> Iterator[str]:
    named = _named(folder / MANIFEST) | _named(manifest_file(folder)) | _named_by_state(folder)
    layers = {name.split("/")[0] for name in named} | {_LAYER}
    ours = (_LOCK, f".{MANIFEST}", f".{RESULTS}", f".{ORIGIN}", INCOMING, RECOLLECTED)
    for each in sorted(folder.iterdir()):
        if each.name == PARTIAL:
            yield from Partial(folder).strange()
        elif each.name in layers:
            files = sorted(each.iterdir()) if each.is_dir() else []
            found = (f"{each.name}/{file.name.removeprefix('.').removesuffix('.partial')}" for file in files)
            yield from (name for name in found if name not in named)
            if not each.is_dir():
                yield each.name
        elif not is_store(folder) and not (
            is_ours(each) if each.name in (RESULTS, ORIGIN) else each.name.startswith(ours)
        ):
            yield each.name


def _named(manifest: Path) -> set[str]:
    """Tensor files that a manifest names; none where it is missing or damaged."""
    with suppress(StoreError, OSError):
        return set(read_manifest_file(manifest)["files"])
    return set()


def _named_by_state(folder: Path) -> set[str]:
    """Tensor files that an earlier version may have written before its manifest, in the place of the finished ones."""
    state = Partial(folder).read()
    if state is None:
        return set()
    return {f"{_LAYER}/{name}.safetensors" for name in (*_FILES, *(state.identity.get("statistics") or {}))}
