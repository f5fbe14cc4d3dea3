"""Stores on the Hugging Face Hub: pushed in one commit, found by what they hold, opened file by file and checked.

In a repository each store is a folder ``collapse/<corpus>-<split>-T<chunk>[-<n>]``. The client checks no download's
hash; here every file must be what its manifest says, and a manifest what its own checksum says.
"""

import hashlib
import logging
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path, PurePosixPath
from typing import Any

from collapse.card import card
from collapse.errors import CollapseError, StoreError, UsageError
from collapse.files import check_file, sha256_file, sha256_of
from collapse.hub import is_repo_id, quiet_client, remember_commit, resolve_commit, split_revision, steadily
from collapse.manifest import MANIFEST, MANIFEST_LIMIT, read_manifest
from collapse.store import RESULTS, Store

log = logging.getLogger("collapse")

Report = Callable[..., None]
"""Called as progress(what, bytes done, bytes[, note])."""

FOLDER = "collapse"
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
    """

    repo: str
    folder: str
    url: str | None
    sent: list[str]
    unchanged: list[str]


@dataclass(frozen=True)
class Remote:
    """A repository at a commit.

    Attributes:
        repo: Its id.
        commit: The sha.
        online: Whether the Hub answered; else only cached files can be had.
        files: Path → (size, sha256 of an LFS file or git id of another); empty offline.
    """

    repo: str
    commit: str
    online: bool
    files: Mapping[str, tuple[int, str]]

    def stores(self) -> list[str]:
        """Folders of the stores in it."""
        paths = self.files if self.online else _cached_files(self.repo, self.commit)
        return sorted(str(PurePosixPath(path).parent) for path in paths if PurePosixPath(path).name == MANIFEST)

    def fetch(self, path: str, *, force: bool = False) -> Path:
        """A file in the client's cache, downloaded where it is not there.

        Raises:
            CollapseError: It cannot be had.
        """
        from huggingface_hub import errors, hf_hub_download

        try:
            with quiet_client():
                got = steadily(
                    lambda: hf_hub_download(
                        self.repo,
                        path,
                        revision=self.commit,
                        local_files_only=not self.online,
                        force_download=force,
                    )
                )
        except errors.LocalEntryNotFoundError as error:
            raise CollapseError(
                f"{self.repo}: {path} is not in the cache, and the Hub is not to be reached: {_first_line(error)}"
            ) from error
        except errors.EntryNotFoundError as error:
            raise CollapseError(f"{self.repo} has no {path} at {self.commit[:12]}") from error
        except (errors.HfHubHTTPError, errors.HTTPError, OSError, RuntimeError, ValueError) as error:
            raise CollapseError(f"{self.repo}: {path} cannot be downloaded: {_first_line(error)}") from error
        return Path(got)

    def fetch_checked(self, path: str, check: Callable[[Path], object]) -> Path:
        """A file that must pass a check; one that fails is taken out of the cache and downloaded once more.

        Raises:
            StoreError: It failed twice.
            CollapseError: It cannot be had.
        """
        got = self.fetch(path)
        try:
            check(got)
        except StoreError:
            self._forget(got)
            got = self.fetch(path, force=self.online)
            try:
                check(got)
            except StoreError as error:
                self._forget(got)
                raise StoreError(f"{self.repo}: {path} was damaged in two downloads: {error}") from error
        return got

    def open(self, folder: str) -> Store:
        """The store in a folder, whose files are fetched and checked when they are read.

        Raises:
            StoreError: Its manifest is altered, or a file is not of the size that it says.
            CollapseError: The manifest cannot be had.
        """
        inside = "" if folder in ("", ".") else f"{folder}/"
        size = self.files.get(f"{inside}{MANIFEST}", (0, ""))[0]
        if size > MANIFEST_LIMIT:
            raise StoreError(f"{self.repo}: {inside}{MANIFEST} is too large to be a manifest ({size:,} bytes)")
        at = self.fetch_checked(f"{inside}{MANIFEST}", lambda path: read_manifest(path.parent)).parent
        manifest = read_manifest(at)
        for name, entry in manifest["files"].items():
            there = self.files.get(f"{inside}{name}")
            if self.online and (there is None or there[0] != entry["size"]):
                found = "is not there" if there is None else f"has {there[0]:,} bytes"
                raise StoreError(
                    f"{self.repo}: {inside}{name} {found} where the manifest says {entry['size']:,}: "
                    "the store is not whole; ask its owner to push it again"
                )

        def fetch(name: str) -> None:
            self.fetch_checked(f"{inside}{name}", lambda path: check_file(path, manifest["files"][name]))

        return Store(manifest, at, fetch=fetch, origin=f"{self.repo}/{folder}@{self.commit[:12]}")

    @staticmethod
    def _forget(path: Path) -> None:
        """Take a damaged file out of the client's cache."""
        if path.is_symlink():
            path.resolve().unlink(missing_ok=True)
        path.unlink(missing_ok=True)

    def holds(self, path: str, what: Path | bytes) -> bool:
        """Whether a file is there with this content."""
        if path not in self.files:
            return False
        size, identifier = self.files[path]
        if size != (len(what) if isinstance(what, bytes) else what.stat().st_size):
            return False
        if len(identifier) == 64 and isinstance(what, Path):
            return identifier == sha256_file(what)
        data = what if isinstance(what, bytes) else what.read_bytes()
        git = hashlib.sha1(b"blob %d\0" % size + data).hexdigest()
        return identifier in (git, hashlib.sha256(data).hexdigest())

    def weights(self) -> str | None:
        """What the model's weights are here, as a local folder's would be called; None where that is not known."""
        names = [path for path in self.files if "/" not in path and path.endswith(".safetensors")]
        if not names or "config.json" not in self.files:
            return None
        hashes = {name: self.files[name][1] for name in names}
        hashes["config.json"] = sha256_file(self.fetch("config.json"))
        return "sha256:" + sha256_of(hashes)


def reach(name: str) -> Remote:
    """A repository by its name, ``user/repo`` or ``user/repo@revision``; offline, from the cache.

    Raises:
        UsageError: There is no such repository or revision.
        CollapseError: It cannot be reached, and nothing is cached.
    """
    from huggingface_hub import HfApi, errors
    from huggingface_hub.hf_api import RepoFile

    repo, revision = split_revision(name)
    commit, online = resolve_commit(repo, revision)
    files: dict[str, tuple[int, str]] = {}
    if online:
        remember_commit(repo, revision, commit)
        try:
            tree = steadily(lambda: list(HfApi().list_repo_tree(repo, recursive=True, revision=commit)))
        except (errors.HfHubHTTPError, errors.HTTPError, OSError, RuntimeError) as error:
            raise CollapseError(
                f"{repo}: its files cannot be listed: {_first_line(error)} (is your login still good? hf auth whoami)"
            ) from error
        files = {
            each.path: (each.size, each.lfs.sha256 if each.lfs else each.blob_id)
            for each in tree
            if isinstance(each, RepoFile)
        }
    return Remote(repo, commit, online, files)


def split_name(name: str) -> tuple[str, str]:
    """``user/repo/sub/folder@revision`` as (``user/repo@revision``, ``sub/folder``).

    >>> split_name("user/repo/collapse/a-T128@main")
    ('user/repo@main', 'collapse/a-T128')
    """
    path, revision = split_revision(name)
    parts = path.split("/")
    return "/".join(parts[:2]) + (f"@{revision}" if revision else ""), "/".join(parts[2:])


def open_store(name: str) -> Store:
    """The store that a name on the Hub stands for: a repository with one store, or a store's folder in it.

    Raises:
        UsageError: It names no repository; or the repository has no store, or several and the name does not say which.
        StoreError: The store is not whole.
        CollapseError: It cannot be had.
    """
    repo, folder = split_name(name)
    if not is_repo_id(repo.partition("@")[0]) or "/" not in repo:
        raise UsageError(f"there is no store {name}: give a folder, or user/repo on the Hub")
    remote = reach(repo)
    stores = remote.stores()
    matching = [each for each in stores if folder in ("", each, each.removeprefix(f"{FOLDER}/"))]
    if len(matching) == 1:
        return remote.open(matching[0])
    listed = ", ".join(f"{remote.repo}/{each}" for each in stores)
    if not matching:
        raise UsageError(
            f"{remote.repo} has no store{f' {folder}' if folder else ''}{f'; it has {listed}' if stores else ''}"
        )
    raise UsageError(f"{remote.repo} has several stores: name one of {listed}")


def find_store(
    name: str,
    *,
    corpus: Mapping[str, Any] | None = None,
    validation: Mapping[str, Any] | None = None,
    chunk_length: int | None = None,
    max_chunks: int | None = None,
) -> Store | None:
    """The store that a name on the Hub stands for, or that the repository of the model it names carries; or None.

    Args:
        name: ``user/repo``, ``user/repo/folder``, with ``@revision`` if need be.
        corpus, validation: Identities of the texts wanted of a model's stores; None for any.
        chunk_length, max_chunks: Wanted; None for any, whole texts before shares of them.

    Raises:
        UsageError: The name is of a repository of stores, and does not say which.
        StoreError: A store is there, but not whole.
    """
    repo, folder = split_name(name)
    if not is_repo_id(repo.partition("@")[0]) or "/" not in repo:
        return None
    if folder:
        return open_store(name)
    try:
        remote = reach(repo)
    except CollapseError:
        return None  # it will be looked for as a model, and told then
    if remote.online and "config.json" not in remote.files and remote.stores():
        return open_store(name)
    found = []
    for each in remote.stores():
        store = remote.open(each)
        identity = store.identity
        fits = corpus in (None, identity["corpus"]) and validation in (None, identity["validation"])
        fits &= chunk_length in (None, identity.get("chunk_length"))
        fits &= max_chunks in (None, identity.get("max_chunks"))
        if fits and _same_weights(remote, str(identity.get("weights"))):
            found.append(store)
    found.sort(key=lambda store: store.identity.get("max_chunks") is not None)
    return found[0] if found else None


def _same_weights(remote: Remote, weights: str) -> bool:
    """Whether a store's weights are those of the repository at this commit."""
    if weights == f"commit:{remote.commit}" or not remote.online:
        return True
    if weights.startswith("commit:"):  # the store's own commit came after the one that it was collected from
        try:
            before = reach(f"{remote.repo}@{weights.removeprefix('commit:')}")
        except CollapseError:
            return False
        return _model_files(before) == _model_files(remote)
    return weights == remote.weights()


def _model_files(remote: Remote) -> dict[str, str]:
    kept = re.compile(r"[^/]+\.(safetensors|bin)|config\.json")
    return {path: identifier for path, (_, identifier) in remote.files.items() if kept.fullmatch(path)}


def folder_of(store: Store) -> str:
    """Where a store lies in a repository: ``collapse/<corpus>-<split>-T<chunk>[-<n>]``."""
    identity = store.identity
    corpus = identity.get("corpus") or {}
    words = [store.corpus.split("/")[-1], corpus.get("split") or "", f"T{identity.get('chunk_length')}"]
    if identity.get("max_chunks"):
        words.append(str(identity["max_chunks"]))
    return f"{FOLDER}/" + re.sub(r"[^A-Za-z0-9._-]+", "-", "-".join(word for word in words if word)).strip("-.")


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
        repo: ``user/repo``; made where it is not there.
        private: Make it private.
        create_pr: Propose the commit as a pull request.
        into_model_repo: The repository is the model's: its card is left alone.
        revision: Branch to commit to.
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
    folder = folder_of(store)
    content = files_of(store, folder)
    if not into_model_repo:
        create_repo(repo, private=private)
        content["README.md"] = card(store, repo, folder).encode()
    message = f"Add {folder}: {store.model} on {store.corpus}"
    url, sent = commit_files(repo, content, message, revision=revision, create_pr=create_pr, progress=progress)
    return Pushed(repo, folder, url, sent, sorted(set(content) - set(sent)))


def files_of(store: Store, folder: str) -> dict[str, Path | bytes]:
    """What goes into a repository for a store on disk, checked: its files, its manifest, what was measured."""
    store.check()
    assert store.path is not None  # a store in memory has no files
    content: dict[str, Path | bytes] = {f"{folder}/{name}": store.path / name for name in store.manifest["files"]}
    content[f"{folder}/{MANIFEST}"] = store.path / MANIFEST
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
    progress: Report | None = None,
) -> tuple[str | None, list[str]]:
    """Put files into a repository in one commit, those that are not there as they are; raises as :func:`push`.

    Returns:
        The address of the commit or pull request, None where nothing had changed; and the paths sent.
    """
    from huggingface_hub import CommitOperationAdd, HfApi, errors

    api = HfApi()
    with _told(repo):
        remote = reach(f"{repo}@{revision}" if revision else repo)
        changed = {path: what for path, what in content.items() if not remote.holds(path, what)}
        if not changed:
            return None, []
        operations = [CommitOperationAdd(path, what) for path, what in changed.items()]
        _send(api, repo, operations, revision, create_pr, progress)
        commit = partial(
            api.create_commit,
            repo,
            operations,
            commit_message=message,
            revision=revision,
            create_pr=create_pr,
            parent_commit=None if create_pr else remote.commit,
        )
        try:
            made = steadily(commit)
        except errors.HfHubHTTPError as error:
            now = reach(f"{repo}@{revision}" if revision else repo)
            arrived = now.commit != remote.commit and all(now.holds(path, what) for path, what in content.items())
            if error.response.status_code != _PARENT_MOVED or not arrived:
                raise
            return f"{api.endpoint}/{repo}/commit/{now.commit}", sorted(changed)  # only the answer had been lost
    return made.pr_url or made.commit_url, sorted(changed)


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
    except (errors.HfHubHTTPError, errors.HTTPError, OSError, RuntimeError, ValueError) as error:
        status = getattr(getattr(error, "response", None), "status_code", 0)
        hint = " (log in with: hf auth login)" if status in (401, 403) else ""
        raise CollapseError(
            f"{repo}: {what}: {_first_line(error)}{hint}. Run the same command again: what was sent "
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
        CollapseError: It cannot be had.
    """
    folder = Path(folder)
    remote = open_store(name)
    if (folder / MANIFEST).is_file():
        have = Store.load(folder)
        if have.digest != remote.digest:
            raise StoreError(f"{folder} holds another store ({have.digest[:12]}…): choose another --store")
        return have.check()
    done = 0
    for file, entry in remote.manifest["files"].items():
        if progress:
            progress(f"pulling {name}", done, remote.size)
        remote.fetch(file)
        done += entry["size"]
    if progress:
        progress(f"pulling {name}", done, remote.size)
    return remote.save(folder)


def _cached_files(repo: str, commit: str) -> list[str]:
    from huggingface_hub import constants

    snapshot = Path(constants.HF_HUB_CACHE) / f"models--{repo.replace('/', '--')}" / "snapshots" / commit
    return [file.relative_to(snapshot).as_posix() for file in snapshot.rglob(MANIFEST)]


def _first_line(error: BaseException) -> str:
    text = str(error).strip().split("\n")[0]
    return text or type(error).__name__
