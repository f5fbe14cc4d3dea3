"""Compute GPT-Neo's attention without a T×T matrix in float32.

Weights and configuration are not changed, and results are equal up to rounding. transformers computes the full matrix
of GPT-Neo's scores in float32, also for local layers. Here a global layer is one call of
``scaled_dot_product_attention``. A local layer with window w divides the queries into blocks of w, and computes only
the scores of each block with the 2w keys that its queries can attend to. The GELU is one operation instead of
transformers' eight.
"""

import copy
import logging
from functools import cache
from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor
from transformers.activations import NewGELUActivation
from transformers.models.gpt_neo.modeling_gpt_neo import GPTNeoMLP, GPTNeoSelfAttention

log = logging.getLogger("collapse")

NAME = "fast_gpt_neo"
"""The name of this attention in manifests."""

_SCALE = 1.0  # GPT-Neo does not divide its scores by √d
_FLEX_LEAST_HEAD = 16  # the smallest head dimension that flex_attention's kernels support


def prepare(model: Any) -> str | None:
    """Give every GPT-Neo layer of a model the fast attention and GELU, in place, without changing weights or config.

    Returns:
        The attention's name, or None if the model has no eager GPT-Neo layer.
    """
    layers = [module for module in model.modules() if type(module) is GPTNeoSelfAttention]
    if not layers:
        return None
    for layer in layers:
        layer.__class__ = FastSelfAttention
    for module in model.modules():
        if isinstance(module, GPTNeoMLP) and isinstance(module.act, NewGELUActivation):
            module.act = torch.nn.GELU(approximate="tanh")
    for body in model.modules():
        if type(body).__name__ == "GPTNeoModel":
            # With this setting transformers makes no mask for text without padding, and a boolean mask for padded text.
            # It is set on a copy, so that the model's own configuration still builds a standard transformers model.
            body.config = copy.copy(body.config)
            body.config._attn_implementation = "sdpa"
    return NAME


class FastSelfAttention(GPTNeoSelfAttention):
    """GPT-Neo's self-attention with fused kernels, which return no attention weights.

    For padded text, for cached text and for training with dropout, transformers' own attention is used, which returns
    attention weights.
    """

    def _attn(
        self,
        query: Float[Tensor, "B H Q D"],
        key: Float[Tensor, "B H K D"],
        value: Float[Tensor, "B H K D"],
        attention_mask: Tensor | None = None,
    ) -> tuple[Float[Tensor, "B H Q D"], Tensor | None]:
        length = query.shape[-2]
        window = self.config.window_size if self.attention_type == "local" else length
        dropout = self.training and self.attn_dropout.p > 0
        if attention_mask is not None or length != key.shape[-2] or dropout:  # padded or cached text
            if attention_mask is not None and attention_mask.dtype == torch.bool:
                least = torch.finfo(query.dtype).min
                attention_mask = torch.zeros_like(attention_mask, dtype=query.dtype).masked_fill(~attention_mask, least)
            output, weights = super()._attn(query, key, value, attention_mask)
            return output, weights
        if window >= length:
            return _sdpa(query, key, value), None
        return banded_attention(query, key, value, window), None


def banded_attention(
    query: Float[Tensor, "B H T D"], key: Float[Tensor, "B H T D"], value: Float[Tensor, "B H T D"], window: int
) -> Float[Tensor, "B H T D"]:
    """Compute attention in which each token attends to itself and to the window − 1 tokens before it; T > window."""
    length, head = query.shape[-2:]
    if query.is_cuda and head >= _FLEX_LEAST_HEAD and (flex := _flex()) is not None:
        return flex(query, key, value, block_mask=_band(length, window, query.device), scale=_SCALE)
    short = -length % window
    query, key, value = (F.pad(each, (0, 0, 0, short)) for each in (query, key, value))
    first = _sdpa(query[:, :, :window], key[:, :, :window], value[:, :, :window])
    # Block n ≥ 1 of queries attends to blocks n − 1 and n of keys; its query i attends to keys (i, i + w] of these 2w.
    band = torch.ones(window, 2 * window, dtype=torch.bool, device=query.device).triu(1).tril(window)
    blocks = query[:, :, window:].unflatten(2, (-1, window))
    rest = _sdpa(
        _blocks_first(blocks),
        _blocks_first(key.unfold(2, 2 * window, window).transpose(-1, -2)),
        _blocks_first(value.unfold(2, 2 * window, window).transpose(-1, -2)),
        band,
    )
    rest = rest.unflatten(0, (len(query), -1)).transpose(1, 2).flatten(2, 3)
    return torch.cat([first, rest], dim=2)[:, :, :length]


def _blocks_first(blocks: Float[Tensor, "B H n W D"]) -> Float[Tensor, "Bn H W D"]:
    return blocks.transpose(1, 2).flatten(0, 1)


def _sdpa(query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None = None) -> Tensor:
    """Compute attention with a mask; without a mask, compute causal attention."""
    return F.scaled_dot_product_attention(query, key, value, attn_mask=mask, is_causal=mask is None, scale=_SCALE)


@cache
def _flex() -> Any:
    """Return the compiled flex_attention, or None if torch or the machine does not support it."""
    try:
        from torch.nn.attention.flex_attention import flex_attention

        compiled = torch.compile(flex_attention)
        probe = torch.zeros(1, 1, 256, _FLEX_LEAST_HEAD, device="cuda", requires_grad=True)
        compiled(probe, probe, probe, block_mask=_band(256, 128, probe.device), scale=_SCALE).sum().backward()
    except Exception as error:  # no compiler, no Triton, an old GPU: many kinds of errors
        log.info("flex_attention is not available (%s): local layers are computed in blocks", type(error).__name__)
        return None
    return compiled


@cache
def _band(length: int, window: int, device: torch.device) -> Any:
    from torch.nn.attention.flex_attention import create_block_mask

    def sees(batch: Tensor, head: Tensor, query: Tensor, key: Tensor) -> Tensor:
        return (key <= query) & (key > query - window)

    return create_block_mask(sees, None, None, length, length, device=str(device))
