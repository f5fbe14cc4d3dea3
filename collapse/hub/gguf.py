"""GGUF files: read the context length, and find tensors that transformers does not read.

references.py recognises a GGUF file by its suffix, and calls ``gguf_context``; inputs/model_loading.py calls
``check_gguf`` after loading. The name of the file is the model argument ``gguf_file``.
"""

from pathlib import Path
from typing import Any

from collapse.core.extras import missing_package
from collapse.errors import CollapseError, first_line, some

_SCALES = ("rope.scaling.factor", "rope.scale_linear", "rope.scaling.attn_factor")
"""Fields that scale rotary angles. llama.cpp uses them even if a file has no ``rope.scaling.type``.

The values 0 and 1 change nothing.
"""


def gguf_context(file: Path) -> int | None:
    """Return the context length in a GGUF file's header, if any; raise CollapseError if the file is unreadable."""
    reader, architecture = _opened(file)
    number = reader.fields.get(f"{architecture}.context_length")
    return int(number.contents()) if number else None


def check_gguf(name: str, file: Path, model: Any) -> None:
    """Raise CollapseError if transformers ignores a tensor of a GGUF file, or a field that scales rotary angles.

    ``model`` is the model that transformers loaded from the file; ``name`` is its name in the message.
    """
    from transformers import modeling_gguf_pytorch_utils as reading

    reader, architecture = _opened(file)
    processor = reading.TENSOR_PROCESSORS.get(architecture, reading.TensorProcessor)(config={})
    known = {*reading.get_gguf_hf_weights_map(model, processor)}
    left = [each.name for each in reader.tensors if not {each.name, each.name.removesuffix(".weight")} & known]
    keys = {key: each.contents() for key, each in reader.fields.items() if key.startswith(f"{architecture}.rope.scal")}
    rotations = getattr(model.config, "rope_parameters", None) or {}
    if kind := keys.get(key := f"{architecture}.rope.scaling.type"):
        left += [f"{key} = {kind}"] if kind not in ("none", rotations.get("rope_type")) else []
    else:
        left += [
            f"{key} = {keys[key]}" for each in _SCALES if keys.get(key := f"{architecture}.{each}", 1) not in (0, 1)
        ]
    if left:
        raise CollapseError(
            f"{name}: transformers ignores parts of this GGUF file ({some(left)}), so measurements would be wrong. "
            "Measure the original model instead"
        )


def _opened(file: Path) -> tuple[Any, str]:
    """Return a reader of a GGUF file, and the name of its architecture."""
    try:
        import gguf

        reader = gguf.GGUFReader(file)
        return reader, str(reader.fields["general.architecture"].contents())
    except Exception as error:  # for a damaged file, the reader can raise anything
        raise CollapseError(
            missing_package(error)
            or f"{file} cannot be read as GGUF: {first_line(error)}; it may be damaged or incomplete: download it again"
        ) from error
