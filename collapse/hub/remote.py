"""A repository on the Hub at a commit: its files and stores.

A commit never changes, so its listing is cached, and files are compared offline, too.
"""

import hashlib
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path, PurePosixPath
from typing import Any

from collapse.core.reading import read_json
from collapse.core.settings import quiet
from collapse.errors import CollapseError, StoreError
from collapse.hub.requests import (
    clear_errors,
    how_to_fetch,
    quiet_client,
    repo_cache,
    resolve_commit,
    split_revision,
    steadily,
)
from collapse.stores.files import canonical, home, sha256_file, sha256_of
from collapse.stores.manifest import LAYER, MANIFEST, read_manifest
from collapse.stores.store import Store
from collapse.stores.tensor_files import check_file
from collapse.stores.writing import write_atomic

FOLDER = "collapse"
"""Folder of the stores in a model's repository."""
_SHA256 = 64  # digits; a git id has 40


@dataclass(frozen=True)
class Remote:
    """A repository at a commit.

    Attributes:
        repo: Its id.
        commit: The sha.
        online: Whether the Hub answered; else only cached files are available.
    """

    repo: str
    commit: str
    online: bool

    @cached_property
    def files(self) -> Mapping[str, tuple[int, str]]:
        """Path → (size, sha256 of an LFS file or git id of another), from the Hub or as it was listed before.

        Offline, a commit that was never listed has the files that are in the client's cache, with no hashes.

        Raises:
            CollapseError: The Hub does not answer.
        """
        listing = home() / "listings" / f"{sha256_of([self.repo, self.commit])}.json"
        if listing.is_file():
            return {path: (int(size), str(identifier)) for path, (size, identifier) in read_json(listing).items()}
        if not self.online:
            there = self._snapshot.rglob("*")
            return {
                each.relative_to(self._snapshot).as_posix(): (each.stat().st_size, "")
                for each in there
                if each.is_file()
            }
        files = self._listed()
        with suppress(CollapseError):  # an unwritable cache is not an error
            write_atomic(listing, canonical(files), shared=True)
        return files

    @property
    def _snapshot(self) -> Path:
        return repo_cache(self.repo) / "snapshots" / self.commit

    def _listed(self) -> dict[str, tuple[int, str]]:
        from huggingface_hub import HfApi
        from huggingface_hub.hf_api import RepoFile

        with clear_errors(f"{self.repo}: its files cannot be listed"):
            tree = steadily(lambda: list(HfApi().list_repo_tree(self.repo, recursive=True, revision=self.commit)))
        return {
            each.path: (each.size, each.lfs.sha256 if each.lfs else each.blob_id)
            for each in tree
            if isinstance(each, RepoFile)
        }

    @property
    def name(self) -> str:
        """The repository."""
        return self.repo

    @property
    def remedy(self) -> str:
        """What to do about a missing file, which may exist but not be cached."""
        return "" if self.online else f". {how_to_fetch(self.repo, self.commit)}"

    def listed(self) -> list[str]:
        """Return the names of all files."""
        return sorted(self.files)

    def within(self, folder: str) -> list[str]:
        """Return the names of the files in a folder ("" is the top), without those in its folders."""
        place = PurePosixPath(folder)
        return [name for name in self.listed() if PurePosixPath(name).parent == place]

    def has(self, name: str) -> bool:
        """Whether the repository has a file of this name."""
        return name in self.files

    def stores(self) -> list[str]:
        """Return the folders of the stores in the repository; offline, of those whose manifests are cached."""
        paths = self.files if self.online else [path for path in self.files if (self._snapshot / path).is_file()]
        return sorted(str(PurePosixPath(path).parent) for path in paths if PurePosixPath(path).name == MANIFEST)

    def is_model(self) -> bool:
        """Whether the repository holds weights or a configuration outside its stores."""
        # a store at the root has its tensors in the folder of its layer, and no other file of a model
        inside = tuple(f"{LAYER}/" if folder == "." else f"{folder}/" for folder in self.stores())
        outside = [path for path in self.files if not path.startswith(inside)]
        return any(path.endswith((".safetensors", ".gguf", ".bin", "config.json")) for path in outside)

    def fetch(self, path: str, *, force: bool = False) -> Path:
        """Return a file in the client's cache, downloading it if necessary, or in any case with ``force``.

        Raises:
            CollapseError: The file is not available.
        """
        from huggingface_hub import errors, hf_hub_download

        given: dict[str, Any] = {"revision": self.commit, "local_files_only": not self.online, "force_download": force}
        with clear_errors(f"{self.repo}: {path} cannot be downloaded"), quiet_client():
            try:
                return Path(steadily(lambda: hf_hub_download(self.repo, path, **given)))
            except errors.LocalEntryNotFoundError as error:
                if self.online:
                    raise
                raise CollapseError(
                    f"{self.repo}: {path} is not cached. {how_to_fetch(self.repo, self.commit)}"
                ) from error

    def fetch_checked(self, path: str, check: Callable[[Path], object]) -> Path:
        """Fetch a file and check it; if the check fails, download it once more.

        Raises:
            StoreError: The check failed twice, or there is no network.
            CollapseError: The file is not available.
        """
        got = self.fetch(path)
        try:
            check(got)
        except StoreError:
            if not self.online:
                raise
            got = self.fetch(path, force=True)
            try:
                check(got)
            except StoreError as error:
                raise StoreError(
                    f"{self.repo}: {path} is damaged on the Hub: {error}; ask its owner to push it again"
                ) from error
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
            StoreError: Its manifest is altered.
            CollapseError: The manifest is not available.
        """
        at, manifest = self.manifest(folder)

        def fetch(name: str) -> None:
            entry = manifest["files"][name]
            self.fetch_checked(f"{_inside(folder)}{name}", lambda path: check_file(path, entry))

        return Store(manifest, at, fetch=fetch, origin=f"{self.repo}/{folder}@{self.commit}")

    def holds(self, path: str, what: Path | bytes) -> bool:
        """Whether the repository has a file with this content."""
        size, identifier = self.files.get(path, (None, ""))
        if size != (len(what) if isinstance(what, bytes) else what.stat().st_size):
            return False
        if len(identifier) == _SHA256 and isinstance(what, Path):
            return identifier == sha256_file(what)
        data = what if isinstance(what, bytes) else what.read_bytes()
        git = hashlib.sha1(b"blob %d\0" % len(data) + data).hexdigest()
        return identifier in (git, hashlib.sha256(data).hexdigest())

    def sha256(self, path: str) -> str:
        """Return a file's sha256, from the listing or of the file, which is then fetched; raises as :meth:`fetch`."""
        identifier = self.files[path][1]
        return identifier if len(identifier) == _SHA256 else sha256_file(self.fetch(path))


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
    with clear_errors(f"{repo_type} {repo} is not available", advice), quiet_client(), quiet("huggingface_hub"):
        folder = steadily(lambda: snapshot_download(repo, **at, **allowed))
        try:
            return Path(folder), [file.path for file in get_cached_repo_tree(repo, **at)]
        except errors.CachedRepoTreeNotFoundError as error:  # somebody downloaded single files
            raise CollapseError(f"{repo_type} {repo} is only partly cached{advice}") from error


def reach(name: str, *, patient: bool = False) -> Remote:
    """Find a repository by its name, ``user/repo`` or ``user/repo@revision``; offline, in the cache.

    Args:
        name: The name.
        patient: Use all tries even if the repository is cached.

    Raises:
        UsageError: There is no such repository or revision.
        CollapseError: The Hub cannot be reached, and nothing is cached.
    """
    repo, revision = split_revision(name)
    return Remote(repo, *resolve_commit(repo, revision, patient=patient))


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
