"""Find the blocks of a loaded model, and its final norm for the logit lens.

The inner layers of a model are the inputs of its blocks. stores/layer_names.py turns names such as ``every:4``
into numbers of layers; collection/accumulators.py applies the lens. Shapes: B chunks of T tokens, d dimensions.
"""

from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

import torch
from jaxtyping import Int
from torch import Tensor, nn

from collapse.errors import CollapseError
from collapse.inputs.suitability import CHECKED_TOKENS, TOLERANCE, change_of
from collapse.stores.layer_names import TOP

if TYPE_CHECKING:
    from collapse.inputs.language_model import LanguageModel


@torch.no_grad()
def find_layers(loaded: "LanguageModel", tokens_BT: Int[Tensor, "B T"], layers: Sequence[str]) -> None:
    """Run a model on the start of the first chunk, and set its ``blocks`` and its ``lens``.

    If no module is a lens, set ``no_lens`` to the reason instead.

    Raises:
        CollapseError: No blocks are found, or a layer in ``layers`` has another dimension than the output embedding.
    """
    kind, tokens = type(loaded.model).__name__, tokens_BT[:1, :CHECKED_TOKENS]
    states = getattr(loaded.run(tokens, output_hidden_states=True), "hidden_states", None) or ()
    for blocks in _candidates(loaded):
        loaded.blocks = blocks
        found = loaded.embeddings_by_layer(tokens, [*map(str, range(len(blocks))), TOP])
        inputs = [found.get(str(at)) for at in range(len(blocks))]
        if _agree(inputs, states) or _agree(inputs[1:], states):  # in a few models, states are block outputs
            break
    else:
        raise CollapseError(
            f"the inner layers of {kind} cannot be collected: in no ModuleList of {loaded.n_layers} blocks do the "
            "inputs equal the model's hidden_states. Remove hooks that change inputs or outputs of blocks, or --layers"
        )
    for layer in layers:
        if (width := found[layer].shape[-1]) != loaded.weight.shape[1]:
            raise CollapseError(
                f"layer {layer} of {kind} has {width:,} dimensions, but its output embedding has "
                f"{loaded.weight.shape[1]:,}: remove --layers, or give only layers of the latter dimension"
            )
    _find_lens(loaded, tokens)


def _candidates(loaded: "LanguageModel") -> Iterator[nn.ModuleList]:
    """Yield the module lists that have as many modules as the model has blocks, outer lists first."""
    for module in loaded.model.modules():
        if isinstance(module, nn.ModuleList) and len(module) == loaded.n_layers:
            yield module


def _agree(inputs: Sequence[Tensor | None], states: Sequence[Tensor]) -> bool:
    """Whether ``inputs[i]``, the input of a block, equals ``states[i]``, an entry of ``hidden_states``, for all i."""
    pairs = [*zip(inputs, states, strict=False)]
    return 0 < len(inputs) == len(pairs) and all(each is not None and _equal(each, state) for each, state in pairs)


def _equal(mine: Tensor, theirs: Tensor) -> bool:
    """Whether most embeddings of two runs are equal up to rounding; a mixture of experts may change a few of them."""
    if mine.shape != theirs.shape:
        return False
    return float(change_of(theirs.to(mine.device), mine).median()) <= TOLERANCE[mine.dtype]


def _find_lens(loaded: "LanguageModel", tokens: Tensor) -> None:
    """Set ``lens`` to the module that maps the last block's output to the head's input, or set ``no_lens``.

    If the output is the head's input, the lens is ``nn.Identity``.
    """
    assert loaded.blocks is not None
    of_blocks, outputs, mapped = {*loaded.blocks.modules()}, list[Tensor](), list[tuple[nn.Module, Tensor, Tensor]]()

    def keep_output(_: nn.Module, __: Any, output: Any) -> None:
        outputs[:] = [output if isinstance(output, Tensor) else output[0]]

    def keep_both(module: nn.Module, inputs: Any, output: Any) -> None:
        if inputs and isinstance(inputs[0], Tensor) and isinstance(output, Tensor):
            mapped.append((module, inputs[0], output))

    with ExitStack() as hooks:
        hooks.enter_context(loaded.blocks[-1].register_forward_hook(keep_output))
        for module in loaded.model.modules():
            if module not in of_blocks:
                hooks.enter_context(module.register_forward_hook(keep_both))
        top = loaded.embeddings(tokens)
    if _same(outputs[0], top):
        loaded.lens = nn.Identity()
        return
    for module, before, after in mapped:
        if _same(before, outputs[0]) and _same(after, top) and torch.equal(module(before), top):
            loaded.lens = module
            return
    loaded.no_lens = (
        f"the logit lens is not available, because no single module of {type(loaded.model).__name__} maps the output "
        "of its last block to the input of its output embedding"
    )


def _same(one: Tensor, other: Tensor) -> bool:
    """Whether two tensors are views of the same memory, with equal shapes and strides."""
    return one.data_ptr() == other.data_ptr() and one.shape == other.shape and one.stride() == other.stride()
