"""Push a store to the Hugging Face Hub in one commit; pull a store, and check the hash of every file.

Each store in a repository has a folder ``collapse/<corpus>-T<chunk length>-<hash of the identity>``. A push replaces
all files in the folder of the store. It does not change other stores.
"""

import glob
import re
from dataclasses import dataclass
from pathlib import Path

from collapse.core.escaping import visible
from collapse.errors import StoreError
from collapse.hub.card import card
from collapse.hub.committing import commit_files, create_repo, read_branch
from collapse.hub.opening import FOLDER, cached, find_published
from collapse.stores.files import sha256_of
from collapse.stores.manifest import KNOWN_LATER, MANIFEST, RESULTS, is_store, render
from collapse.stores.store import Store
from collapse.stores.store_columns import kept_results

_HASH = 8  # digits of the identity's hash in the name of a folder


@dataclass(frozen=True)
class Pushed:
    """The result of a push.

    Attributes:
        name: The store's name for :func:`collapse.load` and ``collapse measure``.
        url: Address of the commit or pull request; None if nothing changed.
    """

    name: str
    url: str | None


def folder_of(store: Store) -> str:
    """Return the folder of a store in a repository; stores of equal identity have the same folder.

    The folder's name ends with a hash of the identity. This hash does not include the fields that are known only after
    the model is loaded.
    """
    identity = {key: value for key, value in store.identity.items() if key not in KNOWN_LATER}
    length = identity.get("chunk_length")  # a features file has none
    words = [store.corpus.split("/")[-1], *([f"T{length}"] if length else []), sha256_of(identity)[:_HASH]]
    return f"{FOLDER}/" + re.sub(r"[^A-Za-z0-9._-]+", "-", "-".join(words)).strip("-.")


def push(
    store: Store | str | Path,
    repo: str,
    *,
    private: bool = False,
    create_pr: bool = False,
    into_model_repo: bool = False,
    revision: str | None = None,
) -> Pushed:
    """Push a store to a repository in one commit; unchanged files are not sent again.

    Args:
        store: A store on disk, with or without the validation pass; its folder; or its name in the cache, as in
            :func:`collapse.load`.
        repo: ``user/repo``; created if it does not exist, unless ``revision`` or ``into_model_repo`` is given.
        private: Create the repository as private.
        create_pr: Open a pull request instead of committing to the branch.
        into_model_repo: Do not change the repository's card, because the repository holds the model.
        revision: An existing branch to commit to; None for main.

    Raises:
        UsageError: The name is not valid for a repository, there is no such repository or branch, or several stores in
            the cache have this name.
        StoreError: There is no such store, it is in memory, or it was altered.
        CollapseError: The Hub cannot be reached, or rejects the request.
    """
    if isinstance(store, str | Path):
        store = cached(store) or Store.load(store)
    if store.path is None:
        raise StoreError(f"{store} is not on disk, so it cannot be pushed: save it first with store.save(folder)")
    folder = folder_of(store)
    content = files_of(store, folder)  # checks the store before a repository is created
    if not into_model_repo and revision is None:  # a new repository has only the branch main
        create_repo(repo, private=private)
    there = read_branch(repo, revision)
    if not into_model_repo:
        content["README.md"] = card(store, f"{repo}/{folder}").encode()
    message = visible(f"Add {folder}: {store.model} on {store.corpus}")
    made = commit_files(there, content, message, replaced=f"{folder}/", branch=revision, create_pr=create_pr)
    at = (made.pr_revision if made else None) or revision
    name = f"{repo}/{folder}@{at}" if at else f"{repo}/{folder}"
    return Pushed(name, (made.pr_url or made.commit_url) if made else None)


def files_of(store: Store, folder: str) -> dict[str, Path | bytes]:
    """Return the files to push for a store on disk, by path in the repository: tensors, manifest and measurements.

    The tensor files are checked; raises StoreError if one was altered.
    """
    assert store.path is not None  # a store in memory has no files
    content: dict[str, Path | bytes] = {f"{folder}/{name}": store.file(name) for name in store.manifest["files"]}
    content[f"{folder}/{MANIFEST}"] = render(store.manifest)  # not the file, which another process may have changed
    if kept_results(store) is not None:
        content[f"{folder}/{RESULTS}"] = store.path / RESULTS
    return content


def pull(name: str, folder: str | Path) -> Store:
    """Copy a store from the Hub into a folder; every file is checked, and ``collapse.json`` is written last.

    If the folder already holds this store, nothing is written.

    Args:
        name: ``user/repo`` of a repository with one store, or ``user/repo/folder``; ``@revision`` may follow.
        folder: The folder, which may be new.

    Raises:
        UsageError: There is no such repository or revision, or the name does not refer to exactly one store.
        StoreError: The folder holds something else, or a file of the store on the Hub is damaged.
        CollapseError: The store is not available, or the folder cannot be written.
    """
    remote, place = find_published(name)
    store = remote.open(place)
    if not is_store(folder):
        remote.download([f"{glob.escape(place)}/*"], bars=True)
    return store.save(folder)
