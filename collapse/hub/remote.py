"""A repository on the Hub at a commit: its files, downloaded and checked.

The client does not check the hash of a download. This module checks every file against the repository's listing, every
file of a store against its manifest, and every manifest against its own checksum. A commit never changes, so listings
are cached: files can be compared offline, too.
"""

import hashlib
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

from collapse.errors import CollapseError, StoreError, first_line
from collapse.hub.client import clear_errors, client_errors
from collapse.hub.requests import (
    how_to_fetch,
    hub_cache,
    list_files,
    quiet_client,
    repo_cache,
    resolve_commit,
    split_revision,
    steadily,
)
from collapse.reading import read_json
from collapse.scoped import quiet
from collapse.stores.files import canonical, home, sha256_file, sha256_of
from collapse.stores.manifest import LAYER, MANIFEST, read_manifest
from collapse.stores.store import Store
from collapse.stores.tensor_files import check_file
from collapse.stores.writing import ANOTHER_CACHE, raise_if_full, write_atomic

FOLDER = "collapse"
"""Folder of the stores in a model's repository."""
_SHA256 = 64  # digits; a git id has 40


class NotListed(CollapseError):
    """A repository has a commit, but its files cannot be listed."""


@dataclass(frozen=True)
class Remote:
    """A repository at a commit.

    Attributes:
        repo: Its id.
        commit: The sha.
        online: Whether the Hub answered; else only cached files are available.
        files: Path → (size, sha256 of an LFS file or git id of another file); empty if the Hub did not answer and no
            listing of this commit is cached.
    """

    repo: str
    commit: str
    online: bool
    files: Mapping[str, tuple[int, str]]

    def stores(self) -> list[str]:
        """Return the folders of the stores in the repository."""
        paths = self.files if self.online else list_files(self.repo, self.commit, online=False)
        return sorted(str(PurePosixPath(path).parent) for path in paths if PurePosixPath(path).name == MANIFEST)

    def is_model(self) -> bool:
        """Whether the repository holds weights or a configuration outside its stores."""
        stores = self.stores()
        paths = self.files or list_files(self.repo, self.commit, online=self.online)
        # a store at the root has its tensors in the folder of its layer, and no other file of a model
        inside = tuple(f"{LAYER}/" if folder == "." else f"{folder}/" for folder in stores)
        outside = [path for path in paths if not path.startswith(inside)]
        return any(path.endswith((".safetensors", ".gguf", ".bin", "config.json")) for path in outside)

    def fetch(self, path: str, *, force: bool = False) -> Path:
        """Return a file in the client's cache, downloading it if necessary.

        Raises:
            CollapseError: The file is not available.
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
                f"{self.repo}: {path} is not in the cache, and the Hub cannot be reached: {first_line(error)}"
            ) from error
        except errors.EntryNotFoundError as error:
            raise CollapseError(f"{self.repo} has no {path} at {self.commit[:12]}") from error
        except client_errors() as error:
            raise_if_full(error, hub_cache(), ANOTHER_CACHE)
            raise CollapseError(f"{self.repo}: {path} cannot be downloaded: {first_line(error)}") from error
        places = [place.resolve() for place in (hub_cache(), repo_cache(self.repo), repo_cache(self.repo) / "blobs")]
        if not any(place in Path(got).resolve().parents for place in places):
            raise StoreError(f"{self.repo}: {path} is a link out of the client's cache ({got}): delete it")
        return Path(got)

    def fetch_listed(self, path: str) -> Path:
        """Fetch a file and check it against the repository's listing; raises as :meth:`fetch_checked`."""

        def check(got: Path) -> None:
            if self.files and not self.holds(path, got):
                raise StoreError(f"{got} is not the file that the repository lists")

        return self.fetch_checked(path, check)

    def fetch_checked(self, path: str, check: Callable[[Path], object]) -> Path:
        """Fetch a file and check it; if the check fails, remove it from the cache and download it once more.

        Raises:
            StoreError: The check failed twice.
            CollapseError: The file is not available.
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

    def manifest(self, folder: str) -> tuple[Path, dict[str, Any]]:
        """Return the folder of a store's manifest in the client's cache, and its content.

        Raises:
            StoreError: The manifest is altered, or of a newer version.
            CollapseError: The manifest is not available.
        """
        path = f"{_inside(folder)}{MANIFEST}"
        at = self.fetch_checked(path, lambda got: read_manifest(got.parent)).parent
        return at, read_manifest(at)

    def open(self, folder: str) -> Store:
        """Open the store in a folder; its files are fetched and checked when they are read.

        Raises:
            StoreError: Its manifest is altered, or does not match the files that the repository lists.
            CollapseError: The manifest is not available.
        """
        inside = _inside(folder)
        at, manifest = self.manifest(folder)
        for name, entry in manifest["files"].items():
            size, identifier = self.files.get(f"{inside}{name}", (None, ""))
            found = "is not there" if size is None else f"has {size:,} bytes"
            if size == entry["size"] and len(identifier) == _SHA256:
                found, size = f"has the sha256 {identifier[:12]}…", None if identifier != entry["sha256"] else size
            if self.files and size != entry["size"]:
                raise StoreError(
                    f"{self.repo}: {inside}{name} {found} where the manifest says {entry['size']:,} bytes of "
                    f"{entry['sha256'][:12]}…: the store is not whole; ask its owner to push it again"
                )

        def fetch(name: str) -> None:
            self.fetch_checked(f"{inside}{name}", lambda path: check_file(path, manifest["files"][name]))

        return Store(manifest, at, fetch=fetch, origin=f"{self.repo}/{folder}@{self.commit}")

    @staticmethod
    def _forget(path: Path) -> None:
        """Remove a damaged file from the client's cache."""
        if path.is_symlink():
            path.resolve().unlink(missing_ok=True)
        path.unlink(missing_ok=True)

    def holds(self, path: str, what: Path | bytes) -> bool:
        """Whether the repository has a file with this content."""
        if path not in self.files:
            return False
        size, identifier = self.files[path]
        if size != (len(what) if isinstance(what, bytes) else what.stat().st_size):
            return False
        if len(identifier) == _SHA256 and isinstance(what, Path):
            return identifier == sha256_file(what)
        data = what if isinstance(what, bytes) else what.read_bytes()
        git = hashlib.sha1(b"blob %d\0" % size + data).hexdigest()
        return identifier in (git, hashlib.sha256(data).hexdigest())

    def sha256(self, path: str) -> str:
        """Return a file's sha256, from the listing or by fetching the file; raises as :meth:`fetch_checked`."""
        identifier = self.files.get(path, (0, ""))[1]
        return identifier if len(identifier) == _SHA256 else sha256_file(self.fetch_listed(path))


def fetch_snapshot(
    repo: str, commit: str, repo_type: str, names: Sequence[str], *, online: bool
) -> tuple[Path, list[str]]:
    """Return the folder of a repository at a commit in the client's cache, and the names of all its files on the Hub.

    Args:
        repo: The repo id.
        commit: The sha.
        repo_type: "model" or "dataset".
        names: Names or patterns of the files that the folder must hold.
        online: Whether they may be downloaded.

    Raises:
        CollapseError: Files are neither cached nor can be downloaded, or the names of all files are unknown.
    """
    from huggingface_hub import errors, get_cached_repo_tree, snapshot_download

    at: dict[str, Any] = {"repo_type": repo_type, "revision": commit}
    allowed: dict[str, Any] = {"allow_patterns": [*names], "local_files_only": not online}
    advice = f". {how_to_fetch(repo, commit, repo_type)}"
    try:
        with clear_errors(f"{repo_type} {repo} is not available", advice), quiet_client(), quiet("huggingface_hub"):
            folder = steadily(lambda: snapshot_download(repo, **at, **allowed))
            return Path(folder), [file.path for file in get_cached_repo_tree(repo, **at)]
    except errors.CachedRepoTreeNotFoundError as error:  # somebody downloaded single files
        raise CollapseError(f"{repo_type} {repo} is only partly cached{advice}") from error
    except CollapseError as error:
        raise_if_full(error, hub_cache(), ANOTHER_CACHE)
        raise


def reach(name: str, *, patient: bool = False) -> Remote:
    """Find a repository by its name, ``user/repo`` or ``user/repo@revision``; offline, in the cache.

    Args:
        name: The name.
        patient: Use all tries even if the repository is cached.

    Raises:
        UsageError: There is no such repository or revision.
        NotListed: The Hub names its commit, but not its files.
        CollapseError: The Hub cannot be reached, and nothing is cached.
    """
    repo, revision = split_revision(name)
    commit, online = resolve_commit(repo, revision, patient=patient)
    if not online:
        return Remote(repo, commit, online, _remembered(repo, commit))
    files = _listed(repo, commit)
    with suppress(CollapseError):  # an unwritable cache is not an error
        write_atomic(_listing(repo, commit), canonical(files), shared=True)
    return Remote(repo, commit, online, files)


def _listed(repo: str, commit: str) -> dict[str, tuple[int, str]]:
    from huggingface_hub import HfApi
    from huggingface_hub.hf_api import RepoFile

    try:
        with clear_errors(f"{repo}: its files cannot be listed"):
            tree = steadily(lambda: list(HfApi().list_repo_tree(repo, recursive=True, revision=commit)))
    except CollapseError as error:
        raise NotListed(str(error)) from error
    return {
        each.path: (each.size, each.lfs.sha256 if each.lfs else each.blob_id)
        for each in tree
        if isinstance(each, RepoFile)
    }


def _remembered(repo: str, commit: str) -> dict[str, tuple[int, str]]:
    with suppress(OSError, ValueError, TypeError, AttributeError, RecursionError):
        kept = read_json(_listing(repo, commit))
        return {str(path): (int(size), str(identifier)) for path, (size, identifier) in kept.items()}
    return {}


def _listing(repo: str, commit: str) -> Path:
    return home() / "listings" / f"{sha256_of([repo, commit])}.json"


def _inside(folder: str) -> str:
    return "" if folder in ("", ".") else f"{folder}/"


def split_name(name: str) -> tuple[str, str]:
    """Split ``user/repo/sub/folder@revision`` into (``user/repo@revision``, ``sub/folder``).

    >>> split_name("user/repo/collapse/a-T128@main")
    ('user/repo@main', 'collapse/a-T128')
    """
    path, revision = split_revision(name)
    parts = path.split("/")
    return "/".join(parts[:2]) + (f"@{revision}" if revision else ""), "/".join(parts[2:])
