"""Training with the zoo's GPT-Neo against transformers' own model, on a CPU.

The body's forward in float32, and a training step in bfloat16, or in float32 where the processor multiplies bfloat16
more slowly. The limit is the model's operations at the rate of one large product.
"""

from collections.abc import Callable
from typing import Any

import torch
import transformers
from torch import Tensor

from benchmarks.record import Record
from benchmarks.timing import in_turn, peak_growth
from collapse_zoo.model import build
from collapse_zoo.recipes import Recipe

_SIDE = 2048  # of the square matrices of which the rate of products is taken
_BATCH = 2
_NAMES = ("the zoo's", "transformers'")
_LIMIT = "its operations as one product"


def benchmark(quick: bool) -> Record:
    """Compare both models."""
    sizes = {"depth": 2, "width": 64, "vocabulary": 2_000, "chunk_length": 256}
    if not quick:
        sizes = {"depth": 4, "width": 256, "vocabulary": 50_257, "chunk_length": 2_048}
    recipe = Recipe(**sizes)
    record = Record("train", "The zoo's GPT-Neo, and transformers' own.")
    body = recipe.flops_per_token() / 3 - 2 * recipe.vocabulary * recipe.width  # a forward pass without the head
    works = {name: _forward(_model(name, recipe), _tokens(recipe)) for name in _NAMES}
    _add(record, "body forward, float32", works, torch.float32, body, recipe, {})
    dtype = _step_dtype()
    kind = str(dtype).removeprefix("torch.")
    works = {name: _step(_model(name, recipe), _tokens(recipe), dtype) for name in _NAMES}
    peaks = {name: peak_growth("benchmarks.train:prepared", which=name, kind=kind, **sizes) for name in _NAMES}
    _add(record, f"training step, {kind}", works, dtype, recipe.flops_per_token(), recipe, peaks)
    return record


def _add(
    record: Record,
    what: str,
    works: dict[str, Callable[[], object]],
    dtype: torch.dtype,
    flops: float,
    recipe: Recipe,
    peaks: dict[str, int | None],
) -> None:
    """Time both models in turn with one product in the dtype, whose rate is the limit."""
    square = torch.randn(_SIDE, _SIDE).to(dtype)
    times = in_turn({_LIMIT: lambda: torch.mm(square, square), **works}, 2)
    tokens = _BATCH * recipe.chunk_length
    times[_LIMIT] *= flops * tokens / (2 * _SIDE**3)
    title = f"{what}, GPT-Neo {recipe.depth}x{recipe.width}, {_BATCH} × {recipe.chunk_length:,} tokens"
    record.add(title, times, amount=tokens, unit="tokens", limit=_LIMIT, peaks=peaks)


def _model(which: str, recipe: Recipe) -> Any:
    """Return the zoo's model, or transformers' with the same weights."""
    if which == _NAMES[0]:
        return build(recipe)
    transformers.set_seed(recipe.seed)
    return transformers.GPTNeoForCausalLM(recipe.configuration())


def _forward(model: Any, tokens_BT: Tensor) -> Callable[[], object]:
    """Return the forward pass of the body."""
    return torch.inference_mode()(lambda: model.transformer(tokens_BT, use_cache=False))


def _step(model: Any, tokens_BT: Tensor, dtype: torch.dtype) -> Callable[[], None]:
    """Return a training step in bfloat16 or float32."""
    optimizer = torch.optim.AdamW(model.parameters())

    def step() -> None:
        with torch.autocast("cpu", torch.bfloat16, enabled=dtype == torch.bfloat16):
            loss = model(tokens_BT, labels=tokens_BT).loss
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()

    return step


def _step_dtype() -> torch.dtype:
    """Return bfloat16, or float32 where a processor has no instructions for bfloat16 and is slower with it."""
    squares = [torch.randn(256, 256).to(dtype) for dtype in (torch.bfloat16, torch.float32)]
    times = in_turn({str(each.dtype): lambda each=each: torch.mm(each, each) for each in squares}, 3)
    return min(squares, key=lambda each: times[str(each.dtype)]).dtype


def prepared(which: str, kind: str, **sizes: int) -> Callable[[], object]:
    """Return a piece of work whose peak is that of the first step of a model, in the dtype of this name."""
    recipe = Recipe(**sizes)
    return _step(_model(which, recipe), _tokens(recipe), getattr(torch, kind))


def _tokens(recipe: Recipe) -> Tensor:
    draw = torch.Generator().manual_seed(0)
    return torch.randint(recipe.vocabulary, (_BATCH, recipe.chunk_length), generator=draw)
