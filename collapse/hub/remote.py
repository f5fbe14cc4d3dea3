"""A repository on the Hub at a commit: its files and stores.

A commit never changes. So its list of files and their hashes is cached, and can be used offline.
"""

import logging
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path, PurePosixPath
from typing import Any

from collapse.core.paths import home
from collapse.core.progress import Report
from collapse.core.reading import read_json
from collapse.core.settings import bytes_reported, quiet
from collapse.errors import CollapseError, StoreError, UsageError, first_line
from collapse.hub.client import clear_errors, client_errors, how_to_fetch, hub_cache, split_revision
from collapse.stores.files import canonical, sha256_file, sha256_of
from collapse.stores.manifest import MANIFEST, read_manifest
from collapse.stores.store import Store
from collapse.stores.tensor_files import check_file
from collapse.stores.writing import write_atomic

_TIMEOUT = 10.0  # seconds

log = logging.getLogger("collapse")


@dataclass(frozen=True)
class Remote:
    """A repository at a commit.

    Attributes:
        name: The repository's id.
        commit: The commit's sha.
        online: Whether the Hub answered; if not, only cached files are available.
        kind: "model" or "dataset".
    """

    name: str
    commit: str
    online: bool = True
    kind: str = "model"

    @cached_property
    def files(self) -> Mapping[str, str]:
        """A mapping from each file's path in the repository to its sha256, or to "" if the sha256 is unknown.

        The Hub lists a sha256 only for large files. Offline and without a cached list, each sha256 is "", and the
        mapping may lack files of a model that are not in the client's cache.

        Raises:
            CollapseError: The Hub does not answer, or only some files of a data set are cached.
        """
        listing = home() / "listings" / f"{sha256_of([self.kind, self.name, self.commit])}.json"
        if listing.is_file():
            return dict(read_json(listing))
        if not self.online:
            return dict.fromkeys(self._cached_files(), "")
        from huggingface_hub import HfApi
        from huggingface_hub.hf_api import RepoFile

        with clear_errors(f"{self.name}: its files cannot be listed"):
            tree = list(HfApi().list_repo_tree(self.name, recursive=True, **self._at))
        files = {each.path: each.lfs.sha256 if each.lfs else "" for each in tree if isinstance(each, RepoFile)}
        with suppress(CollapseError):  # an unwritable cache is not an error
            write_atomic(listing, canonical(files), shared=True)
        return files

    def _cached_files(self) -> list[str]:
        """Return the paths of all files, from the list that ``hf download`` cached.

        Without this list, return only the cached files of a model, and raise CollapseError for a data set.
        """
        from huggingface_hub import errors, get_cached_repo_tree

        try:
            return [each.path for each in get_cached_repo_tree(self.name, **self._at)]
        except errors.CachedRepoTreeNotFoundError as error:
            if self.kind == "dataset":
                raise CollapseError(f"dataset {self.name} is only partly cached{self.remedy}") from error
            return [each.relative_to(self.folder).as_posix() for each in self.folder.rglob("*") if each.is_file()]

    @property
    def folder(self) -> Path:
        """The folder of this commit in the client's cache."""
        return hub_cache() / f"{self.kind}s--{self.name.replace('/', '--')}" / "snapshots" / self.commit

    @property
    def remedy(self) -> str:
        """The end of messages about a missing file: offline, how to download the repository; online, ""."""
        return "" if self.online else f". {how_to_fetch(self.name, self.commit, self.kind)}"

    def listed(self) -> list[str]:
        """Return the paths of all files in the repository, sorted; raises the exceptions of :attr:`files`."""
        return sorted(self.files)

    def within(self, folder: str) -> list[str]:
        """Return the paths of the files in a folder ("" is the top folder), without those in subfolders."""
        place = PurePosixPath(folder)
        return [name for name in self.listed() if PurePosixPath(name).parent == place]

    def has(self, name: str) -> bool:
        """Whether the repository has a file with this path."""
        return (self.folder / name).is_file() or name in self.files

    def sha256(self, path: str) -> str:
        """Return the sha256 of a file that exists, from :attr:`files`.

        If the sha256 is unknown, download the file and hash it; raises the exceptions of :meth:`fetch`.
        """
        return self.files[path] or sha256_file(self.fetch(path))

    def fetch(self, path: str, report: Report | None = None) -> Path:
        """Download a file if it is not cached; return its path in the client's cache.

        Args:
            path: The file's path in the repository.
            report: Called as report(what, bytes done, total bytes, note) during the download.

        Raises:
            CollapseError: The file is not available.
        """
        from huggingface_hub import hf_hub_download

        if not self.online and not (self.folder / path).is_file():
            raise CollapseError(f"{self.name}: {path} is not cached{self.remedy}")
        with clear_errors(f"{self.name}: {path} cannot be downloaded"):
            bar = bytes_reported(f"downloading {self.name}", report)
            found = hf_hub_download(self.name, path, **self._at, local_files_only=not self.online, tqdm_class=bar)
        return Path(found)

    @property
    def _at(self) -> dict[str, Any]:
        return {"repo_type": self.kind, "revision": self.commit}

    def download(self, patterns: Sequence[str], *, bars: bool = False, report: Report | None = None) -> Path:
        """Download all files that match patterns, several at a time; return the folder of this commit in the cache.

        Args:
            patterns: Paths in the repository, with the wildcards of a shell ([, * and ?).
            bars: Show the client's progress bars if stderr is a terminal.
            report: Called as report(what, bytes done, total bytes, note) during the download.

        Raises:
            CollapseError: A file is not available.
        """
        from huggingface_hub import snapshot_download

        how: dict[str, Any] = {"allow_patterns": [*patterns], "local_files_only": not self.online}
        how["tqdm_class"] = bytes_reported(f"downloading {self.name}", report)
        with clear_errors(f"{self.kind} {self.name} is not available", self.remedy, bars=bars):
            return Path(snapshot_download(self.name, **self._at, **how))

    def revisions(self) -> list[str]:
        """Return the names of the branches and tags; offline, only those in the client's cache.

        Raises:
            CollapseError: The Hub does not answer.
        """
        if not self.online:
            refs = self.folder.parents[1] / "refs"
            return sorted(each.relative_to(refs).as_posix() for each in refs.rglob("*") if each.is_file())
        from huggingface_hub import HfApi

        with clear_errors(f"{self.name}: its revisions cannot be listed"):
            found = HfApi().list_repo_refs(self.name, repo_type=self.kind)
        return sorted({each.name for each in (*found.branches, *found.tags)})

    def stores(self) -> list[str]:
        """Return the folders of the stores in the repository; offline, only stores with a cached manifest."""
        paths = [path for path in self.files if self.online or (self.folder / path).is_file()]
        return sorted(str(PurePosixPath(path).parent) for path in paths if PurePosixPath(path).name == MANIFEST)

    def is_model(self) -> bool:
        """Whether the repository holds a model in its top folder."""
        return any(name == "config.json" or name.endswith(".gguf") for name in self.within(""))

    def open(self, folder: str) -> Store:
        """Open the store in a folder of the repository; tensor files are downloaded and checked when they are read.

        Raises:
            StoreError: The manifest was altered, or has another format version.
            CollapseError: The manifest is not available.
        """
        manifest = read_manifest(self.fetch(str(PurePosixPath(folder, MANIFEST))).parent)
        fetch = partial(self._fetch_of_store, folder, manifest["files"])
        return Store(manifest, self.folder / folder, fetch=fetch, origin=f"{self.name}/{folder}@{self.commit}")

    def _fetch_of_store(self, folder: str, files: Mapping[str, Any], name: str) -> None:
        path = str(PurePosixPath(folder, name))
        try:
            check_file(self.fetch(path), files[name])
        except StoreError as error:
            raise StoreError(
                f"{self.name}: {path} is damaged: {str(error).rpartition('; ')[0]}; run hf download {self.name} {path} "
                f"--revision {self.commit} --force-download, or ask the owner to push the store again"
            ) from error


def reach(name: str, kind: str = "model") -> Remote:
    """Return a repository at the commit of a revision, from the Hub or, if it cannot be reached, from the cache.

    Args:
        name: ``user/repo`` or ``user/repo@revision``.
        kind: "model" or "dataset".

    Raises:
        UsageError: The Hub has no such repository or revision.
        CollapseError: The Hub cannot be reached, and nothing is cached.
    """
    from huggingface_hub import HfApi, constants, errors, snapshot_download

    repo, revision = split_revision(name)
    online, reason = not constants.HF_HUB_OFFLINE, "HF_HUB_OFFLINE=1 is set"
    at: dict[str, Any] = {"repo_type": kind, "revision": revision}
    try:
        if online:
            with quiet("huggingface_hub"):
                found = Remote(repo, str(HfApi().repo_info(repo, timeout=_TIMEOUT, **at).sha), True, kind)
            if revision != found.commit:
                with suppress(CollapseError):  # for later use offline; an unwritable cache is not an error
                    ref = found.folder.parents[1] / "refs" / (revision or "main")
                    write_atomic(ref, found.commit.encode(), shared=True)
            return found
    except errors.RevisionNotFoundError as error:
        raise UsageError(
            f"{kind} {repo} on the Hub has no revision {revision!r}: give a branch, tag or commit"
        ) from error
    except errors.RepositoryNotFoundError as error:
        raise UsageError(
            f"the Hub has no {kind} {repo}, or you have no access to it: check its name, or log in with: hf auth login"
        ) from error
    except client_errors() as error:
        reason = first_line(error)
    try:
        folder = snapshot_download(repo, allow_patterns=[], local_files_only=True, **at)
    except errors.LocalEntryNotFoundError as error:
        raise CollapseError(
            f"{kind} {repo} is not in the cache, and the Hub cannot be reached ({reason}). "
            f"{how_to_fetch(repo, revision, kind)}; or give local files"
        ) from error
    if online:
        log.warning("the Hub cannot be reached (%s): using the cached copy of %s", reason, repo)
    return Remote(repo, Path(folder).name, False, kind)
