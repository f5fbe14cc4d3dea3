"""Find the model and tokenizer that a name refers to, and their identity, without loading them."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from collapse.errors import CollapseError, UsageError
from collapse.hub.fingerprints import (
    Watch,
    check_configuration,
    code_fingerprint,
    tokenizer_files,
    tokenizer_fingerprint,
    weight_files,
    weights_fingerprint,
)
from collapse.hub.requests import (
    at_revision,
    fetch_file,
    is_repo_id,
    list_files,
    repo_cache,
    resolve_commit,
    split_revision,
)
from collapse.measurement.model_names import run_and_step
from collapse.measurement.named_results import named_results
from collapse.paths import expanded, mistyped, near_folders
from collapse.reading import is_utf8, read_json

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
        weights: Identity of the weights: ``commit:<sha>`` or ``sha256:<hash of the files>``; "" for a tokenizer.
        tokenizer: Identity of the tokenizer's files: ``commit:<repo>:<sha>`` or ``sha256:<hash of the files>``.
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
        cached = repo_cache(self.location) / "snapshots" / str(self.revision)
        # by a Hub id transformers does not find a cached tokenizer that has no config.json
        place = str(cached) if not self.online and cached.is_dir() else self.location
        return {"pretrained_model_name_or_path": place, "revision": self.revision, "local_files_only": not self.online}

    def file(self, name: str, *, top: bool = False) -> Path | None:
        """Return a small file of the model, such as config.json, or None; ``top`` ignores the subfolder."""
        name = f"{self.subfolder}/{name}" if self.subfolder and not top else name
        if self.is_local:
            path = Path(self.location) / name
            return path if path.is_file() else None
        return fetch_file(self.location, name, str(self.revision), online=self.online)

    def files(self) -> list[str]:
        """Return the names of the model's files; raises CollapseError if the Hub does not answer."""
        if not self.is_local:
            return list_files(self.location, str(self.revision), online=self.online)
        folder = Path(self.location)
        return [file.relative_to(folder).as_posix() for file in folder.glob("**/*") if file.is_file()]


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
    folder = expanded(name)
    subfolder = str((model_args or {}).get("subfolder") or "").strip("/")
    if folder.is_dir():
        if revision is not None:
            raise UsageError(f"{name} is a folder of this machine, which has no revisions: leave out --revision")
        _check_name(folder)
        weights = weights_fingerprint(folder, model_args)
        tokenizer = tokenizer_fingerprint(folder, model_args)
        named = "/".join([folder_name(folder), *filter(None, [(model_args or {}).get("gguf_file")])])
        return ModelReference(named, str(folder), None, weights, tokenizer, subfolder=subfolder)
    if folder.is_file() and folder.suffix in (".txt", ".jsonl"):
        raise UsageError(f"{name} is a text file, not a model: name the model, and give the file with --text {name}")
    if folder.is_file():
        raise UsageError(f"{name} is no {what}{_ACCEPTED.get(folder.suffix, '')}")
    close = mistyped(name) if revision is None else None
    if close is not None:
        there = f" A model of this name on the Hub is {name}@main" if is_repo_id(name) else ""
        raise UsageError(f"there is no folder {name}; {close}{there}")
    repo, at = split_revision(at_revision(name, revision))
    if not is_repo_id(repo) or folder.suffix in _OF_FILES:
        raise UsageError(_not_found(name, folder, what))
    try:
        commit, online = resolve_commit(repo, at)
    except CollapseError as error:
        if name in named_results():
            raise UsageError(f"{name} is a results table, no {what}: show it with: collapse results {name}") from error
        raise type(error)(f"{_not_found(name, folder, what)}; {error}") from error
    step = run_and_step(str(at))[1]
    return ModelReference(repo, repo, commit, f"commit:{commit}", f"commit:{repo}:{commit}", online, subfolder, step)


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


def find_tokenizer(
    name: str, model: ModelReference | None = None, model_args: Mapping[str, Any] | None = None
) -> ModelReference:
    """Find a tokenizer that is given separately: a folder with its files, or a Hub id; raises as :func:`find_model`.

    Args:
        name: The folder or id.
        model: The model for which it is given; both may be in the same folder.
        model_args: The model's arguments.
    """
    folder = expanded(name)
    if folder.is_dir():
        _check_name(folder)
        own = model is not None and model.is_local and covers(Path(model.location), model_args, folder)
        weights = model.weights if model is not None and own else ""
        fingerprint = tokenizer_fingerprint(folder, None, alone=not own)
        return ModelReference(folder.resolve().name, str(folder), None, weights, fingerprint)
    try:
        return find_model(name, what="tokenizer")
    except CollapseError as error:
        raise type(error)(f"--tokenizer {name}: {error}") from error


def covers(model: Path, model_args: Mapping[str, Any] | None, tokenizer: Path) -> bool:
    """Whether the hash of a model's weights covers the config.json in a tokenizer's folder."""
    # a link in another folder may be switched while it is read, and nobody would watch it
    return tokenizer.resolve() / "config.json" in [
        file.parent.resolve() / file.name for file in weight_files(model, model_args)
    ]


def watch_weights(reference: ModelReference, model_args: Mapping[str, Any] | None) -> Watch:
    """Watch the weights of a local model while they are loaded; a commit on the Hub cannot change.

    Raises:
        CollapseError: They changed after they were hashed.
    """
    if not reference.is_local:
        return Watch.nothing(reference.name)
    folder = Path(reference.location)
    return Watch.start(
        reference.name,
        lambda: weight_files(folder, model_args),
        reference.weights,
        lambda: weights_fingerprint(folder, model_args),
    )


def watch_tokenizer(reference: ModelReference, model_args: Mapping[str, Any] | None) -> Watch:
    """Watch the files of a local model's tokenizer, as :func:`watch_weights` does."""
    if not reference.is_local:
        return Watch.nothing(reference.name)
    folder, alone = Path(reference.location), not reference.weights
    return Watch.start(
        reference.name,
        lambda: tokenizer_files(folder, model_args, alone=alone),
        reference.tokenizer,
        lambda: tokenizer_fingerprint(folder, model_args, alone=alone),
    )


def code_of(
    model: ModelReference, tokenizer: ModelReference, model_args: Mapping[str, Any] | None = None
) -> dict[str, str]:
    """Return fingerprints of the code that ``--trust-remote-code`` lets run, by location; {} if there is none.

    A local folder's fingerprint covers what such code may read in it (:func:`~collapse.hub.fingerprints.code_files`),
    wherever the code lies. A model's own Hub repository is skipped: the commit in ``weights`` or ``tokenizer`` covers
    it.

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
            found[repo] = f"commit:{resolve_commit(repo, str(revision) if revision else None)[0]}"
        if reference.is_local and named:  # another repository's code reads this folder's files too
            found[role] = code_fingerprint(Path(reference.location), model_args)
    return found


def config_of(reference: ModelReference, name: str = "config.json") -> dict[str, Any]:
    """Read the model's config.json, or another of its JSON files; {} if it does not exist."""
    file = reference.file(name)
    if file is None:
        return {}
    try:
        config = dict(read_json(file))
    except (ValueError, TypeError, OSError) as error:
        raise CollapseError(f"{file} cannot be read as JSON: {error}") from error
    check_configuration(reference.name, config)
    return config


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


def _check_name(folder: Path) -> None:
    if not is_utf8(folder):
        raise CollapseError(f"{folder}: its name is not UTF-8, and safetensors opens no such name: rename it")
