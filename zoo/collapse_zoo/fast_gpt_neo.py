"""Attention of GPT-Neo without a T×T matrix in float32: the same weights, the same configuration, the same numbers.

transformers computes the full matrix of GPT-Neo's scores in float32, also for local layers. Here a global layer is one
call of ``scaled_dot_product_attention``. A local layer computes only its band: queries in blocks of the window w, each
with the 2w keys that they can attend to. The GELU, eight operations in transformers, is one operation.
"""

import copy
import logging
from functools import cache
from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float
from torch import Tensor
from transformers.activations import NewGELUActivation
from transformers.models.gpt_neo.modeling_gpt_neo import GPTNeoMLP, GPTNeoSelfAttention

log = logging.getLogger("collapse")

NAME = "fast_gpt_neo"
"""The name of this attention in manifests."""

_SCALE = 1.0  # GPT-Neo does not divide its scores by √d
_FLEX_LEAST_HEAD = 16  # the smallest head dimension that flex_attention's kernels support


def prepare(model: Any) -> str | None:
    """Give every GPT-Neo layer in a model the fast attention and GELU, in place, without changing weights or config.

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
            # With this setting transformers makes no mask for text without padding, and a boolean one for padded text.
            # It is set on a copy, because the model's own configuration must still build a standard transformers model.
            body.config = copy.copy(body.config)
            body.config._attn_implementation = "sdpa"
    return NAME


class FastSelfAttention(GPTNeoSelfAttention):
    """GPT-Neo's self-attention with fused kernels; it does not return attention weights."""

    def _attn(
        self,
        query: Float[Tensor, "B H Q D"],
        key: Float[Tensor, "B H K D"],
        value: Float[Tensor, "B H K D"],
        attention_mask: Tensor | None = None,
    ) -> tuple[Float[Tensor, "B H Q D"], None]:
        dropout = float(self.attn_dropout.p) if self.training else 0.0
        length = query.shape[-2]
        window = self.config.window_size if self.attention_type == "local" else length
        if attention_mask is not None or length != key.shape[-2]:
            return masked_attention(query, key, value, self._allowed(query, key), attention_mask, dropout), None
        if window >= length:
            return _sdpa(query, key, value, dropout=dropout, causal=True), None
        return banded_attention(query, key, value, window, dropout), None

    def _allowed(self, query: Tensor, key: Tensor) -> Bool[Tensor, "1 1 Q K"]:
        """Return the keys that each query may attend to; the queries are at the last positions of the keys."""
        first, last = key.shape[-2] - query.shape[-2], key.shape[-2]
        return self.bias[:, :, first:last, :last].bool()


def masked_attention(
    query: Float[Tensor, "B H Q D"],
    key: Float[Tensor, "B H K D"],
    value: Float[Tensor, "B H K D"],
    allowed: Bool[Tensor, "1 1 Q K"],
    mask: Tensor | None,
    dropout: float = 0.0,
) -> Float[Tensor, "B H Q D"]:
    """Attention for padded or cached text, limited by the layer and by the mask (boolean or additive)."""
    if mask is None:
        return _sdpa(query, key, value, allowed, dropout)
    if mask.dtype != torch.bool:
        return _sdpa(query, key, value, mask.masked_fill(~allowed, torch.finfo(mask.dtype).min), dropout)
    queries, keys = allowed.shape[-2:]
    # A padded query may have no key, and the gradient of a softmax over nothing is NaN: let it attend to itself.
    itself = torch.ones(queries, keys, dtype=torch.bool, device=mask.device).tril(keys - queries).triu(keys - queries)
    return _sdpa(query, key, value, allowed & mask | itself, dropout)


def banded_attention(
    query: Float[Tensor, "B H T D"],
    key: Float[Tensor, "B H T D"],
    value: Float[Tensor, "B H T D"],
    window: int,
    dropout: float = 0.0,
) -> Float[Tensor, "B H T D"]:
    """Attention of each query to itself and the window − 1 keys before it, for T > window."""
    length, head = query.shape[-2:]
    if query.is_cuda and head >= _FLEX_LEAST_HEAD and dropout == 0.0:
        flex = _flex()
        if flex is not None:
            return flex(query, key, value, block_mask=_band(length, window, query.device), scale=_SCALE)
    short = -length % window
    query, key, value = (F.pad(each, (0, 0, 0, short)) for each in (query, key, value))
    start = slice(0, window)
    first = _sdpa(query[:, :, start], key[:, :, start], value[:, :, start], dropout=dropout, causal=True)
    # Block n ≥ 1 of the queries attends to blocks n − 1 and n of the keys: its query i to keys (i, i + w] of these 2w.
    band = torch.ones(window, 2 * window, dtype=torch.bool, device=query.device).triu(1).tril(window)
    blocks = query[:, :, window:].unflatten(2, (-1, window))
    rest = _sdpa(
        _blocks_first(blocks),
        _blocks_first(key.unfold(2, 2 * window, window).transpose(-1, -2)),
        _blocks_first(value.unfold(2, 2 * window, window).transpose(-1, -2)),
        band,
        dropout,
    )
    rest = rest.unflatten(0, (len(query), -1)).transpose(1, 2).flatten(2, 3)
    return torch.cat([first, rest], dim=2)[:, :, :length]


def _blocks_first(blocks: Float[Tensor, "B H n W D"]) -> Float[Tensor, "Bn H W D"]:
    return blocks.transpose(1, 2).flatten(0, 1)


def _sdpa(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    mask: Tensor | None = None,
    dropout: float = 0.0,
    causal: bool = False,
) -> Tensor:
    return F.scaled_dot_product_attention(
        query, key, value, attn_mask=mask, dropout_p=dropout, is_causal=causal, scale=_SCALE
    )


@cache
def _flex() -> Any:
    """Return the compiled flex_attention; None if this torch or machine does not support it: then blocks are used."""
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
