"""Fingerprints of a local model: hashes of the files that transformers reads its weights, tokenizer and code from."""

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from collapse.errors import CollapseError, UsageError, near_names
from collapse.files import sha256_file, sha256_of
from collapse.lock import LOCK
from collapse.manifest import INCOMING, MANIFEST
from collapse.partial import PARTIAL
from collapse.reading import read_json

_WEIGHTS = ("*.safetensors", "*.bin", "*.pt", "*.pth")
TOKENIZER = (
    "tokenizer.json",
    "tokenizer.*.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "added_tokens.json",
    "tekken.json",
    "vocab.json",
    "vocab.txt",
    "merges.txt",
    "*.model",
    "*.spm",
    "*.tiktoken",
    "*.tokenizer",
    "bpe.codes",
    "byte_maps.json",
    "dict.txt",
    "emoji.json",
    "entity_vocab.json",
    "normalizer.json",
    "target_vocab.json",
    "vocab-*.json",
    "word_*.json",
)
"""Files that a tokenizer is made of."""

_OF_A_STORE = (MANIFEST, INCOMING, LOCK, PARTIAL)


@dataclass(frozen=True)
class Watch:
    """Files that must stay as they are while they are read.

    Attributes:
        name: The model, for the message.
        files: Lists them.
        stamps: Size, times and inode of each, taken after they were hashed.
    """

    name: str
    files: Callable[[], list[Path]]
    stamps: Mapping[Path, tuple[int, ...]]

    @classmethod
    def start(cls, name: str, files: Callable[[], list[Path]], fingerprint: str, hashed: Callable[[], str]) -> "Watch":
        """Note the files' stamps, and check that they still have the fingerprint that was computed before.

        Raises:
            CollapseError: They changed since.
        """
        watch = cls(name, files, _stamps(files()))
        if hashed() != fingerprint:
            raise watch.changed()
        return watch

    @classmethod
    def nothing(cls, name: str) -> "Watch":
        """Watch no file."""
        return cls(name, list, {})

    def check(self) -> None:
        """Raise CollapseError if a file was written, replaced, added or removed since the start."""
        try:
            same = _stamps(self.files()) == self.stamps
        except (OSError, CollapseError) as error:
            raise self.changed() from error
        if not same:
            raise self.changed()

    def changed(self) -> CollapseError:
        """The error for changed files."""
        return CollapseError(
            f"{self.name}: its files changed while they were read; wait until nothing writes them, "
            "then run the same command again"
        )


def inside(folder: Path, model_args: Mapping[str, Any] | None) -> Path:
    """The folder that transformers reads: the model's own, or ``--model-arg subfolder=…`` of it."""
    return folder / str((model_args or {}).get("subfolder") or "")


def weight_files(folder: Path, model_args: Mapping[str, Any] | None) -> list[Path]:
    """The files of a model's weights, with its config.json.

    Args:
        folder: The model's folder; ``subfolder`` in the model's arguments names one inside it.
        model_args: The model's arguments.

    Raises:
        UsageError: The named GGUF file is absent, or none is named.
        CollapseError: There is no model.
    """
    folder = inside(folder, model_args)
    gguf_file = (model_args or {}).get("gguf_file")
    if gguf_file:
        file = folder / str(gguf_file)
        if not file.is_file():
            there = [each.name for each in folder.glob("*.gguf")]
            raise UsageError(f"{folder} holds no {gguf_file}; {near_names(str(gguf_file), there)}")
        return [file]
    # a training run leaves .bin and .pt files beside its weights, which are no part of them
    safe = [] if (model_args or {}).get("use_safetensors") is False else _matching(folder, _WEIGHTS[:1])
    files = safe or _matching(folder, _WEIGHTS[1:])
    config = folder / "config.json"
    if config.is_file() and files:
        check_configuration(folder.name, _json(config))
        variant = (model_args or {}).get("variant")
        index = ("model.safetensors" if safe else "pytorch_model.bin") + ".index"
        named = [f"{index}.{variant}.json" if variant else f"{index}.json", _json(config).get("transformers_weights")]
        return sorted({*files, config, *_named_files(folder, [str(each) for each in named if each], files)})
    quantized = sorted(file.name for file in folder.glob("*.gguf"))
    if quantized:
        raise UsageError(f"{folder} holds GGUF files only: name one with --model-arg gguf_file={quantized[0]}")
    lacking = "weights" if config.is_file() else "config.json"
    raise CollapseError(f"{folder} holds neither a store (no collapse.json) nor a model (no {lacking})")


def weights_fingerprint(folder: Path, model_args: Mapping[str, Any] | None) -> str:
    """``sha256:…`` of a folder's weights and config.json; raises as :func:`weight_files`."""
    return _fingerprint(inside(folder, model_args), weight_files(folder, model_args))


def check_configuration(name: str, config: Mapping[str, Any]) -> None:
    """Refuse a config.json that has transformers read another file in its place, which nobody here would look at."""
    if "configuration_files" in config:
        raise CollapseError(
            f"{name}: its config.json names other files to be read instead (configuration_files): replace it by the "
            "one that you mean"
        )


def tokenizer_files(folder: Path, model_args: Mapping[str, Any] | None, *, alone: bool = False) -> list[Path]:
    """The files of a folder's tokenizer; a GGUF file holds one too.

    Args:
        folder: The folder.
        model_args: The model's arguments.
        alone: No weights are read from this folder: config.json, from which transformers takes the kind of
            tokenizer, is the tokenizer's then.
    """
    gguf_file, folder = (model_args or {}).get("gguf_file"), inside(folder, model_args)
    files = _matching(folder, (*TOKENIZER, "config.json") if alone else TOKENIZER)
    if alone and (folder / "config.json") in files:
        check_configuration(folder.name, _json(folder / "config.json"))
    return [*files, folder / str(gguf_file)] if gguf_file else files


def tokenizer_fingerprint(folder: Path, model_args: Mapping[str, Any] | None, *, alone: bool = False) -> str:
    """``sha256:…`` of a folder's tokenizer; arguments as of :func:`tokenizer_files`."""
    return _fingerprint(inside(folder, model_args), tokenizer_files(folder, model_args, alone=alone))


def code_files(folder: Path, model_args: Mapping[str, Any] | None = None) -> list[Path]:
    """What code in a folder is, and may read: all files inside but weights, cards, hidden ones and those of stores.

    A tokenizer of such code names the files of its vocabulary as it likes. Weights are those of :func:`weight_files`;
    others of such names are files like any.
    """
    weights: set[Path] = set()
    with suppress(CollapseError):
        weights = {file for file in weight_files(folder, model_args) if file.suffix != ".json"}
    return sorted({*_readable(folder)} - weights)


def _readable(folder: Path, within: tuple[Path, ...] = ()) -> Iterator[Path]:
    """The files of a folder and of those inside, also of links to folders, but not those of :func:`_is_apart`."""
    within = (*within, folder.resolve())
    try:
        entries = list(folder.iterdir())
    except PermissionError:  # nor can the code read it
        return
    for each in entries:
        if each.is_dir():
            if not _is_apart(each) and each.resolve() not in within:  # a link may lead back
                yield from _readable(each, within)
        elif each.is_file() and not each.name.startswith(".") and each.suffix != ".md":
            yield each


def _is_apart(folder: Path) -> bool:
    """Whether a folder inside a model's is none of its code: hidden, of bytecode, or of a store, perhaps unfinished."""
    return folder.name.startswith((".", "__pycache__")) or any((folder / name).exists() for name in _OF_A_STORE)


def code_fingerprint(folder: Path, model_args: Mapping[str, Any] | None = None) -> str:
    """``sha256:…`` of the files of :func:`code_files`."""
    return _fingerprint(folder, code_files(folder, model_args))


def _matching(folder: Path, patterns: tuple[str, ...]) -> list[Path]:
    return sorted({file for pattern in patterns for file in folder.glob(pattern) if file.is_file()})


def _named_files(folder: Path, names: list[str], files: list[Path]) -> list[Path]:
    """What decides which weights are read, where that is not simply all of them: these names, and shards they list."""
    found: set[Path] = set()
    for file in (folder / name for name in names):
        if not file.is_file():
            continue
        shards = _json(file).get("weight_map") if file.suffix == ".json" else None
        listed = {folder / str(each) for each in shards.values()} if isinstance(shards, dict) else set()
        if listed != set(files):
            found |= {file, *listed}
    return [file for file in found if file.is_file()]


def _json(file: Path) -> dict[str, Any]:
    try:
        content = read_json(file)
    except (ValueError, TypeError, RecursionError, OSError) as error:
        raise CollapseError(f"{file} cannot be read as JSON: {error}") from error
    return content if isinstance(content, dict) else {}


def _fingerprint(folder: Path, files: list[Path]) -> str:
    return "sha256:" + sha256_of({_relative(file, folder): sha256_file(file) for file in files})


def _relative(file: Path, folder: Path) -> str:
    return Path(os.path.relpath(file, folder)).as_posix()


def _stamps(files: list[Path]) -> dict[Path, tuple[int, ...]]:
    stats = {file: file.stat() for file in files}
    return {
        file: (each.st_size, each.st_mtime_ns, each.st_ctime_ns, each.st_ino, each.st_dev)
        for file, each in stats.items()
    }
