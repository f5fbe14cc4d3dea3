"""Lock and write the folder of a store, and replace its content for ``--recollect``.

A store's tensor files are written first and its manifest last, each atomically: a folder without a manifest is not a
store. ``--recollect`` completes the new store in a subfolder before it replaces the old one.
"""

import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from pathlib import Path

from collapse.errors import InUseError, StoreError
from collapse.stores.layer_names import FOLDER
from collapse.stores.lock import LOCK, locked, running_parts
from collapse.stores.manifest import MANIFEST, ORIGIN, SHARDS, is_store
from collapse.stores.shards import remove_shards
from collapse.stores.writing import write_atomic, write_error

RECOLLECTED = ".collapse-recollect"
"""Subfolder into which ``--recollect`` collects, until the new store is complete."""


@contextmanager
def locked_store_folder(folder: Path, part: tuple[int, int] | None = None) -> Iterator[None]:
    """Lock a store's folder for writing, and finish a replacement that a killed process began.

    This waits while another process writes into the folder. A created folder is removed again if the ``with`` block
    raises before anything is written into the folder. With ``part``, lock only the k-th of n parts, so that other
    processes can collect the other parts at the same time; see :func:`locked_beside_parts`.

    Raises:
        StoreError: The folder holds files that collapse did not write; the message names some.
        InUseError: Other processes divide the collection into another number of parts.
        CollapseError: The folder cannot be written.
    """
    strange = _other_things(folder)
    if strange and all(is_store(folder / each) for each in strange):
        raise StoreError(
            f"{folder} is a folder of stores ({', '.join(strange[:3])}): choose a folder in it for --store, such as "
            f"{folder / strange[0]}"
        )
    if strange:
        raise StoreError(
            f"{folder} holds files not written by collapse ({', '.join(strange[:3])}): "
            "choose an empty or a new folder for --store"
        )
    with locked(folder, wait=True, part=part):
        with locked_beside_parts(folder, part):
            others = [(k, n) for k, n in running_parts(folder) if part is not None and n != part[1]]
            if others:
                k, n = others[0]
                raise InUseError(
                    f"another process collects part {k}/{n} into {folder}: wait until it ends, or divide the "
                    f"collection into {n} parts too: --part k/{n}"
                )
            if is_store(folder / RECOLLECTED) and not is_store(folder):
                replace_by_recollected(folder)
        yield


def locked_beside_parts(folder: Path | None, part: tuple[int, int] | None) -> AbstractContextManager[None]:
    """Return a context that holds the lock of a store's folder; the caller holds the lock of ``part``.

    Processes of other parts can still write their shards. Without ``part``, the context does nothing: the caller holds
    the lock of the folder, or there is no folder.
    """
    if folder is None or part is None:
        return nullcontext()
    return locked(folder, wait=True, beside_parts=True)


def _other_things(folder: Path) -> list[str]:
    """List the files in a folder that collapse did not write; hidden files are ignored.

    If the folder holds a store, the list is empty.
    """
    if not folder.is_dir() or is_store(folder) or is_store(folder / RECOLLECTED):
        return []
    found = {each.name for each in folder.iterdir()}
    # files beside a lock were left by a killed command
    ours = {ORIGIN, *filter(FOLDER.fullmatch, found)} if LOCK in found else set()
    if all(each.name.startswith((".", "train-")) for each in (folder / SHARDS).glob("*")):
        ours.add(SHARDS)
    return sorted(each for each in found - ours if not each.startswith("."))


@contextmanager
def new_files(folder: Path) -> Iterator[Callable[[str, bytes], None]]:
    """Yield a function ``write(name, data)``; if the ``with`` block raises, remove the files that it wrote."""
    written: list[Path] = []
    folders: set[Path] = set()

    def write(name: str, data: bytes) -> None:
        folders.add((folder / name).parent)
        write_atomic(folder / name, data)
        written.append(folder / name)

    try:
        yield write
    except BaseException:
        for file in written:
            with suppress(OSError):
                file.unlink()
        for above in folders - {folder}:
            with suppress(OSError):  # the folder also holds older files
                above.rmdir()
        raise


def replace_by_recollected(folder: Path) -> None:
    """Replace the store in a folder by the newly collected one; the caller holds the lock.

    If the process is killed between the steps, the folder holds no store; :func:`locked_store_folder` later finishes
    the steps.
    """
    new = folder / RECOLLECTED
    try:
        (folder / MANIFEST).unlink(missing_ok=True)
        for layer in filter(FOLDER.fullmatch, os.listdir(new)):
            if (folder / layer).is_dir():
                shutil.rmtree(folder / layer)
            (new / layer).replace(folder / layer)
        (new / MANIFEST).replace(folder / MANIFEST)
    except OSError as error:
        raise write_error(folder, error) from error
    remove_shards(folder)
    shutil.rmtree(new, ignore_errors=True)
