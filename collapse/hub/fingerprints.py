"""Fingerprints: hashes of the files from which transformers reads a model's weights, tokenizer and code.

Fingerprints depend only on content. They are equal for a folder, its copy on the Hub and a later commit of the same
files.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from collapse.core.progress import Report
from collapse.core.reading import read_json
from collapse.errors import CollapseError, UsageError, near_names, some
from collapse.hub.remote import Remote
from collapse.stores.files import sha256_file, sha256_of
from collapse.stores.manifest import MANIFEST
from collapse.stores.store import Store

TOKENIZER = (
    *("tokenizer.json", "tokenizer.*.json", "tokenizer_config.json", "special_tokens_map.json", "added_tokens.json"),
    *("vocab.json", "vocab-*.json", "vocab.txt", "entity_vocab.json", "target_vocab.json", "merges.txt", "bpe.codes"),
    *("*.model", "*.spm", "*.tiktoken", "*.tokenizer", "tekken.json", "byte_maps.json", "dict.txt", "emoji.json"),
    *("normalizer.json", "word_*.json"),
)
"""Patterns of a tokenizer's file names."""

ADAPTER = "adapter_config.json"

Arguments = Mapping[str, Any]
"""A model's arguments (``--model-arg``)."""


@dataclass(frozen=True)
class Folder:
    """A local folder, with those members of :class:`~collapse.hub.remote.Remote` that read models and stores.

    The path of a file is relative to the folder, with slashes. ``remedy``, the end of messages about a missing file, is
    "", because a local file cannot be downloaded.
    """

    path: Path
    remedy: str = ""

    @property
    def name(self) -> str:
        """The path of the folder, as text."""
        return str(self.path)

    def listed(self) -> list[str]:
        """Return the paths of all files, sorted."""
        return self._named(self.path.rglob("*"))

    def within(self, folder: str) -> list[str]:
        """Return the paths of the files in a subfolder ("" is this folder), without those in its subfolders."""
        return self._named((self.path / folder).glob("*"))

    def _named(self, found: Iterable[Path]) -> list[str]:
        return sorted(each.relative_to(self.path).as_posix() for each in found if each.is_file())

    def has(self, name: str) -> bool:
        """Whether there is a file with this path."""
        return (self.path / name).is_file()

    def fetch(self, name: str, report: Report | None = None) -> Path:
        """Return the full path of a file, even if the file does not exist; ``report`` is never called."""
        return self.path / name

    def sha256(self, name: str) -> str:
        return sha256_file(self.path / name)

    def revisions(self) -> list[str]:
        """Return the subfolders that hold a model or adapter, complete or not, such as checkpoints of a run."""
        names = ("config.json", ADAPTER, "model*.safetensors")
        found = [each for name in names for each in self.path.glob(f"*/**/{name}")]
        return sorted({each.parent.relative_to(self.path).as_posix() for each in found})

    def stores(self) -> list[str]:
        """Return the subfolders ``stores/*`` that hold a store, such as those of a training run."""
        return sorted(each.parent.relative_to(self.path).as_posix() for each in self.path.glob(f"stores/*/{MANIFEST}"))

    def open(self, folder: str) -> Store:
        """Open the store in a subfolder; raises the exceptions of :meth:`collapse.Store.load`."""
        return Store.load(self.path / folder)


_OPTIONS, _OF_LOADING = "tokenizer_config.json", ("is_local", "local_files_only", "name_or_path")

Files = Folder | Remote
"""The files of a model, text or store. The name of a file is its path relative to the top folder, with slashes."""


def inside(model_args: Arguments) -> str:
    """Return the prefix of a model's file names: the folder in ``--model-arg subfolder=…``, with a final slash, or "".

    >>> inside({"subfolder": "a/b/"}), inside({})
    ('a/b/', '')
    """
    folder = str(model_args.get("subfolder") or "").strip("/")
    return f"{folder}/" if folder else ""


def json_of(files: Files, name: str) -> dict[str, Any]:
    """Read a JSON file; return {} if it does not exist or does not hold an object.

    Raises:
        CollapseError: The file is not valid JSON, or is not available.
    """
    if not files.has(name):
        return {}
    file = files.fetch(name)
    try:
        content = read_json(file)
    except (ValueError, OSError) as error:
        raise CollapseError(f"{file} cannot be read as JSON: {error}. Correct it, or download it again") from error
    return content if isinstance(content, dict) else {}


def weight_files(files: Files, model_args: Arguments) -> list[str]:
    """Return the names of the files from which transformers reads a model's weights; [] if there are none.

    Raises:
        UsageError: The GGUF file that ``model_args`` names does not exist.
        CollapseError: A file that the index of a sharded checkpoint names does not exist.
    """
    prefix = inside(model_args)
    if gguf_file := model_args.get("gguf_file"):
        if not files.has(f"{prefix}{gguf_file}"):
            there = [name.removeprefix(prefix) for name in files.within(prefix) if name.endswith(".gguf")]
            raise UsageError(f"{files.name} has no file {gguf_file}; {near_names(str(gguf_file), there)}{files.remedy}")
        return [f"{prefix}{gguf_file}"]
    infix = f".{model_args['variant']}" if model_args.get("variant") else ""
    explicit = json_of(files, f"{prefix}config.json").get("transformers_weights")
    tried = [str(explicit)] if explicit else []
    stems = [("model", "safetensors"), ("pytorch_model", "bin")]
    for stem, suffix in stems[1:] if model_args.get("use_safetensors") is False else stems:
        tried += [f"{stem}{infix}.{suffix}", f"{stem}.{suffix}.index{infix}.json"]
    first = next((name for name in tried if files.has(f"{prefix}{name}")), None)
    if first is None or not first.endswith(".json"):
        return [] if first is None else [f"{prefix}{first}"]
    shards = json_of(files, f"{prefix}{first}").get("weight_map")
    names = sorted({f"{prefix}{each}" for each in shards.values()}) if isinstance(shards, dict) else []
    if missing := [name for name in names if not files.has(name)]:
        remedy = files.remedy or ". Add them, or give another model"
        raise CollapseError(f"{files.name} is incomplete: it lacks {some(missing)}, named in {first}{remedy}")
    return names


def weights_fingerprint(files: Files, model_args: Arguments) -> str:
    """Return the fingerprint of a model's weights, one ``sha256:…``.

    For a GGUF file, only this file is hashed; otherwise, the files of :func:`weight_files` and the config.json.

    Raises:
        UsageError: ``model_args`` names a GGUF file that does not exist, or names none and there are only GGUF files.
        CollapseError: There is no complete model, or the folder also holds a PEFT adapter.
    """
    prefix, gguf_file = inside(model_args), model_args.get("gguf_file")
    config = f"{prefix}config.json"
    # with peft, transformers would load the adapter and the base model that the adapter names
    if files.has(f"{prefix}{ADAPTER}"):
        raise CollapseError(
            f"{files.name} holds both a model and a PEFT adapter ({ADAPTER}): move the adapter to its own folder"
        )
    names = weight_files(files, model_args)
    if gguf_file:  # the only file that is read; its name does not matter
        return _fingerprint({"gguf": files.sha256(names[0])})
    if not names or not files.has(config):
        raise _no_model(files, prefix, "weights" if files.has(config) else "config.json")
    return _fingerprint({name.removeprefix(prefix): files.sha256(name) for name in (*names, config)})


def adapter_weights(files: Files) -> tuple[str, str]:
    """Return the name of a PEFT adapter's weight file, and one ``sha256:…`` of this file and adapter_config.json.

    Raises:
        CollapseError: One of the two files does not exist.
    """
    for name in ("adapter_model.safetensors", "adapter_model.bin"):
        if files.has(name) and files.has(ADAPTER):
            return name, _fingerprint({each: files.sha256(each) for each in (name, ADAPTER)})
    raise CollapseError(
        f"{files.name} is not a PEFT adapter: give a folder or repository with {ADAPTER} and adapter_model.safetensors"
    )


def _no_model(files: Files, prefix: str, lacking: str) -> CollapseError:
    names, place = files.within(prefix), f"{files.name}/{prefix}".rstrip("/")
    quantized = [name.removeprefix(prefix) for name in names if name.endswith(".gguf")]
    if quantized:
        return UsageError(f"{place} holds only GGUF files: choose one with --model-arg gguf_file={quantized[0]}")
    if files.remedy:
        return CollapseError(f"{place} is only partly cached (no {lacking}){files.remedy}")
    return CollapseError(f"{place} holds neither a store (no {MANIFEST}) nor a model (no {lacking}): check the name")


def tokenizer_files(files: Files, model_args: Arguments) -> list[str]:
    """Return the names of a tokenizer's files; a GGUF file is one of them, because it contains a tokenizer."""
    prefix, gguf_file = inside(model_args), model_args.get("gguf_file")
    found = [
        name
        for name in files.within(prefix)
        if any(fnmatchcase(name.removeprefix(prefix), pattern) for pattern in TOKENIZER)
    ]
    return [*found, f"{prefix}{gguf_file}"] if gguf_file and files.has(f"{prefix}{gguf_file}") else found


def tokenizer_fingerprint(files: Files, model_args: Arguments) -> str:
    """Return one ``sha256:…`` of a tokenizer's files, and of its class if only config.json determines the class.

    Fields that transformers adds when it saves a tokenizer are ignored, so a saved copy has the same fingerprint.
    """
    prefix = inside(model_args)
    hashes: dict[str, Any] = {}
    for name in tokenizer_files(files, model_args):
        hashes["gguf" if name.endswith(".gguf") else name.removeprefix(prefix)] = files.sha256(name)
    options = json_of(files, f"{prefix}{_OPTIONS}")
    if _OPTIONS in hashes:
        hashes[_OPTIONS] = {name: each for name, each in options.items() if name not in _OF_LOADING}
    if "gguf" not in hashes and "tokenizer_class" not in options:
        config = json_of(files, f"{prefix}config.json")
        hashes["kind"] = [config.get("model_type"), config.get("tokenizer_class")]
    return _fingerprint(hashes)


def processor_fingerprint(files: Files, model_args: Arguments) -> str:
    """Return one ``sha256:…`` of the configuration files of an image processor.

    A timm model has no such files. Its config.json describes the processor, and is part of the weights' fingerprint.
    """
    names = [f"{inside(model_args)}{name}" for name in ("preprocessor_config.json", "processor_config.json")]
    return _fingerprint({name: files.sha256(name) for name in names if files.has(name)})


def code_fingerprint(files: Files) -> str:
    """Return one ``sha256:…`` of all Python files of a folder or repository."""
    return _fingerprint({name: files.sha256(name) for name in files.listed() if name.endswith(".py")})


def _fingerprint(hashes: Mapping[str, Any]) -> str:
    return f"sha256:{sha256_of(hashes)}"
