"""Tensors of a checkpoint that the loaded model does not use: a few kinds change no number, any other is refused."""

import re
import zipfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

_SCALED = re.compile(r"[IU]\d|F[468]_|torch\.(q?u?int|float[48])")  # as safetensors and torch call such dtypes
_TURNED = {"cos_cached": torch.cos, "sin_cached": torch.sin}
_PREDICTED_LAYERS = re.compile(r"(nextn|mtp).*layers|num_mtp")  # such as num_nextn_predict_layers
_LAYER = re.compile(r"(?:^|\.)layers\.(\d+)\.")
_OWN_LAYER = re.compile(r"(?:^|\.)mtp(?:_layers|_block)?(?:\.layers)?\.(?:(\d+)\.)?")


@contextmanager
def unused_recorded() -> Iterator[set[str]]:
    """Yield a set to which loading a model adds the names of the tensors that the model lacks.

    transformers' own report leaves out the names that match a pattern of the model's class, whatever they hold.
    """
    import transformers

    plain = transformers.PreTrainedModel._adjust_missing_and_unexpected_keys
    unused: set[str] = set()

    def recorded(model: Any, *reports: Any) -> Any:  # transformers 5.0: missing, unexpected; later: one report of both
        unused.update(getattr(reports[-1], "unexpected_keys", reports[-1]))
        return plain(model, *reports)

    transformers.PreTrainedModel._adjust_missing_and_unexpected_keys = recorded
    try:
        yield unused
    finally:
        transformers.PreTrainedModel._adjust_missing_and_unexpected_keys = plain


def needed(model: Any, config: Mapping[str, Any], unused: Iterable[str], files: Iterable[Path]) -> list[str]:
    """Return the unused tensors that may change the model's numbers.

    These kinds change none: a buffer that the model computes itself with the same values (rotary ``inv_freq`` and its
    cosines and sines, masks, sinusoidal positions), a causal mask of ones and zeros with its ``masked_bias``,
    ``position_ids`` that count up, a copy of the input or output embedding that equals it, and the layers for
    multi-token prediction whose number the configuration states.

    A tensor that is there twice, with and without the base model's prefix or under an old name, is needed unless both
    are equal. Integers and 8-bit floats are needed as such: a model that uses them as weights applies no scale.

    Args:
        model: The loaded model of transformers.
        config: Its config.json.
        unused: Names of the tensors that it lacks.
        files: The checkpoint's files, from which such tensors are read.
    """
    prefix, unused = f"{model.base_model_prefix}.", {*unused}
    readers, scaled = dict[str, list[Callable[[], Tensor]]](), list[str]()
    buffers = {name.removeprefix(prefix) for name, _ in model.named_buffers()}
    for name, read, dtype in _stored(files):
        readers.setdefault(_called(name, prefix), []).append(read)
        if _SCALED.match(dtype) and name not in unused and name.removeprefix(prefix) not in buffers:
            scaled.append(f"{name} as {dtype}")
    # of two tensors that differ by the base model's prefix, transformers takes one
    twice = [
        name
        for name, (first, *others) in readers.items()
        if others and not all(torch.equal(first().double(), other().double()) for other in others)
    ]
    unlike = [
        name
        for name in sorted(unused)
        if not _predicts_further(name, model, config, readers)
        and not any(_is_computed(name, read(), model) for read in readers.get(_called(name, prefix), []))
    ]
    return twice + unlike + scaled


def _called(name: str, prefix: str) -> str:
    """Return a tensor's name without the base model's prefix; transformers renames those of old checkpoints."""
    name = name.removeprefix(prefix)
    return name.replace("LayerNorm.gamma", "LayerNorm.weight").replace("LayerNorm.beta", "LayerNorm.bias")


def _predicts_further(name: str, model: Any, config: Mapping[str, Any], names: Iterable[str]) -> bool:
    """Return whether a tensor belongs to a stated layer for multi-token prediction.

    Such a layer follows the last layer, and among ``names`` are some of it that no other layer has.
    """
    stated = [value for key, value in config.items() if _PREDICTED_LAYERS.search(key) and isinstance(value, int)]
    if own := _OWN_LAYER.search(name):
        return int(own[1] or 0) < max(stated, default=0)
    layers, layer = getattr(model.config.get_text_config(), "num_hidden_layers", 0), _LAYER.search(name)
    if layer is None or not layers <= int(layer[1]) < layers + max(stated, default=0):
        return False
    parts = [(int(found[1]), each[found.end() :]) for each in names if (found := _LAYER.search(each))]
    return bool({part for at, part in parts if at == int(layer[1])} - {part for at, part in parts if at < layers})


def _stored(files: Iterable[Path]) -> Iterator[tuple[str, Callable[[], Tensor], str]]:
    """Yield the name of each tensor in a checkpoint's files, a function that reads it, and its dtype."""
    from safetensors import safe_open

    for file in files:
        if file.suffix == ".safetensors":
            opened = safe_open(file, "pt")
            for name in opened.keys():  # noqa: SIM118
                yield name, partial(opened.get_tensor, name), str(opened.get_slice(name).get_dtype())
        else:
            held = torch.load(file, map_location="cpu", weights_only=True, mmap=zipfile.is_zipfile(file))
            tensors = {name: each for name, each in held.items() if isinstance(each, Tensor)}
            yield from ((name, partial(tensors.__getitem__, name), str(each.dtype)) for name, each in tensors.items())


def _is_computed(name: str, tensor: Tensor, model: Any) -> bool:
    """Return whether the model has or computes the same values without this tensor."""
    last = name.rpartition(".")[2]
    buffers = {called: each.detach().cpu() for called, each in model.named_buffers()}
    own = [each for called, each in buffers.items() if called.endswith(name)]
    alike = own or [each for called, each in buffers.items() if called.endswith(last)]
    heads = [each for each in (model.get_input_embeddings(), model.get_output_embeddings()) if each is not None]
    held = [each for head in heads for each in (head.weight, getattr(head, "bias", None)) if each is not None]
    if any(_equal(tensor, each) for each in alike) or any(torch.equal(tensor.to(each), each) for each in held):
        return True
    flat = tensor.squeeze()
    if last == "position_ids":
        return bool(torch.equal(flat.long(), torch.arange(flat.numel())))
    if last == "masked_bias":
        return tensor.numel() == 1
    if flat.dim() != 2:
        return False
    if last in _TURNED:
        rotations = [each for called, each in buffers.items() if called.endswith("inv_freq")]
        angles = [torch.outer(torch.arange(len(flat)), each.float()).repeat(1, 2) for each in rotations]
        turned = [_TURNED[last](each) for each in angles if each.shape == flat.shape]
        return any(torch.allclose(flat.float(), each, atol=1e-2) for each in turned)
    mask = next((each.squeeze() for each in own if each.squeeze().dim() == 2), torch.ones(flat.shape).tril())
    size = min(len(flat), len(mask))
    return torch.equal(flat[:size, :size].float(), mask[:size, :size].float())


def _equal(stored: Tensor, own: Tensor) -> bool:
    """Return whether two tensors have one shape, and values that are equal up to the rounding of their dtypes."""
    if stored.shape != own.shape:
        return False
    rounding = [torch.finfo(each.dtype).eps for each in (stored, own) if each.is_floating_point()]
    return torch.allclose(stored.double(), own.detach().cpu().double(), rtol=max([1e-6, *rounding]), atol=1e-7)
