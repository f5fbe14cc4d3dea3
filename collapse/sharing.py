"""Push stores to the Hugging Face Hub in one commit, and pull them, every byte checked.

In a repository each store is a folder ``collapse/<corpus>-<split>-T<chunk>[-<n>][-<identity>]``. A push replaces the
store of its folder, whole, and no other.
"""

import logging
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path, PurePosixPath
from typing import Any

from collapse.card import card
from collapse.client import client_errors
from collapse.errors import CollapseError, StoreError, UsageError, first_line
from collapse.escaping import visible
from collapse.files import sha256_of
from collapse.finding import KNOWN_LATER, open_store
from collapse.hub import is_repo_id, quiet_client, steadily
from collapse.manifest import MANIFEST, RESULTS, is_store, render
from collapse.places import settled, writing
from collapse.remote import FOLDER, Remote, reach
from collapse.reporting import Report
from collapse.store import Store, load_same

log = logging.getLogger("collapse")

_HASH = 8  # digits of an identity's hash in a folder's name
_PARENT_MOVED = 412  # the branch is no longer where the commit starts from


@dataclass(frozen=True)
class Pushed:
    """What a push came to.

    Attributes:
        repo: Where.
        folder: The store's folder there.
        url: Of the commit or the pull request; None where nothing had changed.
        sent: Paths sent.
        unchanged: Paths that were there already.
        revision: Branch or pull request that it went to; None for the main branch.
    """

    repo: str
    folder: str
    url: str | None
    sent: list[str]
    unchanged: list[str]
    revision: str | None = None

    @property
    def name(self) -> str:
        """What :func:`collapse.load` and ``collapse measure`` call the store."""
        return f"{self.repo}/{self.folder}" + (f"@{self.revision}" if self.revision else "")


@dataclass(frozen=True)
class Committed:
    """What a commit came to.

    Attributes:
        url: Of the commit or the pull request; None where nothing had changed.
        sent: Paths sent.
        revision: Branch or pull request that it went to; None for the main branch.
    """

    url: str | None
    sent: list[str]
    revision: str | None


def folder_of(store: Store) -> str:
    """Plain name of a store's folder in a repository: ``collapse/<corpus>-<split>-T<chunk>[-<n>]``."""
    identity = store.identity
    corpus = identity.get("corpus") or {}
    words = [store.corpus.split("/")[-1], corpus.get("split") or "", f"T{identity.get('chunk_length')}"]
    if identity.get("max_chunks"):
        words.append(str(identity["max_chunks"]))
    return f"{FOLDER}/" + re.sub(r"[^A-Za-z0-9._-]+", "-", "-".join(word for word in words if word)).strip("-.")


def free_folder(store: Store, remote: Remote) -> str:
    """Folder for a store in a repository: the plain name, unless a store of another identity lies there.

    Then the name ends in a hash of the identity, as two models on one text have one plain name. What was collected
    beside the identity, such as a plugin's statistics, makes no other store: a push replaces it.
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
    """Push a store to a repository in one commit; files that are there unchanged are not sent again.

    Args:
        store: A store on disk, trained or complete.
        repo: ``user/repo``; made where it is not there, unless a branch is named.
        private: Make it private.
        create_pr: Propose the commit as a pull request.
        into_model_repo: The repository is the model's: its card is left alone.
        revision: Branch to commit to, which must be there.
        progress: Called as progress(what, bytes done, bytes).

    Raises:
        UsageError: The name is no repository's, or the login may not write to it.
        StoreError: The store is a part, in memory, or altered.
        CollapseError: The Hub cannot be reached, or refuses.
    """
    check_repo(repo)
    if store.path is None or store.state == "part":
        mend = "save it first" if store.path is None else "merge its parts first"
        raise StoreError(f"{store} cannot be pushed: {mend}")
    if not into_model_repo and revision is None:  # a new repository has no other branch than main
        create_repo(repo, private=private)
    there = _branch(repo, revision)
    folder = free_folder(store, there)
    content = files_of(store, folder)
    if not into_model_repo:
        others = [each for each in there.stores() if each != folder]
        content["README.md"] = card(store, repo, folder, others=others, licence=_licence(store)).encode()
    message = visible(f"Add {folder}: {store.model} on {store.corpus}")
    made = commit_files(repo, content, message, revision=revision, create_pr=create_pr, remote=there, progress=progress)
    return Pushed(repo, folder, made.url, made.sent, sorted(set(content) - set(made.sent)), made.revision)


def _licence(store: Store) -> str | None:
    """The licence on the card of the training text, where that is on the Hub and says."""
    from huggingface_hub import HfApi

    revision = (store.identity.get("corpus") or {}).get("revision")
    if revision is None:
        return None
    with suppress(*client_errors()):
        about = steadily(lambda: HfApi().dataset_info(store.corpus, revision=revision)).card_data
        return str(about.license) if about and about.license else None
    return None


def files_of(store: Store, folder: str) -> dict[str, Path | bytes]:
    """What goes into a repository for a store on disk, checked: its files, its manifest, what was measured."""
    store.check()
    assert store.path is not None  # a store in memory has no files
    content: dict[str, Path | bytes] = {f"{folder}/{name}": store.file(name) for name in store.manifest["files"]}
    content[f"{folder}/{MANIFEST}"] = render(store.manifest)  # as opened: another process may go on with the store
    if store.results() is not None:
        content[f"{folder}/{RESULTS}"] = store.path / RESULTS
    return content


def check_repo(repo: str) -> None:
    """Refuse what cannot name a repository."""
    if not is_repo_id(repo) or "/" not in repo:
        raise UsageError(f"{repo!r} names no repository: give user/name")


def create_repo(repo: str, *, private: bool = False) -> None:
    """Make a repository, unless it is there; raises as :func:`push`."""
    from huggingface_hub import HfApi

    with _told(repo):
        steadily(lambda: HfApi().create_repo(repo, private=private, exist_ok=True))


def commit_files(
    repo: str,
    content: Mapping[str, Path | bytes],
    message: str,
    *,
    revision: str | None = None,
    create_pr: bool = False,
    remote: Remote | None = None,
    progress: Report | None = None,
) -> Committed:
    """Put files into a repository in one commit, those that are not there as they are; raises as :func:`push`.

    A store among them replaces the one in its folder: other files of that folder are deleted in the same commit.
    ``remote`` is the branch that the content was made for; the commit fails where it has moved since.
    """
    from huggingface_hub import CommitOperationAdd, CommitOperationDelete, HfApi, errors

    api = HfApi()
    with _told(repo):
        remote = remote or _branch(repo, revision)
        changed = {path: what for path, what in content.items() if not remote.holds(path, what)}
        gone = _replaced(content, remote)
        if not changed and not gone:
            return Committed(None, [], revision)
        added = [CommitOperationAdd(path, what) for path, what in changed.items()]
        _send(api, repo, added, revision, create_pr, progress)
        commit = partial(
            api.create_commit,
            repo,
            [*added, *(CommitOperationDelete(path) for path in gone)],
            commit_message=message,
            revision=revision,
            create_pr=create_pr,
            parent_commit=None if create_pr else remote.commit,
        )
        try:
            made = steadily(commit)
        except errors.HfHubHTTPError as error:
            if error.response.status_code != _PARENT_MOVED:
                raise
            now = _branch(repo, revision)
            if not all(now.holds(path, what) for path, what in content.items()) or _replaced(content, now):
                raise
            url = f"{api.endpoint}/{repo}/commit/{now.commit}"
            return Committed(url, sorted(changed), revision)  # only the answer had been lost
    return Committed(made.pr_url or made.commit_url, sorted(changed), made.pr_revision or revision)


def _replaced(content: Mapping[str, Path | bytes], remote: Remote) -> list[str]:
    """Files in the folders of the stores in ``content`` that are not in it, and in no other store below."""
    stores = {str(PurePosixPath(path).parent) for path in content if PurePosixPath(path).name == MANIFEST} - {"."}
    others = tuple(f"{each}/" for each in remote.stores() if each not in stores and each != ".")
    inside = tuple(f"{each}/" for each in stores)
    below = tuple(each for each in others if each.startswith(inside))
    return sorted(
        path for path in remote.files if path not in content and path.startswith(inside) and not path.startswith(below)
    )


def _branch(repo: str, revision: str | None) -> Remote:
    """A branch as it is on the Hub now, never from the cache."""
    remote = reach(f"{repo}@{revision}" if revision else repo, patient=True)
    if not remote.online:
        raise CollapseError(f"{repo}: nothing was committed: the Hub cannot be reached; run the same command again")
    return remote


@contextmanager
def _told(repo: str, what: str = "nothing was committed") -> Iterator[None]:
    """Turn what the client raises into words."""
    from huggingface_hub import errors

    try:
        yield
    except errors.RepositoryNotFoundError as error:
        raise UsageError(
            f"{repo}: {what}: it is not there, or you may not see it; log in with: hf auth login"
        ) from error
    except client_errors() as error:
        status = getattr(getattr(error, "response", None), "status_code", 0)
        hint = " (log in with: hf auth login)" if status in (401, 403) else ""
        raise CollapseError(
            f"{repo}: {what}: {first_line(error)}{hint}. Run the same command again: what was sent "
            "already is not sent twice"
        ) from error


def _send(
    api: Any, repo: str, operations: list[Any], revision: str | None, create_pr: bool, progress: Report | None
) -> None:
    """Upload the large files one after the other: how far it is can be told, and what was sent is kept on failure."""
    total, done = sum(each.upload_info.size for each in operations), 0
    for operation in operations:
        if progress:
            progress(f"pushing to {repo}", done, total, f"{done / 1e6:,.1f} of {total / 1e6:,.1f} MB")
        upload = partial(
            api.preupload_lfs_files, repo, [operation], revision=revision, create_pr=create_pr, free_memory=False
        )
        with quiet_client(), _told(repo, f"{operation.path_in_repo} was not sent"):
            steadily(upload)
        done += operation.upload_info.size
    if progress:
        progress(f"pushing to {repo}", done, total)


def pull(name: str, folder: str | Path, *, progress: Report | None = None) -> Store:
    """Copy a store from the Hub into a folder, every file checked; ``collapse.json`` last.

    Raises:
        StoreError: The folder holds another store, or the Hub's is not whole.
        CollapseError: It cannot be had, or another process writes to the folder.
    """
    folder = Path(folder)
    remote = open_store(name)
    if not is_store(folder) or not settled(folder):
        with writing(folder):
            if not is_store(folder):  # another process may have finished it just now
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
    made = remote.save(folder)
    if remote.origin is not None:
        made.keep_origin(remote.origin)
    return made
