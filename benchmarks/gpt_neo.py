"""The zoo's GPT-Neo against transformers' own: forward of the body, a training step in bfloat16, and peak memory.

Times are taken in one process, in turn; each peak in a process of its own.

    python benchmarks/gpt_neo.py [--depth 4 --width 256 --chunk-length 2048 --batch 2 --threads 2] [--output FILE]
"""

import argparse
import resource
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

import psutil
import torch
import transformers
from _report import report

from collapse_zoo.model import build
from collapse_zoo.recipes import Recipe

ROUNDS = 5


def main() -> None:
    """Print the ratios and write them."""
    parser = argparse.ArgumentParser(description=__doc__)
    for name, value in (("depth", 4), ("width", 256), ("chunk-length", 2048), ("batch", 2), ("threads", 2)):
        parser.add_argument(f"--{name}", type=int, default=value)
    parser.add_argument("--peak", choices=("ours", "own"), help="only take one training step and print the peak")
    parser.add_argument("--output")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    recipe = Recipe(depth=options.depth, width=options.width, vocabulary=50_257, chunk_length=options.chunk_length)
    tokens_BT = torch.randint(50_257, (options.batch, options.chunk_length), generator=torch.Generator().manual_seed(0))
    if options.peak:
        model = _ours(recipe) if options.peak == "ours" else _own(recipe)
        before = psutil.Process().memory_info().rss
        _step(model, tokens_BT)()
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
        print(peak, peak - before)  # noqa: T201  # read by the process that asked
        return
    peaks = [_peak(which) for which in ("ours", "own")]  # first: a child's peak begins at its parent's size
    ours, own = _ours(recipe), _own(recipe)
    forward = _in_turn(_forward(ours, tokens_BT), _forward(own, tokens_BT))
    step = _in_turn(_step(ours, tokens_BT), _step(own, tokens_BT))
    figures = {
        "model": f"{recipe.depth}x{recipe.width}, T = {recipe.chunk_length}, batch {options.batch}",
        "body_forward_float32_seconds": forward[0],
        "transformers_body_forward_seconds": forward[1],
        "forward_times_faster (goal 6)": forward[1] / forward[0],
        "step_bfloat16_seconds": step[0],
        "transformers_step_seconds": step[1],
        "step_times_faster (goal 2.5)": step[1] / step[0],
        "process_peak_gib": peaks[0][0] / 2**30,
        "transformers_process_peak_gib": peaks[1][0] / 2**30,
        "peak_times_smaller (goal 2)": peaks[1][0] / peaks[0][0],
        "added_by_step_gib": peaks[0][1] / 2**30,
        "transformers_added_by_step_gib": peaks[1][1] / 2**30,
    }
    report("gpt_neo", options.output, figures)


def _ours(recipe: Recipe) -> Any:
    return build(recipe)


def _own(recipe: Recipe) -> Any:
    transformers.set_seed(recipe.seed)
    return transformers.GPTNeoForCausalLM(recipe.configuration())


def _forward(model: Any, tokens_BT: torch.Tensor) -> Callable[[], None]:
    @torch.inference_mode()
    def forward() -> None:
        model.transformer(tokens_BT, use_cache=False)

    return forward


def _step(model: Any, tokens_BT: torch.Tensor) -> Callable[[], None]:
    optimizer = torch.optim.AdamW(model.parameters())

    def step() -> None:
        with torch.autocast("cpu", torch.bfloat16):
            loss = model(tokens_BT, labels=tokens_BT).loss
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()

    return step


def _in_turn(*functions: Callable[[], None]) -> list[float]:
    """The best time of each, in seconds, after one round that does not count."""
    best = [float("inf")] * len(functions)
    for round_ in range(ROUNDS + 1):
        for index, function in enumerate(functions):
            start = time.perf_counter()
            function()
            if round_:
                best[index] = min(best[index], time.perf_counter() - start)
    return best


def _peak(which: str) -> tuple[int, int]:
    """The largest size of a process that takes a training step, and how much of it the step added; bytes."""
    done = subprocess.run([sys.executable, *sys.argv, "--peak", which], capture_output=True, text=True, check=True)
    whole, added = map(int, done.stdout.split())
    return whole, added


if __name__ == "__main__":
    main()
