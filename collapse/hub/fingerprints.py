"""Fingerprints of a local model: hashes of the files that transformers reads its weights, tokenizer and code from."""

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from collapse.errors import CollapseError, UsageError, counted, near_names
from collapse.reading import read_json
from collapse.stores.files import sha256_file, sha256_of
from collapse.stores.lock import LOCK
from collapse.stores.manifest import INCOMING, MANIFEST
from collapse.stores.partial import PARTIAL

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
"""Files of a tokenizer."""

ADAPTER = "adapter_config.json"
_OF_A_STORE = (MANIFEST, INCOMING, LOCK, PARTIAL)


@dataclass(frozen=True)
class Watch:
    """Files that must not change while they are read.

    Attributes:
        name: The model, for the message.
        files: Returns the files.
        stamps: Size, times and inode of each file, recorded after hashing.
    """

    name: str
    files: Callable[[], list[Path]]
    stamps: Mapping[Path, tuple[int, ...]]

    @classmethod
    def start(cls, name: str, files: Callable[[], list[Path]], fingerprint: str, hashed: Callable[[], str]) -> "Watch":
        """Record the files' stamps, and check that they still have the fingerprint that was computed before.

        Raises:
            CollapseError: The files have changed since.
        """
        watch = cls(name, files, _stamps(files()))
        if hashed() != fingerprint:
            raise watch.changed()
        return watch

    @classmethod
    def nothing(cls, name: str) -> "Watch":
        """Return a watch of no files."""
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
        """Return the error for changed files."""
        return CollapseError(
            f"{self.name}: its files changed while they were read; wait until nothing writes them, "
            "then run the same command again"
        )


def inside(folder: Path, model_args: Mapping[str, Any] | None) -> Path:
    """Return the folder that transformers reads: the model's, or its subfolder given by ``--model-arg subfolder=…``."""
    return folder / str((model_args or {}).get("subfolder") or "")


def read_first(there: Callable[[str], bool], config: Mapping[str, Any], model_args: Mapping[str, Any]) -> str | None:
    """Return the file that transformers reads a model's weights from, or the index of such files; None without one.

    Args:
        there: Whether the model has a file of this name.
        config: Its config.json.
        model_args: The model's arguments.
    """
    if model_args.get("gguf_file"):
        return str(model_args["gguf_file"])
    infix = f".{model_args['variant']}" if model_args.get("variant") else ""
    stems = [("model", "safetensors"), ("pytorch_model", "bin")]
    if model_args.get("use_safetensors") is False:
        del stems[0]
    explicit = config.get("transformers_weights")
    tried = [str(explicit)] if explicit else []
    for stem, suffix in stems:
        tried += [f"{stem}{infix}.{suffix}", f"{stem}.{suffix}.index{infix}.json"]
    return next((name for name in tried if there(name)), None)


def weight_files(folder: Path, model_args: Mapping[str, Any] | None) -> list[Path]:
    """Return the files of a model's weights, with its config.json.

    Args:
        folder: The model's folder; ``subfolder`` in the model's arguments names one inside it.
        model_args: The model's arguments.

    Raises:
        UsageError: The given GGUF file does not exist, or the folder holds only GGUF files and none was given.
        CollapseError: The folder holds no model.
    """
    folder, model_args = inside(folder, model_args), model_args or {}
    check_adapter(folder.name, (folder / ADAPTER).is_file())
    gguf_file = model_args.get("gguf_file")
    if gguf_file:
        file = folder / str(gguf_file)
        if not file.is_file():
            there = [each.name for each in folder.glob("*.gguf")]
            raise UsageError(f"{folder} holds no {gguf_file}; {near_names(str(gguf_file), there)}")
        return [file]
    # with safetensors weights, .bin and .pt files are other output of a training run, unless they are what is read
    safe = [] if model_args.get("use_safetensors") is False else _matching(folder, _WEIGHTS[:1])
    files = safe or _matching(folder, _WEIGHTS[1:])
    config = folder / "config.json"
    if config.is_file() and files:
        content = _json(config)
        check_configuration(folder.name, content)
        first = read_first(lambda name: (folder / name).is_file(), content, model_args)
        return sorted({*files, config, *(_decisive(folder, first, files) if first else ())})
    quantized = sorted(file.name for file in folder.glob("*.gguf"))
    if quantized:
        raise UsageError(f"{folder} holds GGUF files only: name one with --model-arg gguf_file={quantized[0]}")
    stores = sorted(each.parent.name for each in folder.glob(f"*/{MANIFEST}"))
    if stores and not config.is_file():
        raise UsageError(f"{folder} is a folder of {counted(len(stores), 'store')}: name them, {folder}/*")
    lacking = "weights" if config.is_file() else "config.json"
    raise CollapseError(f"{folder} holds neither a store (no collapse.json) nor a model (no {lacking})")


def weights_fingerprint(folder: Path, model_args: Mapping[str, Any] | None) -> str:
    """Return ``sha256:…`` of a folder's weights and config.json; raises as :func:`weight_files`."""
    return _fingerprint(inside(folder, model_args), weight_files(folder, model_args))


def check_adapter(name: str, is_adapter: bool) -> None:
    """Refuse a PEFT adapter: with peft installed, transformers would load or change other weights."""
    if is_adapter:
        raise CollapseError(
            f"{name} holds a PEFT adapter ({ADAPTER}): merge it into its model with peft's merge_and_unload(), save "
            "that, and measure it"
        )


def check_configuration(name: str, config: Mapping[str, Any]) -> None:
    """Refuse a config.json that makes transformers read another file instead, which nobody would hash or check."""
    if "configuration_files" in config:
        raise CollapseError(
            f"{name}: its config.json names other files to be read instead (configuration_files): replace it by the "
            "one that you mean"
        )


def tokenizer_files(folder: Path, model_args: Mapping[str, Any] | None, *, alone: bool = False) -> list[Path]:
    """Return the files of a folder's tokenizer; a GGUF file also contains one.

    Args:
        folder: The folder.
        model_args: The model's arguments.
        alone: The weights are read from another folder. The config.json, from which transformers may take the kind of
            tokenizer, is then a file of the tokenizer.
    """
    gguf_file, folder = (model_args or {}).get("gguf_file"), inside(folder, model_args)
    files = _matching(folder, (*TOKENIZER, "config.json") if alone else TOKENIZER)
    if alone and (folder / "config.json") in files:
        check_configuration(folder.name, _json(folder / "config.json"))
    return [*files, folder / str(gguf_file)] if gguf_file else files


def tokenizer_fingerprint(folder: Path, model_args: Mapping[str, Any] | None, *, alone: bool = False) -> str:
    """Return ``sha256:…`` of a folder's tokenizer; for the arguments see :func:`tokenizer_files`."""
    return _fingerprint(inside(folder, model_args), tokenizer_files(folder, model_args, alone=alone))


def code_files(folder: Path, model_args: Mapping[str, Any] | None = None) -> list[Path]:
    """Return code in a folder and what it may read: all files inside except weights, cards, hidden files and stores.

    A tokenizer with such code names its vocabulary files freely. Weights are the files of :func:`weight_files`; other
    files with such names are included.
    """
    weights: set[Path] = set()
    with suppress(CollapseError):
        weights = {file for file in weight_files(folder, model_args) if file.suffix != ".json"}
    return sorted({*_readable(folder)} - weights)


def _readable(folder: Path, within: tuple[Path, ...] = ()) -> Iterator[Path]:
    """Yield the files of a folder and of the folders inside, links included, except those of :func:`_is_apart`."""
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
    """Return whether a folder is not the model's code: hidden, bytecode, or a store, finished or not."""
    return folder.name.startswith((".", "__pycache__")) or any((folder / name).exists() for name in _OF_A_STORE)


def code_fingerprint(folder: Path, model_args: Mapping[str, Any] | None = None) -> str:
    """Return ``sha256:…`` of the files of :func:`code_files`."""
    return _fingerprint(folder, code_files(folder, model_args), str)


def _matching(folder: Path, patterns: tuple[str, ...]) -> list[Path]:
    return sorted({file for pattern in patterns for file in folder.glob(pattern) if file.is_file()})


def _decisive(folder: Path, first: str, files: list[Path]) -> list[Path]:
    """Return the file that is read first, and the shards that it lists, unless these are simply all files."""
    shards = _json(folder / first).get("weight_map") if first.endswith(".json") else None
    listed = {folder / str(each) for each in shards.values()} if isinstance(shards, dict) else set()
    return [] if listed == set(files) else [file for file in (folder / first, *listed) if file.is_file()]


def _json(file: Path) -> dict[str, Any]:
    try:
        content = read_json(file)
    except (ValueError, TypeError, RecursionError, OSError) as error:
        raise CollapseError(f"{file} cannot be read as JSON: {error}") from error
    return content if isinstance(content, dict) else {}


def hashed_name(name: str) -> str:
    """Return the name that a file has in a fingerprint: its own, and one for any GGUF file, which is read alone."""
    return "gguf" if name.endswith(".gguf") else name


def _fingerprint(folder: Path, files: list[Path], called: Callable[[str], str] = hashed_name) -> str:
    return "sha256:" + sha256_of({called(_relative(file, folder)): sha256_file(file) for file in files})


def _relative(file: Path, folder: Path) -> str:
    return Path(os.path.relpath(file, folder)).as_posix()


def _stamps(files: list[Path]) -> dict[Path, tuple[int, ...]]:
    stats = {file: file.stat() for file in files}
    return {
        file: (each.st_size, each.st_mtime_ns, each.st_ctime_ns, each.st_ino, each.st_dev)
        for file, each in stats.items()
    }
