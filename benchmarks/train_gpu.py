"""Training on one GPU: tokens a second, and the share of its arithmetic that the model's own operations are.

Random tokens, the paper's batch; steps as the zoo takes them (bfloat16, AdamW, clipping), timed after a warm-up.
Operations a token: 6·(parameters of blocks and head) + 12·d·Σ over layers of the mean attended keys.

    python benchmarks/train_gpu.py [--model 12x1024 2x768] [--steps 100] [--batch 0] [--compile] [--peak-tflops 989]
"""

import argparse
import time
from typing import Any

import torch
from _report import report

from collapse_zoo.model import build
from collapse_zoo.names import parse
from collapse_zoo.recipes import Recipe


def main() -> None:
    """Print the figures and write them."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", nargs="+", default=["12x1024", "2x768"])
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--warm-up", type=int, default=20)
    parser.add_argument("--batch", type=int, default=0, help="chunks a step; 0 for the paper's")
    parser.add_argument("--chunk-length", type=int, default=2048)
    parser.add_argument("--compile", action="store_true")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--peak-tflops", type=float, default=989.0, help="of the GPU in bfloat16; an H200 has 989")
    parser.add_argument("--output")
    options = parser.parse_args()
    figures: dict[str, Any] = {"gpu_peak_tflops": options.peak_tflops, "compiled": options.compile}
    for model in options.model:
        recipe = parse(model).recipe(batch_size=options.batch or None, chunk_length=options.chunk_length)
        seconds, loss = _seconds_a_step(recipe, options)
        tokens = recipe.batch_size * recipe.chunk_length / seconds
        utilization = tokens * recipe.flops_per_token() / (options.peak_tflops * 1e12)
        figures[model] = {
            "batch": f"{recipe.batch_size} x {recipe.chunk_length}",
            "steps": options.steps,
            "tokens_per_second": round(tokens),
            "flops_per_token": round(recipe.flops_per_token()),
            "flops_utilization": round(utilization, 4),
            "last_loss": round(loss, 4),
        }
    report("train_gpu", options.output, figures)


def _seconds_a_step(recipe: Recipe, options: argparse.Namespace) -> tuple[float, float]:
    """The mean over all timed steps, and the last loss."""
    model: Any = build(recipe).to(options.device).train()
    if options.compile:
        model = torch.compile(model)
    optimizer = torch.optim.AdamW(model.parameters(), lr=recipe.learning_rate, fused=options.device == "cuda")
    shape = (recipe.batch_size, recipe.chunk_length)
    tokens_BT = torch.randint(recipe.vocabulary, shape, device=options.device)
    start, loss = 0.0, float("nan")
    for step in range(options.warm_up + options.steps):
        if step == options.warm_up:
            _settle(options.device)
            start = time.perf_counter()
        with torch.autocast(options.device, torch.bfloat16):
            computed = model(tokens_BT, labels=tokens_BT).loss
        computed.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), recipe.max_grad_norm)
        optimizer.step()
        optimizer.zero_grad()
        loss = computed.detach()
    _settle(options.device)
    return (time.perf_counter() - start) / options.steps, float(loss)


def _settle(device: str) -> None:
    if device == "cuda":
        torch.cuda.synchronize()


if __name__ == "__main__":
    main()
