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

    These kinds change none: a buffer that the model computes itself with the same values (rotary ``inv_freq``, masks,
    sinusoidal positions), a causal mask of ones and zeros with its ``masked_bias``, ``position_ids`` that count up, a
    copy of the input or output embedding that equals it, and the layers for multi-token prediction whose number the
    configuration states.

    A tensor that is there twice, with and without the base model's prefix, is needed unless both are equal.

    Args:
        model: The loaded model of transformers.
        config: Its config.json.
        unused: Names of the tensors that it lacks.
        files: The checkpoint's files, from which such tensors are read.
    """
    prefix, readers = f"{model.base_model_prefix}.", dict[str, list[Callable[[], Tensor]]]()
    for name, read in _stored(files):
        readers.setdefault(name.removeprefix(prefix), []).append(read)
    # of two tensors that differ by the base model's prefix, transformers takes one
    twice = [
        name
        for name, (first, *others) in readers.items()
        if others and not all(torch.equal(first(), other()) for other in others)
    ]
    return twice + [
        name
        for name in sorted(unused)
        if not _predicts_further(name, model, config)
        and not any(_is_computed(name, read(), model) for read in readers.get(name.removeprefix(prefix), []))
    ]


def _predicts_further(name: str, model: Any, config: Mapping[str, Any]) -> bool:
    """Return whether a tensor belongs to a stated layer for multi-token prediction, which follows the last layer."""
    stated = [value for key, value in config.items() if _PREDICTED_LAYERS.search(key) and isinstance(value, int)]
    if own := _OWN_LAYER.search(name):
        return int(own[1] or 0) < max(stated, default=0)
    layers, layer = getattr(model.config.get_text_config(), "num_hidden_layers", 0), _LAYER.search(name)
    return layer is not None and layers <= int(layer[1]) < layers + max(stated, default=0)


def _stored(files: Iterable[Path]) -> Iterator[tuple[str, Callable[[], Tensor]]]:
    """Yield the name of each tensor in a checkpoint's files, and a function that reads it."""
    from safetensors import safe_open

    for file in files:
        if file.suffix == ".safetensors":
            opened = safe_open(file, "pt")
            yield from ((name, partial(opened.get_tensor, name)) for name in opened.keys())  # noqa: SIM118
        else:
            held = torch.load(file, map_location="cpu", weights_only=True, mmap=zipfile.is_zipfile(file))
            yield from ((name, partial(held.get, name)) for name in held)


def _is_computed(name: str, tensor: Tensor, model: Any) -> bool:
    """Return whether the model has or computes the same values without this tensor."""
    last = name.rpartition(".")[2]
    buffers = [each for own, each in model.named_buffers() if own.endswith(last)]
    heads = [each for each in (model.get_input_embeddings(), model.get_output_embeddings()) if each is not None]
    held = [each for head in heads for each in (head.weight, getattr(head, "bias", None)) if each is not None]
    if any(_equal(tensor, each) for each in buffers) or any(torch.equal(tensor.to(each), each) for each in held):
        return True
    flat = tensor.squeeze()
    if last == "position_ids":
        return bool(torch.equal(flat.long(), torch.arange(flat.numel())))
    if last == "masked_bias":
        return tensor.numel() == 1
    return flat.dim() == 2 and torch.equal(flat.float(), torch.ones(len(flat), len(flat)).tril())


def _equal(stored: Tensor, own: Tensor) -> bool:
    """Return whether two tensors have one shape, and values that are equal up to the rounding of their dtypes."""
    if stored.shape != own.shape:
        return False
    rounding = [torch.finfo(each.dtype).eps for each in (stored, own) if each.is_floating_point()]
    return torch.allclose(stored.double(), own.detach().cpu().double(), rtol=max([1e-6, *rounding]), atol=1e-7)
