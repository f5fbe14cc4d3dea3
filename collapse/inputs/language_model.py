"""Run a loaded causal language model without computing logits.

Shapes: B chunks of T tokens, d dimensions, V tokens of the vocabulary.
"""

from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from collapse.errors import CollapseError, first_line
from collapse.numerics.devices import explaining_out_of_memory, is_out_of_memory
from collapse.numerics.logits import LINEAR, Logits


class _HeadReached(Exception):
    """Raised with the embeddings to stop a forward pass before the output embedding, whose result is not needed."""


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
        logits: How it makes logits from ⟨w, h⟩ + b.
    """

    model: Any
    weight: Float[Tensor, "V d"]
    bias: Float[Tensor, " V"] | None
    input_rows: int
    attention: str
    logits: Logits = LINEAR

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
        return cls(model, head.weight.detach(), None if bias is None else bias.detach(), rows, own)

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

    @torch.inference_mode()
    def embeddings(self, tokens_BT: Int[Tensor, "B T"]) -> Float[Tensor, "B T d"]:
        """Return h, the input of the output embedding at each position, without computing logits."""

        def stop(module: torch.nn.Module, inputs: tuple[Tensor, ...]) -> None:
            raise _HeadReached(inputs[0])

        handle = self.model.get_output_embeddings().register_forward_pre_hook(stop)
        try:
            self.run(tokens_BT)
        except _HeadReached as reached:
            h_BTd: Tensor = reached.args[0]
            return h_BTd
        finally:
            handle.remove()
        raise CollapseError(
            f"{type(self.model).__name__} cannot be measured: it does not call its output embedding, so its embeddings "
            "cannot be read"
        )

    def run(self, tokens_BT: Int[Tensor, "B T"]) -> Any:
        """Return the model's own output for some tokens.

        Raises:
            CollapseError: The model's code failed. Out-of-memory errors are not converted.
        """
        try:
            return self.model(input_ids=tokens_BT.to(self.device), use_cache=False)
        except Exception as error:  # the model's code can raise anything
            if isinstance(error, _HeadReached) or is_out_of_memory(error):
                raise
            raise CollapseError(
                f"{type(self.model).__name__} cannot be run on {len(tokens_BT)} × {tokens_BT.shape[1]} tokens: "
                f"{type(error).__name__}: {first_line(error)}; check its config.json and --model-arg"
            ) from error
