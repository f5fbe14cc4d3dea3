"""Attention of GPT-Neo without a T×T matrix in float32: the same weights, the same configuration, the same numbers.

transformers computes GPT-Neo's scores whole and in float32, for local layers too. Here a global layer is one call of
``scaled_dot_product_attention``, and a local one looks only at its band: queries in blocks of the window w, each with
the 2w keys that they can reach. And its GELU, which transformers puts together from eight operations, is one.
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
"""What a manifest names this attention."""

_SCALE = 1.0  # GPT-Neo does not divide its scores by √d
_FLEX_LEAST_HEAD = 16  # the smallest head that flex_attention's kernels take


def prepare(model: Any) -> str | None:
    """Give every GPT-Neo layer in a model the fast attention and GELU, in place; its weights and configuration stay.

    Returns:
        The attention's name, or None where the model has no eager GPT-Neo layer.
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
            # transformers then makes no mask for text without padding, and a boolean one for padded text. On a copy:
            # the model's own configuration must go on building a model that transformers knows.
            body.config = copy.copy(body.config)
            body.config._attn_implementation = "sdpa"
    return NAME


class FastSelfAttention(GPTNeoSelfAttention):
    """GPT-Neo's self-attention by fused kernels; attention weights are not given back."""

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
        """Which keys the layer lets each query see; the queries are the last of the keys' positions."""
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
    """Attention of padded or cached text: where the layer allows it and the mask (boolean, or added) does."""
    if mask is None:
        return _sdpa(query, key, value, allowed, dropout)
    if mask.dtype != torch.bool:
        return _sdpa(query, key, value, mask.masked_fill(~allowed, torch.finfo(mask.dtype).min), dropout)
    queries, keys = allowed.shape[-2:]
    # A padded query may see nothing at all, and a softmax over nothing is NaN in its gradient: it sees itself.
    itself = torch.ones(queries, keys, dtype=torch.bool, device=mask.device).tril(keys - queries).triu(keys - queries)
    return _sdpa(query, key, value, allowed & mask | itself, dropout)


def banded_attention(
    query: Float[Tensor, "B H T D"],
    key: Float[Tensor, "B H T D"],
    value: Float[Tensor, "B H T D"],
    window: int,
    dropout: float = 0.0,
) -> Float[Tensor, "B H T D"]:
    """Attention of each query to itself and the window − 1 keys before it, where T > window."""
    length, head = query.shape[-2:]
    if query.is_cuda and head >= _FLEX_LEAST_HEAD and dropout == 0.0:
        flex = _flex()
        if flex is not None:
            return flex(query, key, value, block_mask=_band(length, window, query.device), scale=_SCALE)
    short = -length % window
    query, key, value = (F.pad(each, (0, 0, 0, short)) for each in (query, key, value))
    start = slice(0, window)
    first = _sdpa(query[:, :, start], key[:, :, start], value[:, :, start], dropout=dropout, causal=True)
    # Block n of the queries, n ≥ 1, reaches into blocks n − 1 and n of the keys: query i of it sees (i, i + w] of 2w.
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
    """flex_attention, compiled; None where this torch or machine cannot (the blocks are used then)."""
    try:
        from torch.nn.attention.flex_attention import flex_attention

        compiled = torch.compile(flex_attention)
        probe = torch.zeros(1, 1, 256, _FLEX_LEAST_HEAD, device="cuda", requires_grad=True)
        compiled(probe, probe, probe, block_mask=_band(256, 128, probe.device), scale=_SCALE).sum().backward()
    except Exception as error:  # no compiler, no Triton, an old GPU: many kinds of error, one answer
        log.info("flex_attention is not to be had here (%s): local layers go in blocks", type(error).__name__)
        return None
    return compiled


@cache
def _band(length: int, window: int, device: torch.device) -> Any:
    from torch.nn.attention.flex_attention import create_block_mask

    def sees(batch: Tensor, head: Tensor, query: Tensor, key: Tensor) -> Tensor:
        return (key <= query) & (key > query - window)

    return create_block_mask(sees, None, None, length, length, device=str(device))
