"""Check a loaded model: it must be causal, and its logits must be ⟨w, h⟩ + b, possibly scaled or capped.

h is an embedding. w and b are the row and the bias of a token in the head; W has all rows.
"""

import math
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor

from collapse.errors import CollapseError
from collapse.numerics.logits import LINEAR, Logits

if TYPE_CHECKING:
    from collapse.inputs.language_model import LanguageModel

# Largest difference that rounding can cause between h·Wᵀ + b (scaled and capped) and the model's own logits, relative
# to the largest logit.
_HEAD_TOLERANCE = {torch.float64: 1e-10, torch.float32: 1e-4, torch.bfloat16: 1e-2, torch.float16: 2e-3}
TOLERANCE = {torch.float64: 1e-8, torch.float32: 1e-4, torch.bfloat16: 2e-2, torch.float16: 5e-3}
"""Largest relative change of an embedding that rounding can cause, for example if experts are grouped differently."""
_QUANTIZED_TOLERANCE = 0.25
"""Largest relative change of an embedding that rounding can cause in a quantized model. LLM.int8 also rounds
activations, depending on outliers in the whole batch. This changed the embeddings of a Llama with 16 blocks by 0.07."""
CHECKED_TOKENS, _PROBED_TOKENS = 256, 8


@torch.no_grad()
def find_logits(loaded: "LanguageModel", tokens_BT: Int[Tensor, "B T"]) -> Logits:
    """Find the scale and the cap of a model's logits: run its code with known numbers as the output of its head.

    The model's code rounds to the model's dtype. So scale and cap are compared with the numbers in the model's
    configuration; the scale is also compared with the reciprocals of these numbers. A number that is equal up to
    rounding replaces the scale or cap that was found. So the result is the same in every dtype.

    Return ``LINEAR`` (no scale and no cap) if the model does not call its head, or if the model's logits are not finite
    or do not have the shape of the head's output; :func:`check_model` then reports the reason.

    Raises:
        CollapseError: The model changes the head's output in another way than by a scale and a cap.
    """
    given: list[Tensor] = []

    def replace(module: torch.nn.Module, inputs: Any, output: Tensor) -> Tensor:
        half = 8 if output.dtype == torch.float16 else 64  # far below and far above every cap
        numbers = [2.0**-half, 2.0**half, *(sign * 1.5 * 2.0**power for power in range(-4, 9) for sign in (1, -1))]
        at = torch.arange(output.numel(), device=output.device) % len(numbers)
        given.append(output.new_tensor(numbers)[at].reshape(output.shape))
        return given[0]

    handle = loaded.model.get_output_embeddings().register_forward_hook(replace)
    try:
        logits = loaded.run(tokens_BT[:1, :_PROBED_TOKENS]).logits.to(loaded.device)
    finally:
        handle.remove()
    if not given or logits.shape != given[0].shape or not logits.isfinite().all():
        return LINEAR  # check_model() says why the model cannot be measured
    allowed, numbers = rounding_of(given[0], logits), [*_numbers(loaded.model.config.to_dict())]
    rounding = max(torch.finfo(each.dtype).eps for each in (given[0], logits))
    z, g = given[0].double().flatten(), logits.to(given[0].device).double().flatten()
    slope, limit = float(g[0] / z[0]), float(g[1])
    scale = 1.0 if slope == 1 else _exact(slope, [*numbers, *(1 / each for each in numbers if each)], rounding)
    is_capped = abs(limit - scale * float(z[1])) > allowed * abs(limit)
    found = Logits(scale, _exact(limit, numbers, rounding) if is_capped else None)
    if bool(((found.capped(found.scale * z) - g).abs() > allowed * g.abs()).any()):
        raise _not_linear(loaded)
    return found


def _numbers(config: Any) -> Iterator[float]:
    """Yield all numbers in a configuration, also those in nested mappings and lists."""
    if isinstance(config, Mapping | list | tuple):
        for each in config.values() if isinstance(config, Mapping) else config:
            yield from _numbers(each)
    elif isinstance(config, int | float):
        yield float(config)


def _exact(measured: float, numbers: Iterable[float], rounding: float) -> float:
    """Return the nearest of ``numbers`` if its relative distance to ``measured`` is at most ``rounding``.

    Otherwise, return ``measured``.
    """
    nearest = min(numbers, key=lambda each: abs(each - measured), default=measured)
    return nearest if abs(nearest - measured) <= rounding * abs(measured) else measured


@torch.no_grad()
def check_model(loaded: "LanguageModel", tokens_BT: Int[Tensor, "B T"]) -> None:
    """Run a model on the start of the first chunk, and check whether it is causal and gives the expected logits.

    If an embedding is not finite, these checks are skipped, and the collection reports the embedding.

    Raises:
        CollapseError: The model is not causal, its logits are not those of ``loaded.logits``, or they are not finite.
    """
    tokens = tokens_BT[:1, :CHECKED_TOKENS]
    h = loaded.embeddings(tokens)
    if torch.isfinite(h).all():  # otherwise the passes report the chunk and the sample
        _check_causal(loaded, tokens, h)
        _check_head(loaded, tokens, h)


def _check_causal(loaded: "LanguageModel", tokens: Tensor, h: Tensor) -> None:
    """Replace the second half of the tokens, and check that the embeddings of the first half do not change."""
    half = tokens.shape[1] // 2
    other = tokens.clone()
    other[:, half:] = (other[:, half:] + 1) % loaded.input_rows
    moved = change_of(h[:, :half], loaded.embeddings(other)[:, :half])
    typical = float(moved.median())  # a few embeddings may change if two experts have almost equal scores
    if typical > (_QUANTIZED_TOLERANCE if loaded.is_quantized else TOLERANCE[h.dtype]):
        raise CollapseError(
            f"{type(loaded.model).__name__} is not causal: later tokens change its embeddings by {typical:.2g} of "
            "their norm. Use a causal model; models such as BERT are causal with --model-arg is_decoder=true"
        )


def _check_head(loaded: "LanguageModel", tokens: Tensor, h: Tensor) -> None:
    """Check that h·Wᵀ + b, after scaling and capping, equals the model's own logits up to rounding."""
    logits = loaded.run(tokens).logits.to(h.device)
    ours = F.linear(h, loaded.weight, loaded.bias)
    allowed = rounding_of(ours, logits, quantized=loaded.is_quantized)
    own = logits.double()
    largest = float(own.abs().max())
    if not math.isfinite(largest):
        raise CollapseError(
            f"{type(loaded.model).__name__} gives logits that are NaN or infinite, from finite embeddings: "
            f"{'check its weights and code' if h.dtype == torch.float32 else 'try --dtype float32'}"
        )
    expected = loaded.logits.capped(ours.double() * loaded.logits.scale)
    if expected.shape != own.shape or float((expected - own).abs().max()) > allowed * largest:
        raise _not_linear(loaded)


def _not_linear(loaded: "LanguageModel") -> CollapseError:
    return CollapseError(
        f"{type(loaded.model).__name__} cannot be measured: its logits are not ⟨w, h⟩ + b with its output embedding w "
        "(a constant factor and a tanh cap are supported). Use a model with such a head"
    )


def change_of(h: Float[Tensor, "... d"], other: Float[Tensor, "... d"]) -> Float[Tensor, "..."]:
    """Return ‖h − other‖ / ‖h‖ for each embedding."""
    before = h.double()
    return (before - other.double()).norm(dim=-1) / before.norm(dim=-1).clamp(min=1e-300)


def rounding_of(head: Tensor, logits: Tensor, *, quantized: bool = False) -> float:
    """Return the largest error of logits, relative to the largest logit, that rounding can cause.

    The error depends on two dtypes: that of ``head``, the head's input or output, and that of the model's ``logits``.
    If the model is ``quantized``, the result is the error of bfloat16, whatever these dtypes are.
    """
    dtypes = [torch.bfloat16] if quantized else [head.dtype, logits.dtype]
    return max(_HEAD_TOLERANCE[each] for each in dtypes)
