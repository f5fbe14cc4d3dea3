"""Benchmark training of the zoo's GPT-Neo, compared with transformers' model, in float32 on a CPU.

The limit is the time that the model's operations would take at the FLOP/s of one large matrix product.
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

_SIDE = 2048  # size of the square matrices of the large product
_BATCH = 2
_NAMES = ("the zoo's", "transformers'")
_LIMIT = "its operations as one product"


def benchmark(quick: bool) -> Record:
    """Time the body's forward pass and a training step of both models."""
    sizes = {"depth": 2, "width": 64, "vocabulary": 2_000, "chunk_length": 256}
    if not quick:
        sizes = {"depth": 4, "width": 256, "vocabulary": 50_257, "chunk_length": 2_048}
    recipe = Recipe(**sizes)
    record = Record("train", "The zoo's GPT-Neo, and transformers' own.")
    body = recipe.flops_per_token() / 3 - 2 * recipe.vocabulary * recipe.width  # a forward pass without the head
    _add(record, "body forward, float32", {name: _forward(name, recipe) for name in _NAMES}, body, recipe, {})
    peaks = {name: peak_growth(prepared, which=name, **sizes) for name in _NAMES}
    works = {name: _step(name, recipe) for name in _NAMES}
    _add(record, "training step, float32", works, recipe.flops_per_token(), recipe, peaks)
    return record


def _add(
    record: Record,
    what: str,
    works: dict[str, Callable[[], object]],
    flops: float,
    recipe: Recipe,
    peaks: dict[str, int | None],
) -> None:
    """Time both models and one large product in turn; scale the product's time to ``flops`` per token for the limit."""
    square = torch.randn(_SIDE, _SIDE)
    times = in_turn({_LIMIT: lambda: torch.mm(square, square), **works}, 2)
    tokens = _BATCH * recipe.chunk_length
    times[_LIMIT] *= flops * tokens / (2 * _SIDE**3)
    title = f"{what}, GPT-Neo {recipe.depth}x{recipe.width}, {_BATCH} × {recipe.chunk_length:,} tokens"
    record.add(title, times, amount=tokens, unit="tokens", limit=_LIMIT, peaks=peaks)


def _prepared(which: str, recipe: Recipe) -> tuple[Any, Tensor]:
    """Return the zoo's model, or transformers' with the same weights, and random tokens."""
    transformers.set_seed(recipe.seed)
    model = build(recipe) if which == _NAMES[0] else transformers.GPTNeoForCausalLM(recipe.configuration())
    return model, torch.randint(recipe.vocabulary, (_BATCH, recipe.chunk_length))


def _forward(which: str, recipe: Recipe) -> Callable[[], object]:
    """Return a function that runs the forward pass of a model's body."""
    model, tokens_BT = _prepared(which, recipe)
    return torch.inference_mode()(lambda: model.transformer(tokens_BT, use_cache=False))


def _step(which: str, recipe: Recipe) -> Callable[[], None]:
    """Return a function that makes one training step of a model."""
    model, tokens_BT = _prepared(which, recipe)
    optimizer = torch.optim.AdamW(model.parameters())

    def step() -> None:
        model(tokens_BT, labels=tokens_BT).loss.backward()
        optimizer.step()
        optimizer.zero_grad()

    return step


def prepared(which: str, **sizes: int) -> Callable[[], object]:
    """Return a function that makes the first training step of a model, to measure its peak memory."""
    return _step(which, Recipe(**sizes))
