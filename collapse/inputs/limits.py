"""The longest sequence that a model takes, from its config.json or its GGUF header."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from collapse.core.extras import missing_package
from collapse.errors import CollapseError, UsageError, first_line
from collapse.inputs.references import ModelReference, config_of


def default_chunk_length(reference: ModelReference, model_args: Mapping[str, Any] | None = None) -> int:
    """Return the default T: min(2048, the model's limit), from config.json or a GGUF header.

    Raises:
        CollapseError: Neither gives the limit.
    """
    limit = _position_limit(reference, model_args or {}, download=True)
    if limit is None:
        raise CollapseError(
            f"{reference.name} has no maximum sequence length in its configuration: give --chunk-length"
        )
    return min(2048, limit)


def check_chunk_length(
    reference: ModelReference, chunk_length: int, model_args: Mapping[str, Any] | None = None
) -> None:
    """Refuse chunks that are longer than the model's context.

    Raises:
        UsageError: They are; the message gives the limit.
    """
    limit = _position_limit(reference, model_args or {}, download=False)
    if limit is not None and chunk_length > limit:
        raise UsageError(
            f"--chunk-length {chunk_length} is longer than the {limit:,} positions of {reference.name}: "
            f"give at most {limit}"
        )


def _position_limit(reference: ModelReference, model_args: Mapping[str, Any], *, download: bool) -> int | None:
    """Return the longest sequence of a model; ``download`` fetches a GGUF file from the Hub to read its header."""
    gguf_file = str(model_args.get("gguf_file") or "")
    limit = _limit({**config_of(reference), **model_args})
    if gguf_file and (reference.is_local or (download and limit is None)) and (file := reference.file(gguf_file)):
        return gguf_context(file) or limit
    return limit


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


def gguf_context(file: Path) -> int | None:
    """Return the context length in a GGUF file's header, or None.

    Raises:
        CollapseError: It is not a GGUF file, or the package that reads it is not installed.
    """
    try:
        import gguf
    except ImportError as error:
        raise CollapseError(missing_package(error) or f"gguf cannot be imported: {first_line(error)}") from error
    try:
        reader = gguf.GGUFReader(file)
        number = reader.fields.get(f"{reader.fields['general.architecture'].contents()}.context_length")
        return int(number.contents()) if number else None
    except Exception as error:  # the file is untrusted, and the reader can raise anything
        raise CollapseError(
            f"{file} cannot be read as GGUF: {first_line(error)}; it may be damaged or cut short: download it again"
        ) from error
