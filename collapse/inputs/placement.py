"""Make the arguments of ``from_pretrained`` that place a model on devices and quantize it."""

import logging
from collections.abc import Mapping
from typing import Any

import torch

from collapse.core.extras import missing_package
from collapse.core.paths import expanded
from collapse.core.reading import read_json
from collapse.errors import CollapseError, UsageError, near_names
from collapse.inputs.collection_spec import CollectionSpec
from collapse.inputs.language_model import is_plain

RUNNING_ARGS = frozenset({"device_map", "max_memory", "offload_folder", "offload_buffers", "offload_state_dict"})
"""Arguments of ``from_pretrained`` that change numbers by rounding at most."""

_AUTOMATIC = ("auto", "balanced", "balanced_low_0", "sequential")


def placement(spec: CollectionSpec, config: Mapping[str, Any], target: torch.device) -> dict[str, Any]:
    """Return the arguments of ``from_pretrained`` that place and quantize a model.

    Without a device map and quantization, return {}: transformers then loads the model on the CPU, and the caller moves
    it to ``target``. A quantized model cannot be moved after loading. So without a device map, the arguments place it
    on ``target``. ``config`` is the model's configuration, with its arguments.

    Raises:
        UsageError: The device map or quantization is not valid, or the model is already quantized.
        CollapseError: A package for the quantization is missing.
    """
    device_map = _device_map(spec.device_map) or config.get("device_map")
    quantized, already = _quantization(spec), config.get("quantization_config")
    if quantized and already:
        raise UsageError(f"--quantize {spec.quantize} does not apply to a quantized model: remove --quantize")
    if not quantized and not already:
        return {"device_map": device_map} if device_map else {}
    # bitsandbytes repeats a warning for each layer and batch
    logging.getLogger("bitsandbytes.autograd._functions").setLevel(logging.ERROR)
    return {"device_map": device_map or {"": str(target)}} | ({"quantization_config": quantized} if quantized else {})


def check_quantized(model: Any, spec: CollectionSpec) -> None:
    """Raise UsageError if ``--quantize`` is given, but no weight of the loaded model is quantized."""
    if spec.quantize and all(map(is_plain, model.parameters())):
        kind = type(model).__name__
        raise UsageError(f"--quantize {spec.quantize} quantizes no weight of {kind}: change or remove this option")


def _device_map(given: str | Mapping[str, Any] | None) -> Any:
    if given is None or isinstance(given, Mapping) or given in _AUTOMATIC:
        return given
    try:
        return dict(read_json(expanded(given)))
    except (OSError, ValueError, TypeError) as error:
        raise UsageError(
            f"--device-map must be {', '.join(_AUTOMATIC)} or a JSON file of modules and devices, got {given} ({error})"
        ) from error


def _quantization(spec: CollectionSpec) -> Any:
    """Return transformers' configuration for ``--quantize``, or None without this option."""
    if spec.quantize is None:
        return None
    import transformers

    if spec.quantize == "8bit":
        return transformers.BitsAndBytesConfig(load_in_8bit=True)
    if spec.quantize == "4bit":
        dtype = getattr(torch, spec.dtype)
        return transformers.BitsAndBytesConfig(
            load_in_4bit=True, bnb_4bit_quant_type="nf4", bnb_4bit_compute_dtype=dtype
        )
    try:
        from torchao import quantization
    except ImportError as error:
        raise CollapseError(f"--quantize {spec.quantize}: {missing_package(error) or error}") from error
    known = ["8bit", "4bit", *(name for name in dir(quantization) if name.endswith("Config"))]
    if spec.quantize not in known:
        raise UsageError(f"--quantize {spec.quantize} is unknown; {near_names(spec.quantize, known)}")
    return transformers.TorchAoConfig(getattr(quantization, spec.quantize)())
