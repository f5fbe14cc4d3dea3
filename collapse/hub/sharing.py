"""Push stores to the Hugging Face Hub in one commit, and pull them with all hashes checked.

Each store of a repository has a folder ``collapse/<corpus>-<split>-T<chunk>[-<n>][-v<n>][-<identity>]``. A push
replaces the complete store in its folder, and no other store.
"""

import logging
import re
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from collapse.errors import StoreError
from collapse.escaping import visible
from collapse.hub.card import card
from collapse.hub.committing import check_repo, commit_files, create_repo, read_branch
from collapse.hub.opening import open_store
from collapse.hub.remote import FOLDER, Remote
from collapse.hub.requests import client_errors, steadily
from collapse.measurement.last_results import kept_row
from collapse.progress import Report
from collapse.progress_bar import shows_progress
from collapse.stores.files import sha256_of
from collapse.stores.manifest import KNOWN_LATER, MANIFEST, RESULTS, is_store, render
from collapse.stores.store import Store, load_same
from collapse.stores.store_folder import writing

log = logging.getLogger("collapse")

_HASH = 8  # digits of the identity's hash in a folder's name


@dataclass(frozen=True)
class Pushed:
    """The result of a push.

    Attributes:
        repo: The repository.
        folder: The store's folder in the repository.
        url: Address of the commit or pull request; None if nothing had changed.
        sent: Paths sent.
        unchanged: Paths that had not changed.
        revision: Branch or pull request of the commit; None for the main branch.
    """

    repo: str
    folder: str
    url: str | None
    sent: list[str]
    unchanged: list[str]
    revision: str | None = None

    @property
    def name(self) -> str:
        """The store's name for :func:`collapse.load` and ``collapse measure``."""
        return f"{self.repo}/{self.folder}" + (f"@{self.revision}" if self.revision else "")


def folder_of(store: Store) -> str:
    """Return the plain name of a store's folder: ``collapse/<corpus>-<split>-T<chunk>[-<n>][-v<n>]``."""
    identity = store.identity
    corpus = identity.get("corpus") or {}
    length = identity.get("chunk_length")  # a features file has none
    words = [store.corpus.split("/")[-1], corpus.get("split") or "", f"T{length}" if length else ""]
    if identity.get("max_chunks"):
        words.append(str(identity["max_chunks"]))
    if identity.get("max_validation_chunks"):
        words.append(f"v{identity['max_validation_chunks']}")
    return f"{FOLDER}/" + re.sub(r"[^A-Za-z0-9._-]+", "-", "-".join(word for word in words if word)).strip("-.")


def free_folder(store: Store, remote: Remote) -> str:
    """Return the folder for a store in a repository: the plain name, unless it is taken by a store of another identity.

    Then the name ends in a hash of the identity, because two models on one text have the same plain name. Differences
    outside the planned identity, such as plugin statistics, do not count: the push replaces the store.
    """
    plain = folder_of(store)
    if plain not in remote.stores():
        return plain
    mine = _planned(store.identity)
    try:
        held = _planned(remote.manifest(plain)[1]["identity"])
    except StoreError as error:
        log.info("%s/%s is left as it is: %s", remote.repo, plain, error)
        held = {}
    return plain if held == mine else f"{plain}-{sha256_of(mine)[:_HASH]}"


def _planned(identity: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in identity.items() if key not in KNOWN_LATER}


@shows_progress
def push(
    store: Store,
    repo: str,
    *,
    private: bool = False,
    create_pr: bool = False,
    into_model_repo: bool = False,
    revision: str | None = None,
    progress: Report | None = None,
) -> Pushed:
    """Push a store to a repository in one commit; unchanged files are not sent again.

    Args:
        store: A store on disk, trained or complete.
        repo: ``user/repo``; created if it does not exist, unless a branch is given.
        private: Create the repository as private.
        create_pr: Propose the commit as a pull request.
        into_model_repo: The repository holds the model: do not change its card.
        revision: Branch to commit to, which must exist.
        progress: Called as progress(what, bytes done, bytes).

    Raises:
        UsageError: The name is not that of a repository, or the login may not write to it.
        StoreError: The store is in memory, or altered.
        CollapseError: The Hub cannot be reached, or rejects the request.
    """
    check_repo(repo)
    if store.path is None:
        raise StoreError(f"{store} cannot be pushed: save it first")
    if not into_model_repo and revision is None:  # a new repository has only the branch main
        create_repo(repo, private=private)
    there = read_branch(repo, revision)
    folder = free_folder(store, there)
    content = files_of(store, folder)
    if not into_model_repo:
        others = [each for each in there.stores() if each != folder]
        content["README.md"] = card(store, repo, folder, others=others, licence=_licence(store)).encode()
    message = visible(f"Add {folder}: {store.model} on {store.corpus}")
    made = commit_files(repo, content, message, revision=revision, create_pr=create_pr, remote=there, progress=progress)
    return Pushed(repo, folder, made.url, made.sent, sorted(set(content) - set(made.sent)), made.revision)


push_to_hub = push
"""The name that other libraries of the Hub give it."""


def _licence(store: Store) -> str | None:
    """Return the licence on the card of the training text, or None if it is not on the Hub or has no licence."""
    from huggingface_hub import HfApi

    revision = (store.identity.get("corpus") or {}).get("revision")
    if revision is None:
        return None
    with suppress(*client_errors()):
        about = steadily(lambda: HfApi().dataset_info(store.corpus, revision=revision)).card_data
        return str(about.license) if about and about.license else None
    return None


def files_of(store: Store, folder: str) -> dict[str, Path | bytes]:
    """Check a store on disk, and return the files to push: its tensors, its manifest, its measurements."""
    store.check()
    assert store.path is not None  # a store in memory has no files
    content: dict[str, Path | bytes] = {f"{folder}/{name}": store.file(name) for name in store.manifest["files"]}
    content[f"{folder}/{MANIFEST}"] = render(store.manifest)  # not the file: another process may have changed it
    if kept_row(store) is not None:
        content[f"{folder}/{RESULTS}"] = store.path / RESULTS
    return content


@shows_progress
def pull(name: str, folder: str | Path, *, progress: Report | None = None) -> Store:
    """Copy a store from the Hub into a folder; every file is checked, and ``collapse.json`` is written last.

    Raises:
        StoreError: The folder holds another store, or the store on the Hub is incomplete.
        CollapseError: The store is not available, or another process writes to the folder.
    """
    folder = Path(folder)
    remote = open_store(name)
    if not is_store(folder):
        with writing(folder):
            if not is_store(folder):  # another process may have just written it
                return _download(name, remote, folder, progress)
    return load_same(folder, remote)


def _download(name: str, remote: Store, folder: Path, progress: Report | None) -> Store:
    done = 0
    for file, entry in remote.manifest["files"].items():
        if progress:
            progress(f"pulling {name}", done, remote.size)
        remote.fetch(file)
        done += entry["size"]
    if progress:
        progress(f"pulling {name}", done, remote.size)
    remote.keep_origin(folder)  # first: where a killed pull left a store, the next one would have nothing to do
    return remote.write_in(folder)
