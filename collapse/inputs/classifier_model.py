"""Find the linear head of a loaded model of ``--task``, and compute the inputs of the head.

For causal language models, language_model.py does this.

Shapes: B units (images or texts), T tokens, d dimensions, C classes.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from inspect import signature
from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor

from collapse.errors import CollapseError
from collapse.inputs.language_model import classifier_of, explaining_failed_run, inputs_of
from collapse.inputs.suitability import rounding_of


@dataclass
class Classifier:
    """A loaded model with a linear head.

    Attributes:
        model: The transformers model, in evaluation mode.
        name, head: The head's name in the model, and the head.
        weight: The head's weight, shape (C, d).
        bias: The head's bias, shape (C,), or None.
        pools: True if the model returns one row of logits per unit (image or text), False if it returns one row per
            token. Some models with one row per unit run the head on every token, and return the logits of one token.
    """

    model: Any
    name: str
    head: torch.nn.Module
    weight: Float[Tensor, "C d"]
    bias: Float[Tensor, " C"] | None
    pools: bool = False

    def record(self) -> dict[str, Any]:
        """Return what a store's identity records about the head."""
        return {"module": self.name, "bias": self.bias is not None}

    @classmethod
    def of(cls, model: Any, batch: Mapping[str, Tensor]) -> "Classifier":
        """Find the head, which is the last linear module that the model calls when it runs ``batch``.

        Raises:
            CollapseError: There is no linear module, or its output is not the model's logits up to rounding.
        """
        called: list[tuple[str, torch.nn.Module]] = []
        hooks = [
            each.register_forward_hook(lambda module, *_, name=name: called.append((name, module)))
            for name, each in model.named_modules()
            if [*each.parameters(recurse=False)]
        ]
        try:
            logits = _run(model, batch).logits
        finally:
            for each in hooks:
                each.remove()
        linear = [each for each in called if hasattr(each[1], "in_features")]
        name, head = (linear or called)[-1]
        found = classifier_of(head, model.dtype) if linear else None
        if found is not None and len(found[0]) == logits.shape[-1]:
            made = cls(model, name, head, *found)
            made.pools = logits.dim() == 2
            h = made.embed(batch)
            ours, own = F.linear(h, *found).double(), logits.to(h.device).double()
            allowed = rounding_of(h, logits, quantized=getattr(model, "is_quantized", False))
            close = ours.shape == own.shape and bool((ours - own).abs().max() <= allowed * own.abs().max())
            if close or not own.isfinite().all():  # the passes report embeddings that are not finite
                return made
        kind, last = type(model).__name__, f"{name} ({type(head).__name__})"
        problem = f"the logits of {kind} are not the output of its last linear layer, {last}"
        if not found:
            problem = f"{kind} has no linear head: its last module is {last}"
        raise CollapseError(f"{problem}. Give its embeddings as a collapse.Source")

    @torch.no_grad()  # not inference_mode: a model may keep tensors
    def embed(self, batch: Mapping[str, Tensor]) -> Float[Tensor, "B d"] | Float[Tensor, "B T d"]:
        """Return the input of the head: a row per unit if ``pools`` is True, else a row per token.

        If ``pools`` is False, the run stops before the head. If it is True, the model also computes logits. If the head
        runs on every token, return the row of the token whose logits are the model's logits.
        """
        outputs, logits = list[Tensor](), list[Tensor]()

        def run() -> None:
            logits.append(_run(self.model, batch).logits)

        with self.head.register_forward_hook(lambda _, __, output: outputs.append(output)):
            h = inputs_of({self.name: self.head}, run, stops=not self.pools)[self.name].to(self.weight.device)
        if not self.pools or h.dim() == 2:
            return h
        # each architecture has its own rule for the token whose logits it returns
        own_B1C, of_tokens_BTC = logits[0].unsqueeze(1), outputs[-1].to(logits[0].device)
        differ_BTC = (of_tokens_BTC != own_B1C) & ~(of_tokens_BTC.isnan() & own_B1C.isnan())
        return h[torch.arange(len(h)), differ_BTC.sum(dim=2).argmin(dim=1).to(h.device)]


@torch.no_grad()
def _run(model: Any, batch: Mapping[str, Tensor]) -> Any:
    """Run a model on those tensors of a batch that its forward() accepts; raise CollapseError if its code fails."""
    takes, device = signature(model.forward).parameters, next(model.parameters()).device
    inputs = {
        name: each.to(device, model.dtype if each.is_floating_point() else None)
        for name, each in batch.items()
        if name in takes
    }
    with explaining_failed_run(model, "the data"):
        return model(**inputs)
