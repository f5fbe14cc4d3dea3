"""Find the model and tokenizer that a name refers to, and their identity, without loading them."""

import json
import logging
import re
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cached_property
from importlib.util import find_spec
from pathlib import Path, PurePosixPath
from typing import Any

from collapse.core.extras import missing_package
from collapse.core.paths import expanded, home, near_folders
from collapse.core.steps import by_step, folder_name, run_and_step, tokens_of
from collapse.errors import CollapseError, UsageError, near_names
from collapse.hub.client import at_revision, is_repo_id, split_revision
from collapse.hub.fingerprints import (
    ADAPTER,
    Files,
    Folder,
    adapter_weights,
    code_fingerprint,
    inside,
    json_of,
    processor_fingerprint,
    tokenizer_fingerprint,
    weights_fingerprint,
)
from collapse.hub.remote import reach
from collapse.stores.files import sha256_of
from collapse.stores.writing import write_atomic

log = logging.getLogger("collapse")

_OF_FILES = (".safetensors", ".gguf", ".bin", ".pt", ".json", ".jsonl", ".txt", ".csv", ".parquet", ".npz", ".npy")
"""Suffixes of names that are not looked up on the Hub."""
MODEL = "model, store or features file"
"""What a name may refer to, in messages."""
_LIMITS = ("max_position_embeddings", "n_positions", "n_ctx", "max_seq_len", "seq_length", "max_sequence_length")


@dataclass(frozen=True)
class ModelReference:
    """The name, files and fingerprints of a model, tokenizer or adapter.

    Attributes:
        name: Name in tables: the Hub id or the folder's name; for a GGUF file, the file's name follows.
        files: The files of the folder or repository.
        weights: Fingerprint of the weights: ``sha256:…`` of their files, ``probe:…`` of a loaded model, "" of a
            tokenizer.
        tokenizer: Fingerprint of the tokenizer; "" for an adapter.
        model_args: The model's arguments (``--model-arg``), such as the subfolder of its files.
        training: The training ``step`` and number of ``tokens`` in the name of a revision on the Hub, if any.
        adapter: The PEFT adapter that is applied to the model, or None.
        loaded: The :class:`~collapse.inputs.language_model.LanguageModel` if the model is already loaded, else None.
        loaded_tokenizer: The tokenizer of transformers if it is already loaded, else None.
    """

    name: str
    files: Files
    weights: str = ""
    tokenizer: str = ""
    model_args: Mapping[str, Any] = field(default_factory=dict)
    training: Mapping[str, int] = field(default_factory=dict)
    adapter: "ModelReference | None" = None
    loaded: Any = None
    loaded_tokenizer: Any = None

    @property
    def shown_name(self) -> str:
        """The name in tables: the model's, followed by the adapter's if there is one."""
        return f"{self.name}+{self.adapter.name}" if self.adapter else self.name

    @property
    def is_local(self) -> bool:
        """Whether the files are in a local folder."""
        return isinstance(self.files, Folder)

    @property
    def location(self) -> str:
        """The folder or the Hub id."""
        return self.files.name

    @property
    def revision(self) -> str | None:
        """Commit on the Hub, or None for a folder."""
        return None if isinstance(self.files, Folder) else self.files.commit

    @property
    def source(self) -> dict[str, Any]:
        """Arguments of ``from_pretrained`` that locate the model; offline, by its folder in the client's cache."""
        if isinstance(self.files, Folder):
            return {"pretrained_model_name_or_path": self.location}
        remote = self.files
        # given a Hub id, transformers does not find a cached tokenizer without a config.json
        place = remote.name if remote.online or not remote.folder.is_dir() else str(remote.folder)
        return {
            "pretrained_model_name_or_path": place,
            "revision": remote.commit,
            "local_files_only": not remote.online,
        }

    def json(self, name: str) -> dict[str, Any]:
        """Read one of the model's JSON files, such as config.json; {} if it does not exist."""
        return json_of(self.files, inside(self.model_args) + name)

    @cached_property
    def position_limit(self) -> int | None:
        """Maximum sequence length, from the arguments, the config.json or the GGUF header; None if none states it."""
        limit = limit_of({**self.json("config.json"), **self.model_args})
        if limit is None and "gguf_file" in self.model_args:
            from collapse.hub.gguf import gguf_context

            return gguf_context(self.files.fetch(f"{inside(self.model_args)}{self.model_args['gguf_file']}"))
        return limit

    @cached_property
    def code(self) -> dict[str, str]:
        """Fingerprints of the code that ``--trust-remote-code`` runs, by repository; "" means the model's repository.

        The code in the model's repository is identified by content, code in another repository by its commit.
        """
        maps = [self.json(file).get("auto_map") for file in ("config.json", "tokenizer_config.json")]
        revision = self.model_args.get("code_revision")
        found = {
            repo: f"commit:{reach(at_revision(repo, str(revision) if revision else None)).commit}"
            for repo in sorted({*re.findall(r'"([^"]+?)--', json.dumps(maps))})
        }
        # code of another repository may also read files of the model's repository
        return {**found, "": code_fingerprint(self.files)} if any(maps) else found

    @property
    def processor(self) -> str:
        """Fingerprint of the image processor."""
        return processor_fingerprint(self.files, self.model_args)

    def card_datasets(self) -> list[str]:
        """Return the Hub data sets that the model was trained on, according to its card."""
        from huggingface_hub.repocard import metadata_load

        try:
            named = (metadata_load(self.files.fetch("README.md")) or {}).get("datasets") or []
        except Exception:  # there is no card, or its free text cannot be parsed
            return []
        named = [named] if isinstance(named, str) else named
        return [each for each in named if isinstance(each, str) and is_repo_id(each)]


def find_model(name: str, *, revision: str | None = None, model_args: Mapping[str, Any] = {}) -> ModelReference:
    """Find the model that a name refers to: a folder, a GGUF file, or an id on the Hub; compute its fingerprints.

    Raises:
        UsageError: There is no such folder and no such model on the Hub, or a revision is given for a folder.
        CollapseError: The folder holds no model, or the Hub cannot be reached and nothing is cached.
    """
    return with_fingerprints(locate(name, revision, MODEL, model_args))


def find_adapted(
    name: str, adapter: str | None, *, revision: str | None = None, model_args: Mapping[str, Any] = {}
) -> ModelReference:
    """Find a model, optionally with an adapter; if ``name`` is an adapter, find its base model with this adapter.

    Raises the exceptions of :func:`find_model`, UsageError for two adapters, and CollapseError if peft is missing.
    """
    found = locate(name, revision, MODEL, model_args)
    if not found.files.has(ADAPTER) or found.files.has("config.json"):
        found = with_fingerprints(found)
        if adapter is None:
            return found
        own = _adapter(locate(adapter, None, "adapter"))
        base = own.json(ADAPTER).get("base_model_name_or_path")
        if base and Path(base).name not in Path(split_revision(name)[0]).absolute().parts:
            log.warning("the adapter %s was trained with the model %s, but is applied to %s", adapter, base, name)
        return replace(found, adapter=own)
    if adapter is not None:
        raise UsageError(f"{name} is itself a PEFT adapter: remove --adapter, or merge {name} into its base model")
    own, config = _adapter(found), found.json(ADAPTER)
    base = str(config.get("base_model_name_or_path"))
    try:
        return replace(find_model(base, revision=config.get("revision"), model_args=model_args), adapter=own)
    except CollapseError as error:
        raise type(error)(
            f"{name} is a PEFT adapter, and its base model is not found: {error}. Give the base model instead, "
            f"with --adapter {name}"
        ) from error


def _adapter(found: ModelReference) -> ModelReference:
    """Return an adapter's reference with the weights' fingerprint added; raise CollapseError if peft is missing."""
    if find_spec("peft") is None:
        missing = missing_package(ImportError(name="peft"))
        raise CollapseError(f"{found.name} is a PEFT adapter, and {missing}; or merge the adapter into its base model")
    return replace(found, weights=adapter_weights(found.files)[1])


def with_fingerprints(found: ModelReference) -> ModelReference:
    """Return a model's reference with its fingerprints added; raises the exceptions of :func:`find_model`."""
    gguf_file = found.model_args.get("gguf_file")
    return replace(
        found,
        name=f"{found.name}/{gguf_file}" if gguf_file else found.name,
        weights=weights_fingerprint(found.files, found.model_args),
        tokenizer=tokenizer_fingerprint(found.files, found.model_args),
    )


def find_tokenizer(name: str, model_args: Mapping[str, Any] = {}) -> ModelReference:
    """Find a separate tokenizer: a folder, a GGUF file or a Hub id; raises the exceptions of :func:`locate`."""
    try:
        found = locate(name, None, "tokenizer", model_args)
        return replace(found, tokenizer=tokenizer_fingerprint(found.files, found.model_args))
    except CollapseError as error:
        raise type(error)(f"--tokenizer {name}: {error}") from error


def remember_tokenizer(reference: ModelReference) -> None:
    """Write the path of a local tokenizer's folder to the cache, for :func:`known_tokenizer`.

    A store records only the tokenizer's fingerprint, and no path, because a store may be published.
    """
    if reference.is_local and reference.loaded_tokenizer is None:
        with suppress(CollapseError):  # an unwritable cache is not an error
            write_atomic(_remembered(reference.tokenizer), bytes(Path(reference.location).resolve()), shared=True)


def known_tokenizer(tokenizer: str) -> Path | None:
    """Return the folder recorded for a tokenizer's fingerprint, or None; the folder's files may have changed since."""
    with suppress(OSError):
        return Path(_remembered(tokenizer).read_text())
    return None


def _remembered(tokenizer: str) -> Path:
    return home() / "tokenizers" / sha256_of(tokenizer)


def locate(name: str, revision: str | None, what: str, model_args: Mapping[str, Any] = {}) -> ModelReference:
    """Find the folder or repository of a name, but compute no fingerprints.

    ``what`` says in messages what the name refers to, such as "tokenizer". Raises the exceptions of :func:`find_model`.
    """
    folder = expanded(name)
    if folder.suffix == ".gguf" and folder.is_file():
        folder, model_args = folder.parent, {**model_args, "gguf_file": folder.name}
    if folder.is_dir():
        if revision is not None:
            raise UsageError(f"{name} is a local folder, which has no revisions: remove --revision")
        return ModelReference(folder_name(folder), Folder(folder), model_args=model_args)
    if folder.is_file():
        raise UsageError(
            f"{name} is a {folder.suffix} file, which cannot be the {what}; if it is a text, use --text {name}"
        )
    close = near_folders(name)
    near = f" ({close})" if close else ""
    whole = at_revision(name, revision)
    repo, at = split_revision(whole)
    if not is_repo_id(repo) or folder.suffix in _OF_FILES:
        raise UsageError(f"no {what} is called {name}{near}")
    try:
        remote = reach(whole)
    except CollapseError as error:
        raise type(error)(f"no folder is called {name}{near}; {error}") from error
    training = {"step": run_and_step(str(at))[1], "tokens": tokens_of(str(at))}
    known = {name: value for name, value in training.items() if value is not None}
    return ModelReference(repo, remote, model_args=model_args, training=known)


def find_revisions(name: str, patterns: str | Iterable[str]) -> list[str]:
    """Find the checkpoints of a model: branches and tags on the Hub, or subfolders of a local folder, sorted by step.

    Patterns have the wildcards of a shell; one string may hold several patterns, separated by commas. Return
    ``id@revision`` or ``folder/checkpoint`` of each checkpoint; raise UsageError if a pattern matches none.
    """
    wanted = [each for each in (patterns.split(",") if isinstance(patterns, str) else patterns) if each]
    if not wanted:
        raise UsageError("--revisions names no revision: give names or patterns, such as 'step*'")
    files = locate(name, None, "model with revisions", {}).files
    there = files.revisions()
    found: set[str] = set()
    for pattern in wanted:
        matching = {each for each in there if PurePosixPath(each).match(pattern)}
        if not matching:
            raise UsageError(f"no revision or checkpoint of {name} matches {pattern}; {near_names(pattern, there)}")
        found |= matching
    ordered = sorted(found, key=by_step)
    return [str(files.path / each) if isinstance(files, Folder) else at_revision(name, each) for each in ordered]


def limit_of(config: Mapping[str, Any]) -> int | None:
    """Return a model's maximum sequence length from its configuration, or None."""
    limits = [config[name] for name in _LIMITS if isinstance(config.get(name), int) and config[name] > 0]
    text = config.get("text_config")
    return limits[0] if limits else limit_of(text) if isinstance(text, Mapping) else None
