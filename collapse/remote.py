"""A repository on the Hub at a commit: what it holds, and its files, downloaded and checked.

The client checks no download's hash; here every file of a store must be what its manifest says, and a manifest what
its own checksum says.
"""

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from collapse.errors import CollapseError, StoreError, first_line
from collapse.files import ANOTHER_CACHE, check_file, raise_if_full, sha256_file, sha256_of
from collapse.hub import hub_cache, list_files, quiet_client, remember_commit, resolve_commit, split_revision, steadily
from collapse.manifest import MANIFEST, MANIFEST_LIMIT, read_manifest
from collapse.store import Store

FOLDER = "collapse"
"""Where stores lie in a model's repository."""


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
        paths = self.files if self.online else list_files(self.repo, self.commit, online=False)
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
                f"{self.repo}: {path} is not in the cache, and the Hub is not to be reached: {first_line(error)}"
            ) from error
        except errors.EntryNotFoundError as error:
            raise CollapseError(f"{self.repo} has no {path} at {self.commit[:12]}") from error
        except (errors.HfHubHTTPError, errors.HTTPError, OSError, RuntimeError, ValueError) as error:
            raise_if_full(error, hub_cache(), ANOTHER_CACHE)
            raise CollapseError(f"{self.repo}: {path} cannot be downloaded: {first_line(error)}") from error
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


def reach(name: str, *, patient: bool = False) -> Remote:
    """A repository by its name, ``user/repo`` or ``user/repo@revision``; offline, from the cache.

    Args:
        name: The name.
        patient: Wait for a Hub that does not answer even where something of it is cached.

    Raises:
        UsageError: There is no such repository or revision.
        CollapseError: It cannot be reached, and nothing is cached.
    """
    from huggingface_hub import HfApi, errors
    from huggingface_hub.hf_api import RepoFile

    repo, revision = split_revision(name)
    commit, online = resolve_commit(repo, revision, patient=patient)
    files: dict[str, tuple[int, str]] = {}
    if online:
        remember_commit(repo, revision, commit)
        try:
            tree = steadily(lambda: list(HfApi().list_repo_tree(repo, recursive=True, revision=commit)))
        except (errors.HfHubHTTPError, errors.HTTPError, OSError, RuntimeError) as error:
            raise CollapseError(
                f"{repo}: its files cannot be listed: {first_line(error)} (is your login still good? hf auth whoami)"
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
