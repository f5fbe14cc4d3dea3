"""Check that a loaded model has all its weights from its checkpoint, and uses every tensor of the checkpoint."""

import logging
import re
import zipfile
from collections.abc import Collection, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from collapse.errors import CollapseError, counted, some
from collapse.inputs.language_model import classifier_of
from collapse.inputs.tasks import CAUSAL, Task

log = logging.getLogger("collapse")

# Tensors that a model computes itself: rotary angles, positions, and the value that masks a score.
_COMPUTED = re.compile(r"(^|[._])(cos_cached|sin_cached|position_ids|masked_bias)$")
_IN_LAYER = re.compile(r"(?:^|\.)layers\.(\d+)\.(\w+)")


def check_loaded(name: str, model: Any, info: Mapping[str, Any], files: list[Path], task: Task = CAUSAL) -> None:
    """Raise CollapseError unless the tensors of a checkpoint are exactly the weights of the loaded model.

    transformers fills missing weights with random numbers and ignores unused tensors; it only logs both. Unused tensors
    are allowed if the model computes their values or has the same values in another tensor, or if they belong to
    multi-token prediction. Unless ``task`` is CAUSAL, tensors of other heads are allowed too.

    Args:
        name: The model's name, for messages.
        model: The loaded model.
        info: transformers' loading report; it does not list tied heads as missing.
        files: The checkpoint's files; none for GGUF.
        task: The model's task.
    """
    missing, unexpected = sorted(info["missing_keys"]), sorted(info["unexpected_keys"])
    kind = type(model).__name__
    if mismatched := sorted(info["mismatched_keys"]):
        shapes = [f"{key} has {_shape(a)}, but config.json gives {_shape(b)}" for key, a, b in mismatched]
        raise CollapseError(
            f"the checkpoint and the config.json of {name} differ in the shape of {counted(len(mismatched), 'weight')} "
            f"of {kind} ({some(shapes)}): use the checkpoint that belongs to this config.json"
        )
    if missing:
        also = f", and has {len(unexpected):,} that {kind} does not use ({some(unexpected)})" if unexpected else ""
        raise CollapseError(
            f"the checkpoint of {name} lacks {counted(len(missing), 'weight')} of {kind} ({some(missing)})"
            f"{also}. transformers fills missing weights with random numbers: use a complete checkpoint of {task.what}"
        )
    computed = {key for key, tensor in _read(files, unexpected) if _is_computed(key, tensor, model)}
    if drafting := _of_draft_layers(unexpected, model):
        log.info(
            "%s: ignoring %s of its multi-token-prediction layers, which only draft later tokens",
            name,
            counted(len(drafting), "tensor"),
        )
    others = set() if task is CAUSAL else _of_other_heads(unexpected, model)
    if needed := [key for key in unexpected if key not in computed | drafting | others]:
        raise CollapseError(
            f"{name}: config.json selects the class {kind}, which does not use {counted(len(needed), 'tensor')} of the "
            f"checkpoint ({some(needed)}): the measured model would not be the trained one. Use the config.json of "
            "this checkpoint, or compute embeddings with the model's own class and pass them to "
            "collapse.measure(features=…, labels=…)"
        )
    tied = getattr(model, "all_tied_weights_keys", {})
    if untied := sorted({*model.get_expanded_tied_weights_keys(all_submodels=True)} - {*tied}):
        raise CollapseError(
            f"the config.json of {name} ties {some(untied)} to the input embedding, but the checkpoint has "
            "a different tensor: give --model-arg tie_word_embeddings=false to use this tensor, or delete the tensor"
        )


def _of_other_heads(unexpected: Iterable[str], model: Any) -> set[str]:
    """Return the names of tensors of other heads, which are outside the model's body or in its pooler."""
    body = f"{model.base_model_prefix}."
    return {key for key in unexpected if not key.startswith(body) or ".pooler." in key}


def _of_draft_layers(unexpected: Iterable[str], model: Any) -> set[str]:
    """Return the names of tensors of multi-token-prediction layers, if the model's configuration has such layers.

    These tensors are in modules named mtp, or in layers after the model's last layer. A layer after the last layer
    counts only if it has a module that no layer of the model has. Otherwise, it may be an ordinary layer that
    ``num_hidden_layers`` does not count.
    """
    config = model.config.get_text_config()
    stated = [each for name, each in vars(config).items() if re.search("nextn|mtp", name) and type(each) is int]
    own = {found[2] for key, _ in model.named_parameters() if (found := _IN_LAYER.search(key))}
    layers: dict[int, dict[str, str]] = {}
    for key in unexpected if any(stated) else ():
        found = _IN_LAYER.search(key)
        number = int(found[1]) - config.num_hidden_layers if found else -1
        if re.search(r"(^|[._])mtp", key):
            layers.setdefault(-1, {})[key] = "mtp"
        elif found and 0 <= number < max(stated):
            layers.setdefault(number, {})[key] = found[2]
    return {key for keys in layers.values() if {*keys.values()} - own for key in keys}


def _shape(shape: Iterable[int]) -> str:
    return "×".join(map(str, shape))


def _read(files: Iterable[Path], wanted: Collection[str]) -> Iterator[tuple[str, Tensor]]:
    """Yield the tensors with the given names from a checkpoint's files."""
    from safetensors import safe_open

    for file in files if wanted else ():
        if file.suffix == ".safetensors":
            with safe_open(file, "pt") as opened:
                yield from ((key, opened.get_tensor(key)) for key in {*opened.keys()} & {*wanted})
        else:
            held = torch.load(file, map_location="cpu", weights_only=True, mmap=zipfile.is_zipfile(file))
            yield from ((key, held[key]) for key in wanted if isinstance(held.get(key), Tensor))


def _is_computed(key: str, tensor: Tensor, model: Any) -> bool:
    """Whether a tensor that the model does not use is redundant: the model computes it, or has the same values."""
    if _COMPUTED.search(key):
        return True
    last = key.rpartition(".")[2]
    own = [buffer for name, buffer in model.named_buffers() if name.rpartition(".")[2] == last]
    modules = [each for each in (model.get_input_embeddings(), model.get_output_embeddings()) if each is not None]
    own += [found[0] for found in (classifier_of(each, model.dtype) for each in modules) if found is not None]
    if any(tensor.shape == each.shape and _equal(tensor, each) for each in own):
        return True
    square = tensor.squeeze()  # a causal mask is a lower triangle of ones
    is_square = square.dim() == 2 and square.shape[0] == square.shape[1]
    return is_square and torch.equal(square.float(), torch.ones(square.shape).tril())


def _equal(stored: Tensor, own: Tensor) -> bool:
    """Whether two tensors are equal up to rounding."""
    rounding = [torch.finfo(each.dtype).eps for each in (stored, own) if each.is_floating_point()]
    return torch.allclose(stored.double(), own.detach().cpu().double(), rtol=max([1e-6, *rounding]), atol=1e-7)
