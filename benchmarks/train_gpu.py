"""Training on one GPU: tokens a second, and the share of the measured rate of a bfloat16 product.

Random tokens, the paper's batch; steps as the zoo takes them (bfloat16, AdamW, clipping), timed after a warm-up.
Operations a token: 6·(parameters of blocks and head) + 12·d·Σ over layers of the mean attended keys.
"""

import time
from typing import Any

import torch

from benchmarks.options import Options
from benchmarks.record import Goal, Record, Row, Table
from collapse_zoo.model import build
from collapse_zoo.recipes import Recipe, parse

_SIDE = 8192
_SAMPLES = 469_514_249  # of one pass over TinyStories
_MODELS = ("12x1024", "2x768")


def add(record: Record, options: Options, device: str = "cuda") -> None:
    """Add a table of the paper's largest model and of a common one, and the goal."""
    steps, warm_up = (3, 2) if options.quick else (100, 20)
    rate = _rate_of_products(device)
    rows = []
    for name in _MODELS[-1:] if options.quick else _MODELS:
        recipe = parse(name).recipe()
        seconds, peak = _seconds_a_step(recipe, device, steps, warm_up, options.compile)
        tokens = recipe.batch_size * recipe.chunk_length / seconds
        share = tokens * recipe.flops_per_token() / rate
        rows.append(Row(f"step of {name}, {recipe.batch_size} × {recipe.chunk_length:,}", seconds, tokens, share, peak))
        if not options.quick:
            record.goals.append(Goal(f"training {name}, share of the limit", 100 * share, 40, "%", at_least=True))
        record.notes.append(f"{name}: {_SAMPLES / tokens / 3600:.2f} hours for {_SAMPLES:,} tokens")
    limit = f"the model's operations at the rate of one bfloat16 product, {rate / 1e12:,.0f} TFLOP/s"
    title = f"training on the GPU, bfloat16{', compiled' if options.compile else ''}"
    record.tables.append(Table(title, rows, unit="tokens", limit=limit))


def _rate_of_products(device: str) -> float:
    """Return operations a second of a large product of bfloat16 matrices."""
    square = torch.randn(_SIDE, _SIDE, device=device, dtype=torch.bfloat16)
    out, rounds = torch.empty_like(square), 50
    for _ in range(10):
        torch.mm(square, square, out=out)
    _settle(device)
    start = time.perf_counter()
    for _ in range(rounds):
        torch.mm(square, square, out=out)
    _settle(device)
    return 2 * _SIDE**3 * rounds / (time.perf_counter() - start)


def _seconds_a_step(recipe: Recipe, device: str, steps: int, warm_up: int, compiled: bool) -> tuple[float, int | None]:
    """Return the mean over all timed steps, and the largest memory on the GPU."""
    model: Any = build(recipe).to(device).train()
    if compiled:
        model = torch.compile(model)
    optimizer = torch.optim.AdamW(model.parameters(), lr=recipe.learning_rate, fused=device == "cuda")
    tokens_BT = torch.randint(recipe.vocabulary, (recipe.batch_size, recipe.chunk_length), device=device)
    start = 0.0
    if device == "cuda":
        torch.cuda.reset_peak_memory_stats()
    for step in range(warm_up + steps):
        if step == warm_up:
            _settle(device)
            start = time.perf_counter()
        with torch.autocast(device, torch.bfloat16):
            loss = model(tokens_BT, labels=tokens_BT).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), recipe.max_grad_norm)
        optimizer.step()
        optimizer.zero_grad()
    _settle(device)
    peak = torch.cuda.max_memory_allocated() if device == "cuda" else None
    return (time.perf_counter() - start) / steps, peak


def _settle(device: str) -> None:
    if device == "cuda":
        torch.cuda.synchronize()
