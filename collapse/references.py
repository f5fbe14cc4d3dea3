"""Which model and tokenizer a name stands for, told without loading them: what a cached store is found by."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from collapse.errors import CollapseError, UsageError, near_names
from collapse.files import read_json, sha256_file, sha256_of
from collapse.hub import fetch_file, is_repo_id, list_files, resolve_commit, split_revision

_CARD_LIMIT = 1 << 20
_WEIGHTS = ("*.safetensors", "*.bin", "*.pt", "*.pth")
_TOKENIZER = (
    "tokenizer.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "added_tokens.json",
    "vocab.json",
    "vocab.txt",
    "merges.txt",
    "*.model",
    "*.tiktoken",
)


@dataclass(frozen=True)
class ModelReference:
    """A model as named, and what identifies it.

    Attributes:
        name: As shown: the Hub id, or the folder's own name.
        location: What transformers loads from: a folder or a Hub id.
        revision: Commit on the Hub, or None for a folder.
        weights: What the weights are: ``commit:<sha>`` or ``sha256:<hash of the files>``.
        tokenizer: The same of the tokenizer's files.
        online: Whether the Hub answered; else only cached files are used.
    """

    name: str
    location: str
    revision: str | None
    weights: str
    tokenizer: str
    online: bool = True

    @property
    def is_local(self) -> bool:
        """Whether it is a folder on this machine."""
        return self.revision is None

    def file(self, name: str) -> Path | None:
        """One small file of it, such as config.json or README.md, or None."""
        if self.is_local:
            path = Path(self.location) / name
            return path if path.is_file() else None
        return fetch_file(self.location, name, str(self.revision), online=self.online)

    def files(self) -> list[str]:
        """Names of its files; raises CollapseError where the Hub does not answer."""
        if not self.is_local:
            return list_files(self.location, str(self.revision), online=self.online)
        folder = Path(self.location)
        return [file.relative_to(folder).as_posix() for file in folder.glob("**/*") if file.is_file()]


def find_model(
    name: str, *, revision: str | None = None, model_args: Mapping[str, Any] | None = None
) -> ModelReference:
    """What a model's name stands for: a folder, or an id on the Hub with its commit.

    Raises:
        UsageError: There is no such folder, and the Hub has no such model.
        CollapseError: The folder holds no model, or the Hub cannot be reached and nothing is cached.
    """
    folder = Path(name).expanduser()
    if folder.is_dir():
        weights = _hash(folder, _weight_files(folder, model_args))
        return ModelReference(folder.resolve().name, str(folder), None, weights, _tokenizer_hash(folder, model_args))
    repo, at = split_revision(name)
    if not is_repo_id(repo) or folder.suffix in (".safetensors", ".gguf", ".bin", ".json", ".csv"):
        raise UsageError(_not_found(name, folder))
    try:
        commit, online = resolve_commit(repo, revision or at)
    except CollapseError as error:
        raise type(error)(f"{_not_found(name, folder)}; {error}") from error
    return ModelReference(repo, repo, commit, f"commit:{commit}", f"commit:{repo}:{commit}", online)


def find_tokenizer(name: str) -> ModelReference:
    """A tokenizer named on its own: a folder with its files, or a Hub id; raises as :func:`find_model`."""
    folder = Path(name).expanduser()
    if folder.is_dir():
        return ModelReference(folder.resolve().name, str(folder), None, "", _tokenizer_hash(folder, None))
    return find_model(name)


def config_of(reference: ModelReference, name: str = "config.json") -> dict[str, Any]:
    """The model's config.json, or another of its JSON files; {} where it has none."""
    file = reference.file(name)
    if file is None:
        return {}
    try:
        return dict(read_json(file))
    except (ValueError, TypeError, RecursionError, OSError) as error:
        raise CollapseError(f"{file} cannot be read as JSON: {error}") from error


def default_chunk_length(reference: ModelReference, model_args: Mapping[str, Any] | None = None) -> int:
    """T where none is given: min(2048, the model's limit), from config.json or a GGUF header.

    Raises:
        CollapseError: Neither says how long a sequence the model takes.
    """
    limit = _limit(config_of(reference))
    gguf_file = (model_args or {}).get("gguf_file")
    if limit is None and gguf_file and (file := reference.file(str(gguf_file))):
        limit = _gguf_limit(file)
    if limit is None:
        raise CollapseError(f"{reference.name} does not say how long a sequence it takes: give --chunk-length")
    return min(2048, limit)


def card_datasets(reference: ModelReference) -> list[str]:
    """The Hub data sets that a model's card says it was trained on."""
    from huggingface_hub.repocard import metadata_load

    file = reference.file("README.md")
    if file is None or file.stat().st_size > _CARD_LIMIT:
        return []
    try:
        named = (metadata_load(file) or {}).get("datasets") or []
        named = [named] if isinstance(named, str) else named
        return [each for each in named if isinstance(each, str) and is_repo_id(each)]
    except Exception:  # a card is anybody's text; one that cannot be read names no data set
        return []


def _limit(config: Mapping[str, Any]) -> int | None:
    for name in (
        "max_position_embeddings",
        "n_positions",
        "n_ctx",
        "max_seq_len",
        "seq_length",
        "max_sequence_length",
    ):
        value = config.get(name)
        if isinstance(value, int) and value > 0:
            return value
    text = config.get("text_config")
    return _limit(text) if isinstance(text, Mapping) else None


def _gguf_limit(file: Path) -> int | None:
    try:
        import gguf
    except ImportError as error:
        raise CollapseError("reading a GGUF file needs: pip install 'linguistic-collapse[gguf]'") from error
    fields = gguf.GGUFReader(file).fields
    architecture = fields["general.architecture"].contents()
    length = fields.get(f"{architecture}.context_length")
    return int(length.contents()) if length else None


def _weight_files(folder: Path, model_args: Mapping[str, Any] | None) -> list[Path]:
    gguf_file = (model_args or {}).get("gguf_file")
    if gguf_file:
        file = folder / str(gguf_file)
        if not file.is_file():
            there = [each.name for each in folder.glob("*.gguf")]
            raise UsageError(f"{folder} holds no {gguf_file}; {near_names(str(gguf_file), there)}")
        return [file]
    # a training run leaves .bin and .pt files beside its weights, which are no part of them
    files = list(folder.glob(_WEIGHTS[0])) or [file for pattern in _WEIGHTS[1:] for file in folder.glob(pattern)]
    if (folder / "config.json").is_file() and files:
        return sorted([*files, folder / "config.json"])
    quantized = sorted(file.name for file in folder.glob("*.gguf"))
    if quantized:
        raise UsageError(f"{folder} holds GGUF files only: name one with --model-arg gguf_file={quantized[0]}")
    lacking = "weights" if (folder / "config.json").is_file() else "config.json"
    raise CollapseError(f"{folder} holds neither a store (no collapse.json) nor a model (no {lacking})")


def _tokenizer_hash(folder: Path, model_args: Mapping[str, Any] | None) -> str:
    gguf_file = (model_args or {}).get("gguf_file")
    files = sorted({file for pattern in _TOKENIZER for file in folder.glob(pattern)})
    if not files and gguf_file:
        files = [folder / str(gguf_file)]
    return _hash(folder, files)


def _hash(folder: Path, files: list[Path]) -> str:
    return "sha256:" + sha256_of({file.relative_to(folder).as_posix(): sha256_file(file) for file in files})


def _not_found(name: str, folder: Path) -> str:
    near = [each.name for each in folder.parent.glob("*") if each.is_dir()] if folder.parent.is_dir() else []
    close = near_names(folder.name, near) if near else ""
    suggestion = f" ({close})" if close.startswith("did you mean") else ""
    return f"no model, store or features file is called {name}{suggestion}"
