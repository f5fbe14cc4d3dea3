"""Find the model and tokenizer that a name refers to, and their identity, without loading them."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from collapse.core.paths import expanded, mistyped, near_folders
from collapse.core.reading import is_utf8
from collapse.errors import CollapseError, UsageError
from collapse.hub.fingerprints import (
    Files,
    Folder,
    code_fingerprint,
    inside,
    json_of,
    tokenizer_fingerprint,
    weights_fingerprint,
)
from collapse.hub.remote import Remote, reach
from collapse.hub.requests import at_revision, is_repo_id, split_revision
from collapse.measurement.model_names import run_and_step
from collapse.measurement.named_results import named_results

_CARD_LIMIT = 1 << 20
_OF_FILES = (".safetensors", ".gguf", ".bin", ".pt", ".json", ".jsonl", ".txt", ".csv", ".parquet", ".npz", ".npy")
"""Suffixes of names that are not looked for on the Hub."""
_ACCEPTED = {
    ".npz": ": save the arrays as .safetensors, or give them to collapse.measure(features=…, labels=…)",
    ".npy": ": save the arrays as .safetensors, or give them to collapse.measure(features=…, labels=…)",
    ".csv": ": a results table is for collapse analyze",
    ".parquet": ": a results table is for collapse analyze",
}
"""What to do with files of other kinds."""
# Folder names that say which state of a model it is, or that it is a model, but not from which run.
_ANY_MODEL = re.compile(
    r"((checkpoint|ckpt|epoch|(global_?)?step|iter(ation)?)s?[-_@]?)?\d*|[0-9a-f]{40}|snapshots|"
    r"model|final|best|last|latest|output|hf",
    re.IGNORECASE,
)


@dataclass(frozen=True)
class ModelReference:
    """A model's name, location and identity.

    Attributes:
        name: Name in tables: the Hub id, or the folder's name (see :func:`folder_name`), with that of a GGUF file.
        location: Where transformers loads it from: a folder or a Hub id.
        revision: Commit on the Hub, or None for a folder.
        weights: Fingerprint of the weights: ``sha256:…`` of the files that are read; "" for a tokenizer.
        tokenizer: Fingerprint of the tokenizer.
        online: Whether the Hub answered; else only cached files are used.
        subfolder: Folder inside it that holds the model (``--model-arg subfolder=…``), or "".
        step: The training step that a revision on the Hub is named after, or None.
    """

    name: str
    location: str
    revision: str | None
    weights: str
    tokenizer: str
    online: bool = True
    subfolder: str = ""
    step: int | None = None

    @property
    def is_local(self) -> bool:
        """Whether it is a local folder."""
        return self.revision is None

    @property
    def source(self) -> dict[str, Any]:
        """Arguments of ``from_pretrained`` that name it: offline, the folder of its commit in the client's cache."""
        cached = Remote(self.location, str(self.revision)).folder
        # by a Hub id transformers does not find a cached tokenizer that has no config.json
        place = str(cached) if not self.online and cached.is_dir() else self.location
        return {"pretrained_model_name_or_path": place, "revision": self.revision, "local_files_only": not self.online}

    @cached_property
    def files(self) -> Files:
        """Its files, from the top of the folder or repository."""
        return Folder(Path(self.location)) if self.is_local else Remote(self.location, str(self.revision), self.online)

    def file(self, name: str, *, top: bool = False) -> Path | None:
        """Return a file of the model, such as config.json, or None; ``top`` ignores the subfolder."""
        name = f"{self.subfolder}/{name}" if self.subfolder and not top else name
        return self.files.fetch(name) if self.files.has(name) else None


def find_model(
    name: str,
    *,
    revision: str | None = None,
    model_args: Mapping[str, Any] | None = None,
    what: str = "model, store or features file",
) -> ModelReference:
    """Find the model that a name refers to: a folder, or an id on the Hub with its commit.

    Args:
        name: The folder or id.
        revision: Branch, tag or commit on the Hub.
        model_args: The model's arguments.
        what: What is looked for, for messages.

    Raises:
        UsageError: There is no such folder and no such model on the Hub, or a revision is given for a folder.
        CollapseError: The folder holds no model, or the Hub cannot be reached and nothing is cached.
    """
    found = _find(name, revision, what)
    folder = inside(model_args)
    gguf_file = (model_args or {}).get("gguf_file")
    return replace(
        found,
        name=f"{found.name}/{gguf_file}" if gguf_file else found.name,
        weights=weights_fingerprint(found.files, model_args),
        tokenizer=tokenizer_fingerprint(found.files, model_args),
        subfolder=folder.rstrip("/"),
    )


def find_tokenizer(name: str, model_args: Mapping[str, Any] | None = None) -> ModelReference:
    """Find a tokenizer that is given separately: a folder with its files, or a Hub id; raises as :func:`find_model`.

    Args:
        name: The folder or id.
        model_args: The arguments with which it is read.
    """
    try:
        found = _find(name, None, "tokenizer")
        return replace(found, tokenizer=tokenizer_fingerprint(found.files, model_args))
    except CollapseError as error:
        raise type(error)(f"--tokenizer {name}: {error}") from error


def _find(name: str, revision: str | None, what: str) -> ModelReference:
    """Find a folder or repository, without its fingerprints; raises as :func:`find_model`."""
    folder = expanded(name)
    if folder.is_dir():
        if revision is not None:
            raise UsageError(f"{name} is a local folder, which has no revisions: leave out --revision")
        if not is_utf8(folder):
            raise CollapseError(f"{folder}: the name is not valid UTF-8, and safetensors cannot open it: rename it")
        return ModelReference(folder_name(folder), str(folder), None, "", "")
    if folder.is_file() and folder.suffix in (".txt", ".jsonl"):
        raise UsageError(f"{name} is a text file, not a model: name the model, and give the file with --text {name}")
    if folder.is_file():
        raise UsageError(f"{name} is not a {what}{_ACCEPTED.get(folder.suffix, '')}")
    close = mistyped(name) if revision is None else None
    if close is not None:
        there = f" A model of this name on the Hub is {name}@main" if is_repo_id(name) else ""
        raise UsageError(f"there is no folder {name}; {close}{there}")
    repo, at = split_revision(at_revision(name, revision))
    if not is_repo_id(repo) or folder.suffix in _OF_FILES:
        raise UsageError(_not_found(name, folder, what))
    try:
        remote = reach(at_revision(name, revision))
    except CollapseError as error:
        if name in named_results():
            raise UsageError(
                f"{name} is a results table, not a {what}: show it with: collapse results {name}"
            ) from error
        raise type(error)(f"{_not_found(name, folder, what)}; {error}") from error
    return ModelReference(repo, repo, remote.commit, "", "", remote.online, step=run_and_step(str(at))[1])


def folder_name(folder: Path) -> str:
    """Return a folder's name: its last part, preceded by the run's name if the last part is generic.

    >>> folder_name(Path("/runs/2x64/checkpoints/checkpoint-25")), folder_name(Path("/runs/2x64"))
    ('2x64/checkpoint-25', '2x64')
    """
    own, *above = (folder.resolve(), *folder.resolve().parents)
    if not _ANY_MODEL.fullmatch(own.name):
        return own.name
    run = next((each for each in above if not _ANY_MODEL.fullmatch(each.name)), own)
    # directly above a folder in a home folder is the name of a person, not of a run
    return own.name if run.parent.name in ("home", "Users", "") else f"{run.name}/{own.name}"


def code_of(
    model: ModelReference, tokenizer: ModelReference, model_args: Mapping[str, Any] | None = None
) -> dict[str, str]:
    """Return fingerprints of the code that ``--trust-remote-code`` lets run, by location; {} if there is none.

    The code of a model's own files is known by their content, that of another repository by its commit.

    Raises:
        CollapseError: A repository with such code cannot be found.
    """
    found: dict[str, str] = {}
    revision = (model_args or {}).get("code_revision")
    for role, reference in (("model", model), ("tokenizer", tokenizer)):
        named = [
            each
            for name in ("config.json", "tokenizer_config.json")
            for each in _strings(config_of(reference, name).get("auto_map"))
        ]
        for repo in sorted({each.split("--")[0] for each in named if "--" in each}):
            found[repo] = f"commit:{reach(at_revision(repo, str(revision) if revision else None)).commit}"
        if named:  # another repository's code reads these files too
            found[role] = code_fingerprint(reference.files)
    return found


def config_of(reference: ModelReference, name: str = "config.json") -> dict[str, Any]:
    """Read the model's config.json, or another of its JSON files; {} if it does not exist."""
    return json_of(reference.files, f"{reference.subfolder}/{name}" if reference.subfolder else name)


def card_datasets(reference: ModelReference) -> list[str]:
    """Return the Hub data sets on which a model was trained, according to its card."""
    from huggingface_hub.repocard import metadata_load

    file = reference.file("README.md", top=True)
    if file is None or file.stat().st_size > _CARD_LIMIT:
        return []
    try:
        named = (metadata_load(file) or {}).get("datasets") or []
        named = [named] if isinstance(named, str) else named
        return [each for each in named if isinstance(each, str) and is_repo_id(each)]
    except Exception:  # a card is untrusted text; an unreadable one names no data set
        return []


def _strings(value: Any) -> list[str]:
    """Return all texts in a JSON value, at any depth."""
    if isinstance(value, str):
        return [value]
    parts = value.values() if isinstance(value, Mapping) else value if isinstance(value, list) else ()
    return [each for part in parts for each in _strings(part)]


def _not_found(name: str, folder: Path, what: str) -> str:
    close = near_folders(name)
    return f"no {what} is called {name}{f' ({close})' if close else ''}"
