"""Let plugins swap in a faster attention, and check that the model still computes the same embeddings."""

from typing import TYPE_CHECKING

import torch
from jaxtyping import Float, Int
from torch import Tensor

from collapse.errors import PluginError, first_line
from collapse.inputs.references import limit_of
from collapse.plugin.plugin_manager import plugins

if TYPE_CHECKING:
    from collapse.inputs.language_model import LanguageModel

# Largest change of an embedding, relative to its norm, that rounding explains. GPT-Neo attends in float32 in any dtype.
_TOLERANCE = {torch.float64: 1e-3, torch.float32: 1e-3, torch.bfloat16: 2e-1, torch.float16: 5e-2}
_PROBED = 512
"""Tokens of the probe, which are more than a local attention's window."""


def prepare(loaded: "LanguageModel") -> str | None:
    """Let the first plugin that supports a model make it faster; return the plugin's name for the result, or None.

    Raises:
        PluginError: A plugin failed, or changed a dtype, the output embedding, or the embeddings beyond rounding.
    """
    manager = plugins()
    if not manager.hooks.get("collapse_prepare_model"):
        return None
    length = min(_PROBED, limit_of(loaded.model.config.to_dict()) or _PROBED)
    tokens = (torch.arange(length) * 7919 % loaded.input_rows)[None]  # spread over the vocabulary
    before = _probe(loaded, tokens)

    for plugin, answer in manager.answers("collapse_prepare_model", loaded.model):
        try:
            changed = _difference(before, _probe(loaded, tokens))
        except Exception as error:  # the plugin's modules run here, and can raise anything
            cause = error.__cause__ or error
            changed = f"it no longer runs ({type(cause).__name__}: {first_line(cause)})"
        if changed:
            raise PluginError(
                f"plugin {plugin}: collapse_prepare_model() changed what the model computes: {changed}; "
                "continue without it: --no-fast-attention"
            )
        if answer is not None:
            return str(answer)
    return None


def _probe(loaded: "LanguageModel", tokens: Int[Tensor, "1 T"]) -> tuple[Float[Tensor, "1 T d"], Float[Tensor, " n"]]:
    """Return a model's embeddings of some tokens, and its classifier as sums over dimensions and biases."""
    head = loaded.model.get_output_embeddings()
    biases = [] if getattr(head, "bias", None) is None else [head.bias.detach()]
    return loaded.embeddings(tokens), torch.cat([head.weight.detach().sum(1), *biases])


def _difference(before: tuple[Tensor, Tensor], after: tuple[Tensor, Tensor]) -> str | None:
    """Describe what differs by more than rounding; None if nothing does."""
    for one, other in zip(before, after, strict=True):
        if one.dtype != other.dtype or one.shape != other.shape:
            return f"{one.dtype} of shape {tuple(one.shape)} became {other.dtype} of shape {tuple(other.shape)}"
    if not torch.equal(before[1].nan_to_num(), after[1].nan_to_num()):
        return "its output embedding is another"
    h, other = before[0].double(), after[0].double()
    moved = float(((h - other).norm(dim=-1) / h.norm(dim=-1).clamp(min=1e-300)).max())
    allowed = _TOLERANCE[before[0].dtype]
    if moved <= allowed or not h.isfinite().all():  # accumulating reports the chunk and the sample
        return None
    return f"embeddings move by up to {moved:.2g} of their norm, where rounding gives at most {allowed:g}"
