"""Run a loaded causal language model without computing logits.

Shapes: B chunks of T tokens, d dimensions, V tokens of the vocabulary.
"""

from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import cached_property
from itertools import chain
from typing import Any, TypeGuard

import torch
from jaxtyping import Float, Int
from torch import Tensor

from collapse.errors import CollapseError, first_line
from collapse.numerics.devices import explaining_out_of_memory, is_out_of_memory


class _HeadReached(Exception):
    """Raised with the embeddings to stop a forward pass before the output embedding, whose result is not needed."""


def explaining_large_model(name: str, device: torch.device) -> AbstractContextManager[None]:
    """Report that a model does not fit into memory, where a smaller batch would not help.

    Raises:
        CollapseError: Memory ran out; the message names the model and options that need less memory.
    """
    other = "a machine with more memory" if device.type == "cpu" else "--device cpu"
    return explaining_out_of_memory(
        f"{name} does not fit on {device}: use --dtype bfloat16, --device-map auto, --quantize or {other}"
    )


@dataclass
class LanguageModel:
    """A loaded causal language model.

    Attributes:
        model: The transformers model, in evaluation mode. It may be spread over devices, offloaded or quantized.
        weight: The output embedding w, shape (V, d), in the model's dtype.
        bias: Its bias, shape (V,), or None.
        input_rows: Number of rows of the input embedding; token ids must be below it.
        attention: Name of the attention in use, from transformers or a plugin.
    """

    model: Any
    weight: Float[Tensor, "V d"]
    bias: Float[Tensor, " V"] | None
    input_rows: int
    attention: str

    @classmethod
    def of(cls, model: Any) -> "LanguageModel":
        """Return a transformers model with its classifier.

        Raises:
            CollapseError: The model has no output embedding with a weight matrix.
        """
        head, inputs = model.get_output_embeddings(), model.get_input_embeddings()
        try:
            found = None if head is None else _classifier(head, model.dtype)
        except Exception as error:  # the model's code, or a hook that loads offloaded weights, can raise anything
            raise CollapseError(
                f"the output embedding of {type(model).__name__} cannot be read: {type(error).__name__}: "
                f"{first_line(error)}; check its device map and quantization"
            ) from error
        if found is None:
            raise CollapseError(
                f"{type(model).__name__} cannot be measured: it has no output embedding with a weight matrix"
            )
        weight, bias = found
        rows = len(weight) if inputs is None else getattr(inputs, "num_embeddings", None) or len(inputs.weight)
        return cls(model, weight, bias, rows, model.config._attn_implementation or "own")

    @property
    def device(self) -> torch.device:
        """The device of the output embedding, where embeddings are delivered."""
        return self.weight.device

    @property
    def is_quantized(self) -> bool:
        """Whether some of its weights are quantized."""
        return bool(getattr(self.model, "is_quantized", False))

    @property
    def n_params(self) -> int:
        """Number of parameters before quantization; tied weights count once."""
        return sum(parameter.numel() for parameter in self._plain.parameters())

    @property
    def tied(self) -> bool:
        """Whether input and output embedding are the same tensor."""
        inputs, head = self._plain.get_input_embeddings(), self._plain.get_output_embeddings()
        return inputs is not None and inputs.weight is getattr(head, "weight", None)

    @cached_property
    def _plain(self) -> Any:
        """The model; if it is quantized or offloaded, the same architecture without weights."""
        if not self.is_quantized and not any(each.is_meta for each in self.model.parameters()):
            return self.model
        with torch.device("meta"):
            return type(self.model)(self.model.config)

    @torch.no_grad()  # not inference_mode: a model may keep tensors, and be trained afterwards
    def embeddings(self, tokens_BT: Int[Tensor, "B T"]) -> Float[Tensor, "B T d"]:
        """Return h, the input of the output embedding at each position, without computing logits."""

        def stop(module: torch.nn.Module, inputs: tuple[Tensor, ...]) -> None:
            raise _HeadReached(inputs[0])

        handle = self.model.get_output_embeddings().register_forward_pre_hook(stop)
        try:
            self.run(tokens_BT)
        except _HeadReached as reached:
            h_BTd: Tensor = reached.args[0].to(self.device)
            return h_BTd
        finally:
            handle.remove()
        raise CollapseError(
            f"{type(self.model).__name__} cannot be measured: it does not call its output embedding, so its embeddings "
            "cannot be read"
        )

    @property
    def _input_device(self) -> torch.device:
        inputs = self.model.get_input_embeddings()
        device = self.device if inputs is None else inputs.weight.device
        return self.device if device.type == "meta" else device  # hooks move the inputs of offloaded modules

    def run(self, tokens_BT: Int[Tensor, "B T"]) -> Any:
        """Return the model's own output for some tokens.

        Raises:
            CollapseError: The model's code failed. Out-of-memory errors are not converted.
        """
        try:
            return self.model(input_ids=tokens_BT.to(self._input_device), use_cache=False)
        except Exception as error:  # the model's code can raise anything
            if isinstance(error, _HeadReached) or is_out_of_memory(error):
                raise
            raise CollapseError(
                f"{type(self.model).__name__} cannot be run on {len(tokens_BT)} × {tokens_BT.shape[1]} tokens: "
                f"{type(error).__name__}: {first_line(error)}; check its config.json and --model-arg"
            ) from error


@torch.no_grad()
def _classifier(head: torch.nn.Module, dtype: torch.dtype) -> tuple[Tensor, Tensor | None] | None:
    """Return weight and bias of a linear module, even if they are offloaded, quantized or have an adapter.

    None if the module has no matrix.
    """
    aligned: AbstractContextManager[None] = nullcontext()
    if hasattr(head, "_hf_hook"):  # of accelerate
        from accelerate.utils import align_module_device

        aligned = align_module_device(head)
    with aligned:
        weight, bias = getattr(head, "weight", None), getattr(head, "bias", None)
        if _is_plain(weight) and not hasattr(head, "base_layer"):  # which an adapter's layer has
            return (weight.detach(), None if bias is None else bias.detach()) if weight.dim() == 2 else None
        columns = getattr(head, "in_features", None)
        if columns is None:
            return None
        device = next(chain(head.parameters(), head.buffers())).device
        offset = head(torch.zeros(1, columns, dtype=dtype, device=device))
        rows = head(torch.eye(columns, dtype=dtype, device=device))  # the head of each unit vector: a column of W
    return (rows - offset).T.contiguous(), None if bias is None else offset[0]


def _is_plain(weight: Any) -> TypeGuard[Tensor]:
    """Whether numbers can be read from a weight as they are; quantizers have their own types, or pack integers."""
    return type(weight) in (torch.nn.Parameter, Tensor) and weight.is_floating_point() and weight.element_size() > 1
