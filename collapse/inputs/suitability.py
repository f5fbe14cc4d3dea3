"""Check that the definitions apply to a loaded model: it is causal, and its head is linear."""

import math
from typing import TYPE_CHECKING

import torch
import torch.nn.functional as F
from jaxtyping import Int
from torch import Tensor

from collapse.errors import CollapseError

if TYPE_CHECKING:
    from collapse.inputs.language_model import LanguageModel

# Largest difference of h·Wᵀ + b and the model's own logits, relative to the largest logit, that rounding can cause.
_HEAD_TOLERANCE = {torch.float64: 1e-10, torch.float32: 1e-4, torch.bfloat16: 1e-2, torch.float16: 2e-3}
TOLERANCE = {torch.float64: 1e-8, torch.float32: 1e-4, torch.bfloat16: 2e-2, torch.float16: 5e-3}
"""Largest change of an embedding, relative to its norm, that rounding can cause, for example in regrouped experts."""
CHECKED_TOKENS = 256


@torch.inference_mode()
def check_model(loaded: "LanguageModel", tokens_BT: Int[Tensor, "B T"], where: str = "the first chunk") -> None:
    """Check a model on the start of a chunk; ``where`` is the name of the chunk in messages.

    Raises:
        CollapseError: Later tokens change its embeddings, or its logits are not finite or not ⟨w, h⟩ + b.
    """
    tokens = tokens_BT[:1, :CHECKED_TOKENS]
    h = loaded.embeddings(tokens)
    if torch.isfinite(h).all():  # otherwise the passes report the chunk and the sample
        _check_causal(loaded, tokens, h)
        _check_head(loaded, tokens, h, where)


def _check_causal(loaded: "LanguageModel", tokens: Tensor, h: Tensor) -> None:
    """Replace the second half of the tokens, and check that the embeddings of the first half do not change."""
    half = tokens.shape[1] // 2
    other = tokens.clone()
    other[:, half:] = (other[:, half:] + 1) % loaded.input_rows
    before, after = h[:, :half].double(), loaded.embeddings(other)[:, :half].double()
    moved = (before - after).norm(dim=-1) / before.norm(dim=-1).clamp(min=1e-300)
    typical = float(moved.median())  # a few embeddings may change if two experts have almost equal scores
    if typical > TOLERANCE[h.dtype]:
        raise CollapseError(
            f"{type(loaded.model).__name__} is not causal: later tokens change its embeddings by {typical:.2g} of "
            "their norm. Use a causal model; models such as BERT are causal with --model-arg is_decoder=true"
        )


def _check_head(loaded: "LanguageModel", tokens: Tensor, h: Tensor, where: str) -> None:
    """Compare h·Wᵀ + b with the model's own logits, which differ if the model scales or caps them."""
    kind = type(loaded.model).__name__
    logits = loaded.run(tokens).logits.double()
    ours = F.linear(h, loaded.weight, loaded.bias).double()
    largest = float(logits.abs().max())
    if not math.isfinite(largest):
        sample, entry = (~logits[0].isfinite()).nonzero()[0].tolist()
        value, dtype = float(logits[0, sample, entry]), str(h.dtype).removeprefix("torch.")
        raise CollapseError(
            f"{kind} gives a logit of {value} for vocabulary entry {entry} at sample {sample} of {where}, although the "
            f"embedding is finite: its logits overflow {dtype}, or its code has an error; "
            f"{'check its weights' if dtype == 'float32' else 'try --dtype float32'}"
        )
    if ours.shape == logits.shape and float((ours - logits).abs().max()) <= _HEAD_TOLERANCE[h.dtype] * largest:
        return
    ratio = float((ours * logits).sum() / (ours * ours).sum()) if ours.shape == logits.shape else float("nan")
    raise CollapseError(
        f"the logits of {kind} are not ⟨w, h⟩ + b: they are about {ratio:.4g} times the product of its embeddings "
        f"and its output embedding. Use a model with a plain linear head"
    )
