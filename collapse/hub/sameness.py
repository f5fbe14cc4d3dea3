"""Compare the weights and tokenizer in a store's identity with those of a repository on the Hub, file by file.

A store identifies its weights by a commit or by the fingerprint of a local folder. Every push makes a new commit, even
the push that adds the store, and a folder may be published later. So this module compares files, not identifiers.
"""

import re
from collections.abc import Callable, Mapping
from fnmatch import fnmatchcase
from pathlib import PurePosixPath
from typing import Any

from collapse.errors import CollapseError, UsageError
from collapse.hub.fingerprints import TOKENIZER, hashed_name
from collapse.hub.remote import Remote, reach
from collapse.reading import read_json
from collapse.stores.files import sha256_of

_WEIGHTS = (".safetensors", ".bin", ".pt", ".pth", ".gguf", ".index.json")
_PICKLED = (".bin", ".pt", ".pth")
_CONFIGURATION = ("config.json", "adapter_config.json")
_COMMIT = re.compile(r"commit:(?:(?P<repo>.+):)?(?P<commit>[0-9a-f]{40})")
_CHANGES_FILES = ("subfolder", "variant", "use_safetensors", "transformers_weights")

Files = Mapping[str, str]
"""Path → hash of the content."""


class Comparison:
    """Compare the weights and tokenizers of stores with the requested ones.

    Args:
        model: The model's repository.
        asked: Identity of the requested collection.
    """

    def __init__(self, model: Remote, asked: Mapping[str, Any]) -> None:
        self._repo, self._asked = model.repo, asked
        self._arguments: Mapping[str, Any] = asked.get("model_args") or {}
        self._reached = {f"{model.repo}@{model.commit}": model}

    def differences(self, held: Mapping[str, Any]) -> list[str]:
        """Describe whether weights or tokenizer differ from those in a store's identity.

        Raises:
            CollapseError: The comparison needs the Hub, which cannot be reached.
        """
        found = []
        for name, files, fingerprint in (
            ("weights", _weight_files, self._weights),
            ("tokenizer", _tokenizer_files, self._tokenizer),
        ):
            if not self._same(str(held.get(name)), str(self._asked.get(name)), files, fingerprint):
                found.append(f"{name}: {held.get(name)} and {self._asked.get(name)}")
        return found

    def _same(
        self, held: str, asked: str, files: Callable[[Remote], Files], fingerprint: Callable[[Remote], str | None]
    ) -> bool:
        if held == asked:
            return True
        one, other = _COMMIT.fullmatch(held), _COMMIT.fullmatch(asked)
        try:
            if one and other and one["commit"] == other["commit"]:
                return True  # the same files, whatever the repository is called
            if one and other:
                mine, theirs = files(self._reach(one)), files(self._reach(other))
                return bool(mine or files is not _weight_files) and mine == theirs
            if one or other:
                return fingerprint(self._reach(one or other)) == (asked if one else held)
        except UsageError:
            pass  # the repository or commit does not exist, so they differ
        return False

    def _reach(self, commit: re.Match[str] | None) -> Remote:
        assert commit is not None  # _same() checks it
        name = f"{commit['repo'] or self._repo}@{commit['commit']}"
        if name not in self._reached:
            self._reached[name] = reach(name)
        if not self._reached[name].files:
            raise CollapseError(f"without the Hub it is not known which files {name} has")
        return self._reached[name]

    def _weights(self, remote: Remote) -> str | None:
        """Fingerprint of the weights, computed as for a local folder; None if a folder's would not be comparable."""
        gguf_file = self._arguments.get("gguf_file")
        names = [path for path in remote.files if "/" not in path]
        if any(name in self._arguments for name in _CHANGES_FILES) or any(
            path.endswith(".py") for path in remote.files
        ):
            return None
        if gguf_file:
            return _fingerprint(remote, [str(gguf_file)]) if gguf_file in names else None
        safe = [name for name in names if name.endswith(".safetensors")]
        if "config.json" not in names or "adapter_config.json" in names:
            return None
        if safe and not _is_all_that_is_read(remote, safe):
            return None
        files = safe or [name for name in names if name.endswith(_PICKLED)]
        return _fingerprint(remote, [*files, "config.json"]) if files else None

    def _tokenizer(self, remote: Remote) -> str | None:
        """Fingerprint of the tokenizer, computed as for a local folder."""
        if "subfolder" in self._arguments:
            return None
        names = [path for path in remote.files if "/" not in path and _is_tokenizer(PurePosixPath(path))]
        if remote.repo != self._repo and "config.json" in remote.files:  # the model's own is hashed with the weights
            names.append("config.json")
        gguf_file = self._arguments.get("gguf_file")
        if gguf_file:
            names = [*names, str(gguf_file)]
        return _fingerprint(remote, names) if set(names) <= set(remote.files) else None


def _weight_files(remote: Remote) -> Files:
    """Return weights, configuration and code of all folders: an index or an argument may name any of them."""
    return _chosen(
        remote, lambda path: path.suffix == ".py" or path.name.endswith(_WEIGHTS) or path.name in _CONFIGURATION
    )


def _tokenizer_files(remote: Remote) -> Files:
    """The tokenizer's files and code, with config.json, which may say the kind of tokenizer."""
    return _chosen(remote, lambda path: path.suffix == ".py" or _is_tokenizer(path) or path.name == "config.json")


def _is_tokenizer(path: PurePosixPath) -> bool:
    return any(fnmatchcase(path.name, pattern) for pattern in TOKENIZER)


def _is_all_that_is_read(remote: Remote, safe: list[str]) -> bool:
    """Whether transformers reads exactly these safetensors files of the repository."""
    if safe == ["model.safetensors"]:
        return True
    if "model.safetensors.index.json" not in remote.files:
        return False
    try:
        return set(read_json(remote.fetch_listed("model.safetensors.index.json"))["weight_map"].values()) == set(safe)
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError, OSError):
        return False


def _chosen(remote: Remote, choose: Callable[[PurePosixPath], bool]) -> Files:
    stores = tuple(f"{folder}/" for folder in remote.stores())
    outside = [path for path in remote.files if not path.startswith(stores)]
    return {path: remote.files[path][1] for path in outside if choose(PurePosixPath(path))}


def _fingerprint(remote: Remote, names: list[str]) -> str:
    return "sha256:" + sha256_of({hashed_name(name): remote.sha256(name) for name in names})
