"""Check that transformers uses each tensor and each key of a GGUF file that changes the model's numbers."""

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from collapse.errors import CollapseError, first_line, some

# keys that the tensors' shapes and number settle: another value could not be loaded
_SETTLED = (
    *("context_length", "embedding_length", "block_count", "feed_forward_length", "vocab_size"),
    *("attention.key_length", "attention.value_length", "attention.head_count_kv", "expert_count"),
    *("expert_feed_forward_length", "expert_shared_feed_forward_length", "rope.scaling.original_context_length"),
    *("ssm.conv_kernel", "ssm.state_size", "ssm.inner_size", "ssm.time_step_rank", "shortconv.l_cache"),
)
_REQUIRED = ("attention.head_count_kv", "attention.layer_norm_rms_epsilon", "attention.layer_norm_epsilon")
_FREQUENCY_BASE = 10_000.0  # that of llama.cpp, for a file without rope.freq_base; it rotates whole heads


def check_gguf(name: str, file: Path, model: Any) -> None:
    """Refuse a GGUF file if transformers ignores a tensor, or a key that changes the model's numbers.

    Keys of the architecture are compared with the loaded model's configuration. Others (general, tokenizer, …) do not
    change its arithmetic.

    Args:
        name: The model's name.
        file: The file.
        model: The model that transformers loaded from it.

    Raises:
        CollapseError: There is such a tensor or key; the message names some.
    """
    import gguf
    from transformers import modeling_gguf_pytorch_utils as reading

    reader = gguf.GGUFReader(file)
    architecture = reader.fields["general.architecture"].contents()
    processor = reading.TENSOR_PROCESSORS.get(architecture, reading.TensorProcessor)(config={})
    try:
        known = reading.get_gguf_hf_weights_map(model, processor)
    except NotImplementedError as error:
        raise CollapseError(
            f"{name}: cannot determine which tensors transformers reads: {first_line(error)}"
        ) from error
    left = [
        each.name
        for each in reader.tensors
        if each.name not in known
        and each.name.removesuffix(".weight") not in known
        and not (each.name.startswith("rope_") and (each.data == 1).all())
    ]
    prefix = f"{architecture}."
    stated = {
        key.removeprefix(prefix): reader.fields[key].contents() for key in reader.fields if key.startswith(prefix)
    }
    mapping = reading.GGUF_TO_TRANSFORMERS_MAPPING["config"].get(model.config.model_type.removesuffix("_text"), {})
    left += [f"{prefix}{key} = {value}" for key, value in stated.items() if not _is_used(key, value, mapping, model)]
    head, heads = stated.get("attention.key_length"), stated.get("attention.head_count")
    if not head and isinstance(heads, int) and heads:
        head = stated.get("embedding_length", 0) // heads
    defaults = {"rope.freq_base": _FREQUENCY_BASE, "rope.dimension_count": head}
    absent = [key for key in _REQUIRED if key in mapping]
    absent += [key for key, value in defaults.items() if not _is_used(key, value, mapping, model)]
    if getattr(model.config.get_text_config(), "query_pre_attn_scalar", head) != head:
        absent.append("attention.scale")
    left += [f"{prefix}{key}, which is absent" for key in absent if key not in stated]
    if left:
        raise CollapseError(
            f"{name}: transformers does not use all of the GGUF file, so it would compute another model "
            f"({some(left)}): measure the original model instead"
        )


def _is_used(key: str, value: Any, mapping: Mapping[str, str | None], model: Any) -> bool:
    """Return whether the loaded model computes with the value of a key of its architecture, or would without it."""
    if key in _SETTLED:
        return True
    rotations = [2 * each.numel() for name, each in model.named_buffers() if name.endswith("inv_freq")]
    if key.startswith("rope.") and not rotations and key in ("rope.freq_base", "rope.dimension_count"):
        return key not in mapping
    if key == "rope.dimension_count":
        return value in rotations
    attribute = "rope_theta" if key == "rope.freq_base" else mapping.get(key) or key.rpartition(".")[2]
    if _values(type(model.config)().to_dict(), attribute):
        return any(_same(each, value) for each in _values(model.config.to_dict(), attribute))
    if isinstance(value, bool):
        return False
    return value in (0, "none") or (value == 1 and key.endswith(("scale", "factor")))


def _values(config: Any, attribute: str) -> list[Any]:
    """Return the values of an attribute of a configuration, at any depth."""
    if not isinstance(config, Mapping):
        return []
    return [
        value for name, each in config.items() for value in ([each] if name == attribute else _values(each, attribute))
    ]


def _same(one: Any, other: Any) -> bool:
    numbers = all(isinstance(each, int | float) for each in (one, other))
    return math.isclose(one, other, rel_tol=1e-6) if numbers else bool(one == other)
