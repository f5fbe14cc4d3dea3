"""GGUF files: the context length in the header, and what transformers reads of the rest."""

import math
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from collapse.core.extras import missing_package
from collapse.errors import CollapseError, first_line, some

# keys that the tensors' shapes and number settle: another value could not be loaded
_SETTLED = (
    *("context_length", "embedding_length", "block_count", "feed_forward_length", "vocab_size"),
    *("attention.key_length", "attention.value_length", "attention.head_count_kv", "expert_count"),
    *("expert_feed_forward_length", "expert_shared_feed_forward_length", "rope.scaling.original_context_length"),
    *("ssm.conv_kernel", "ssm.state_size", "ssm.inner_size", "ssm.time_step_rank", "shortconv.l_cache"),
)


def gguf_context(file: Path) -> int | None:
    """Return the context length in a GGUF file's header, or None; raises as :func:`check_gguf`."""
    reader, architecture = _opened(file)
    number = reader.fields.get(f"{architecture}.context_length")
    return int(number.contents()) if number else None


def check_gguf(name: str, file: Path, model: Any) -> None:
    """Refuse a GGUF file if transformers ignores a tensor, or a key that changes the model's numbers.

    Keys of the architecture are compared with the loaded model's configuration. Others (general, tokenizer, …) do not
    change its arithmetic.

    Args:
        name: The model's name.
        file: The file.
        model: The model that transformers loaded from it.

    Raises:
        CollapseError: It cannot be read, or there is such a tensor or key; the message names some.
    """
    from transformers import modeling_gguf_pytorch_utils as reading

    reader, architecture = _opened(file)
    processor = reading.TENSOR_PROCESSORS.get(architecture, reading.TensorProcessor)(config={})
    known = {*reading.get_gguf_hf_weights_map(model, processor)}
    neutral = [each.name for each in reader.tensors if each.name.startswith("rope_") and (each.data == 1).all()]
    left = [
        each.name
        for each in reader.tensors
        if each.name not in neutral and not {each.name, each.name.removesuffix(".weight")} & known
    ]
    mapping = reading.GGUF_TO_TRANSFORMERS_MAPPING["config"].get(model.config.model_type.removesuffix("_text"), {})
    for key, each in reader.fields.items():
        own = key.removeprefix(f"{architecture}.")
        if own != key and not _is_used(own, each.contents(), mapping, model):
            left.append(f"{key} = {each.contents()}")
    if left:
        raise CollapseError(
            f"{name}: transformers does not use all of the GGUF file, so it would compute another model "
            f"({some(left)}): measure the original model instead"
        )


def _opened(file: Path) -> tuple[Any, str]:
    """Return a reader of a GGUF file, and the name of its architecture."""
    try:
        import gguf

        reader = gguf.GGUFReader(file)
        return reader, str(reader.fields["general.architecture"].contents())
    except Exception as error:  # of a damaged file the reader can raise anything
        raise CollapseError(
            missing_package(error)
            or f"{file} cannot be read as GGUF: {first_line(error)}; it may be damaged or cut short: download it again"
        ) from error


def _is_used(key: str, value: Any, mapping: Mapping[str, str | None], model: Any) -> bool:
    """Return whether the loaded model computes with the value of a key of its architecture, or would without it."""
    rotations = [2 * each.numel() for name, each in model.named_buffers() if name.endswith("inv_freq")]
    if key in _SETTLED or (key == "rope.dimension_count" and value in rotations):
        return True
    attribute = "rope_theta" if key == "rope.freq_base" else mapping.get(key) or key.rpartition(".")[2]
    if known := [*_values(model.config.to_dict(), attribute)]:
        return any(each == value or _near(each, value) for each in known)
    return not isinstance(value, bool) and (value in (0, "none") or (value == 1 and key.endswith(("scale", "factor"))))


def _near(one: Any, other: Any) -> bool:
    return isinstance(one, float) and isinstance(other, float) and math.isclose(one, other, rel_tol=1e-6)


def _values(config: Mapping[str, Any], attribute: str) -> Iterator[Any]:
    """Yield the values of an attribute of a configuration, at any depth."""
    for name, value in config.items():
        if name == attribute:
            yield value
        elif isinstance(value, Mapping):
            yield from _values(value, attribute)
