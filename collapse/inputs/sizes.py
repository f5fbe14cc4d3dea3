"""Check that a config.json or a GGUF header fits the checkpoint, before memory is allocated for the model."""

import re
import zipfile
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from collapse.errors import CollapseError
from collapse.inputs.limits import gguf_header
from collapse.inputs.references import config_of
from collapse.reading import open_regular, parse_json

if TYPE_CHECKING:
    from collapse.inputs.references import ModelReference

_LAYERS = re.compile(r"layers?$|^n_layer|depth$|num_blocks|attention_types")
_FEW_LAYERS = 256  # building this many is fast, whatever the checkpoint holds
_HEADER_LIMIT = 100_000_000
_MORE = 2  # parameters per element of the checkpoint: a missing head doubles them
_SMALL_MODEL, _SMALL_BUFFERS = 1 << 20, 1 << 30  # elements and bytes that are always allowed


def check_size(reference: "ModelReference", names: Sequence[str], model_args: Mapping[str, Any]) -> None:
    """Refuse a configuration that describes a far larger model than the checkpoint holds.

    The model is built without memory (torch's meta device), so this takes a moment even for large models.

    Args:
        reference: The model.
        names: Its weight files.
        model_args: Arguments for transformers.

    Raises:
        CollapseError: It does, or a weight file is damaged or cut short.
    """
    files = [reference.files.fetch(name) for name in names]
    if not files:
        return  # loading reports the error
    try:
        counted = [_content(file) for file in files]
    except ValueError as error:
        raise CollapseError(
            f"{reference.name} cannot be loaded as a causal language model: {error}: fetch it again"
        ) from error
    tensors, elements = sum(n for n, _ in counted), sum(n for _, n in counted)
    config = config_of(reference)
    for name, value in _layer_counts({**config, **model_args}):
        if value > max(_FEW_LAYERS, tensors):
            raise CollapseError(
                f"{reference.name}: its config.json has {name} = {value:,}, and its checkpoint holds {tensors:,} "
                "tensors: use the config.json that belongs to this checkpoint"
            )
    sizes = _built(reference, model_args)
    if sizes is None:
        return
    parameters, buffers = sizes
    most = _MORE * elements + _SMALL_MODEL
    if parameters > most or buffers > most + _SMALL_BUFFERS:
        raise CollapseError(
            f"{reference.name}: its config.json describes a model of {parameters:,} parameters (and {buffers:,} bytes "
            f"of buffers), and its checkpoint holds {elements:,}: use the config.json that belongs to this checkpoint"
        )


def check_blocks(reference: "ModelReference", gguf_file: str) -> None:
    """Refuse a GGUF file whose header has far more blocks than tensors: building them would exhaust memory.

    Raises:
        CollapseError: It has more, or it cannot be read.
    """
    file = reference.file(gguf_file)
    if file is None:
        return  # loading reports the error
    blocks, tensors = gguf_header(file, "block_count")
    if blocks is not None and blocks > max(_FEW_LAYERS, tensors):
        raise CollapseError(
            f"{reference.name}: the header of {gguf_file} has block_count = {blocks:,}, and the file holds {tensors:,} "
            "tensors: it is damaged; fetch or convert it again"
        )


def _built(reference: "ModelReference", model_args: Mapping[str, Any]) -> tuple[int, int] | None:
    """Return the configured model's number of parameters and bytes of buffers; None if it cannot be built."""
    import transformers

    try:
        config, _ = transformers.AutoConfig.from_pretrained(
            **reference.source,
            return_unused_kwargs=True,
            **model_args,
        )
        with torch.device("meta"):
            model = transformers.AutoModelForCausalLM.from_config(config)
    except Exception:  # loading raises and reports the same error
        return None
    buffers = sum(each.numel() * each.element_size() for each in model.buffers())
    return sum(each.numel() for each in model.parameters()), buffers


def _layer_counts(value: Any, name: str = "") -> list[tuple[str, int]]:
    """Return the integers of a configuration, at any depth, that determine how many modules are built."""
    if isinstance(value, int) and not isinstance(value, bool):
        return [(name, value)] if name else []
    if isinstance(value, Mapping):
        return [
            each
            for key, part in value.items()
            for each in _layer_counts(part, str(key) if _LAYERS.search(str(key)) else "")
        ]
    return [each for part in value for each in _layer_counts(part, name)] if isinstance(value, list) else []


def _content(file: Path) -> tuple[int, int]:
    """Return the number of tensors and elements in a weight file; an upper bound if that would need unpickling.

    Raises:
        ValueError: It is a safetensors file whose header cannot be read.
    """
    size = file.stat().st_size
    if file.suffix != ".safetensors":
        with suppress(zipfile.BadZipFile, NotImplementedError, UnicodeDecodeError), zipfile.ZipFile(file) as archive:
            return len(archive.namelist()), size
        return size // 64, size  # an older format, or loading reports that it is damaged
    with open_regular(file) as opened:
        length = int.from_bytes(opened.read(8), "little")
        header = opened.read(length) if length <= min(_HEADER_LIMIT, size) else b""
    try:
        shapes = [each["shape"] for name, each in parse_json(header).items() if name != "__metadata__"]
        return len(shapes), sum(_product(shape) for shape in shapes)
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        said = "its header is unreadable"
        if length > size:
            said = f"it has {size:,} bytes, and its header alone {length:,}"
        raise ValueError(f"{file.name} is damaged or cut short ({said})") from error


def _product(shape: list[int]) -> int:
    elements = 1
    for each in shape:
        elements *= each
    return elements
