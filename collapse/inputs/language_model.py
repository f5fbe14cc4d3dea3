"""Run a loaded causal language model without computing logits.

Shapes: B chunks of T tokens, d dimensions, V tokens of the vocabulary.
"""

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from collapse.errors import CollapseError, first_line
from collapse.numerics.devices import explaining_out_of_memory, is_out_of_memory
from collapse.stores.layers import TOP


class _Reached(Exception):
    """Raised to stop a forward pass at the last layer that is wanted, at the latest before the output embedding."""


def explaining_large_model(name: str, device: torch.device) -> AbstractContextManager[None]:
    """Report that a model does not fit into memory, where a smaller batch would not help.

    Raises:
        CollapseError: Memory ran out; the message names the model and options that need less memory.
    """
    other = "a machine with more memory" if device.type == "cpu" else "--device cpu"
    return explaining_out_of_memory(f"{name} does not fit on {device}: use --dtype bfloat16 or {other}")


@dataclass
class LanguageModel:
    """A loaded causal language model.

    Attributes:
        model: The transformers model, in evaluation mode.
        weight: The output embedding w, shape (V, d), in the model's dtype.
        bias: Its bias, shape (V,), or None.
        input_rows: Number of rows of the input embedding; token ids must be below it.
        attention: Name of the attention in use, from transformers or a plugin.
        n_layers: Number of blocks, or None if its configuration has none.
        blocks: The blocks, whose inputs are the inner layers; :func:`collapse.inputs.model_layers.find_layers` sets it.
        lens: The final norm, which maps the last block's output to the input of the output embedding; None if it was
            not searched or not found.
        no_lens: Why there is no such module.
    """

    model: Any
    weight: Float[Tensor, "V d"]
    bias: Float[Tensor, " V"] | None
    input_rows: int
    attention: str
    n_layers: int | None = None
    blocks: torch.nn.ModuleList | None = None
    lens: torch.nn.Module | None = None
    no_lens: str = ""

    @classmethod
    def of(cls, model: Any) -> "LanguageModel":
        """Return a transformers model with its classifier.

        Raises:
            CollapseError: The model has no output embedding with a weight matrix.
        """
        head, inputs = model.get_output_embeddings(), model.get_input_embeddings()
        if head is None or getattr(head, "weight", None) is None or head.weight.dim() != 2:
            raise CollapseError(
                f"{type(model).__name__} cannot be measured: it has no output embedding with a weight matrix"
            )
        rows = len(head.weight if inputs is None else inputs.weight)
        bias = getattr(head, "bias", None)
        own = model.config._attn_implementation or "own"
        n_layers = getattr(model.config.get_text_config(decoder=True), "num_hidden_layers", None)
        return cls(model, head.weight.detach(), None if bias is None else bias.detach(), rows, own, n_layers)

    @property
    def device(self) -> torch.device:
        """The device on which it runs."""
        return self.weight.device

    @property
    def n_params(self) -> int:
        """Number of parameters; tied weights count once."""
        return sum(parameter.numel() for parameter in self.model.parameters())

    @property
    def tied(self) -> bool:
        """Whether input and output embedding are the same tensor."""
        inputs = self.model.get_input_embeddings()
        return inputs is not None and inputs.weight.data_ptr() == self.weight.data_ptr()

    def embeddings(self, tokens_BT: Int[Tensor, "B T"]) -> Float[Tensor, "B T d"]:
        """Return h, the input of the output embedding at each position, without computing logits."""
        return self.layers(tokens_BT, (TOP,))[TOP]

    @torch.inference_mode()
    def layers(self, tokens_BT: Int[Tensor, "B T"], layers: Sequence[str]) -> dict[str, Float[Tensor, "B T d"]]:
        """Return h of some layers, in order of depth: the inputs of blocks, and of the output embedding for top.

        The forward pass stops at the last of them.
        """
        found: dict[str, Tensor] = {}

        def keep(layer: str) -> Callable[[torch.nn.Module, tuple[Any, ...], dict[str, Any]], None]:
            def hook(_: torch.nn.Module, inputs: tuple[Any, ...], named: dict[str, Any]) -> None:
                for tensor in (each for each in (*inputs, *named.values()) if isinstance(each, Tensor)):
                    found[layer] = tensor if layer == TOP else tensor.clone()  # a block may change its input
                    break
                if layer == layers[-1]:
                    raise _Reached

            return hook

        with ExitStack() as hooks:
            for layer in layers:
                module = self.model.get_output_embeddings()
                if layer != TOP:
                    assert self.blocks is not None  # find_layers() was called
                    module = self.blocks[int(layer)]
                hooks.enter_context(module.register_forward_pre_hook(keep(layer), with_kwargs=True))
            try:
                self.run(tokens_BT)
            except _Reached:
                return found
        raise CollapseError(
            f"{type(self.model).__name__} cannot be measured: it does not call its output embedding, so its embeddings "
            "cannot be read"
        )

    def run(self, tokens_BT: Int[Tensor, "B T"], **options: Any) -> Any:
        """Return the model's own output for some tokens.

        Raises:
            CollapseError: The model's code failed. Out-of-memory errors are not converted.
        """
        try:
            return self.model(input_ids=tokens_BT.to(self.device), use_cache=False, **options)
        except Exception as error:  # the model's code can raise anything
            if isinstance(error, _Reached) or is_out_of_memory(error):
                raise
            raise CollapseError(
                f"{type(self.model).__name__} cannot be run on {len(tokens_BT)} × {tokens_BT.shape[1]} tokens: "
                f"{type(error).__name__}: {first_line(error)}; check its config.json and --model-arg"
            ) from error
