"""Open a store by its local folder, by its digest or model in the cache, or by its repository on the Hub."""

from contextlib import suppress
from pathlib import Path

from collapse.core.paths import home, near_folders
from collapse.errors import CollapseError, StoreError, UsageError
from collapse.hub.client import is_repo_id, split_name
from collapse.hub.fingerprints import Folder, weights_fingerprint
from collapse.hub.remote import Remote, reach
from collapse.stores.manifest import is_store
from collapse.stores.store import Store

FOLDER = "collapse"
"""Folder of the stores in a repository."""


def load(path: str | Path) -> Store:
    """Open a store: ``collapse.load("stores/a")``, or on the Hub ``"user/repo"``, ``"user/repo/folder@revision"``.

    A store in the user's cache is also found by the first characters of its digest (at least 6), or by its model's name
    or folder. Tensor files of a store on the Hub are downloaded and checked when they are first read.

    Raises:
        UsageError: There is no such repository, the repository holds no store, or several stores match.
        StoreError: There is no store in the folder, or the store's manifest was altered or has another format version.
        CollapseError: The Hub cannot be reached, and the store is not cached.
    """
    if (found := cached(path)) is not None:
        return found
    if Path(path).exists() or "/" not in str(path) or Path(path).is_absolute():
        return Store.load(path)
    try:
        remote, folder = find_published(str(path))
    except CollapseError as error:
        raise type(error)(f"there is no folder {path}; {near_folders(str(path)) or error}") from error
    return remote.open(folder)


def cached(path: str | Path) -> Store | None:
    """Open the store in the user's cache with this model name, model folder or start of a digest (6 digits or more).

    Stores of null baselines are found only by their digest. Return None if no store matches, or if the path exists and
    is not a model's folder. Raise UsageError if several stores match.
    """
    name, is_model = str(path), (Path(path) / "config.json").is_file() and not is_store(path)
    if Path(path).exists() and not is_model:
        return None
    weights, found = weights_fingerprint(Folder(Path(path)), {}) if is_model else None, []
    for folder in sorted((home() / "stores").glob("*")):
        with suppress(StoreError):  # unfinished, or damaged
            store = Store.load(folder)
            of_model = store.identity.get("weights") == weights if is_model else store.model == name
            if (of_model and not store.identity.get("null")) or (len(name) >= 6 and store.digest.startswith(name)):
                found.append(store)
    if len(found) > 1:
        chunks = [each.manifest["coverage"]["train"]["chunks"] for each in found]
        listed = ", ".join(f"{each.digest[:12]} ({n:,} chunks)" for each, n in zip(found, chunks, strict=True))
        raise UsageError(f"the cache has {len(found)} stores of {path}: give the digest of one: {listed}")
    return found[0] if found else None


def find_published(name: str) -> tuple[Remote, str]:
    """Find a store on the Hub; return its repository and its folder there.

    Args:
        name: ``user/repo`` of a repository with one store, or ``user/repo/folder``; optionally with ``@revision``.

    Raises:
        UsageError: There is no such repository or revision, or the name does not refer to exactly one store.
        CollapseError: The Hub cannot be reached, and the repository is not cached.
    """
    if not names_repo(name):
        raise UsageError(f"there is no store {name}: give a folder, or user/repo on the Hub")
    repo, folder = split_name(name)
    remote = reach(repo)
    return remote, _only_store(remote, folder)


def open_named(name: str) -> Store | None:
    """Open the store with this name on the Hub: ``user/repo`` or ``user/repo/folder``, optionally with ``@revision``.

    Return None if the name cannot be the name of a repository. For a name without a folder, also return None if the
    repository holds a model, has no store, or is not available. Otherwise, raises the exceptions of :func:`load`.
    """
    if not names_repo(name):
        return None
    repo, folder = split_name(name)
    try:
        remote = reach(repo)
        if not folder and (remote.is_model() or not remote.stores()):
            return None
    except CollapseError:
        if folder:
            raise
        return None  # the error is reported when a model of this name is looked up
    return remote.open(_only_store(remote, folder))


def _only_store(remote: Remote, folder: str) -> str:
    """Return the full path of a store's folder in a repository; raise UsageError if no store or several stores match.

    ``folder`` is the folder, with or without the prefix ``collapse/``, or "" for the repository's only store.
    """
    stores = remote.stores()
    matching = [each for each in stores if folder in ("", each, each.removeprefix(f"{FOLDER}/"))]
    if len(matching) == 1:
        return matching[0]
    listed = ", ".join(f"{remote.name}/{each}" for each in stores)
    if matching:
        raise UsageError(f"{remote.name} has several stores: give one of {listed}")
    raise UsageError(f"{remote.name} has no store {folder}".rstrip() + (f"; it has {listed}" if stores else ""))


def names_repo(name: str) -> bool:
    """Whether a name can be the name of a repository, or of a store in a repository."""
    repo = split_name(name)[0].partition("@")[0]
    return is_repo_id(repo) and "/" in repo
