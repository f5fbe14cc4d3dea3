"""Training with the zoo's GPT-Neo: on a CPU against transformers' own model, on a GPU against the rate of its GEMM.

On the CPU: the body's forward in float32, and a training step in bfloat16, or in float32 where the processor multiplies
bfloat16 more slowly; times in turn, each peak in a process of its own. On CUDA, where there is one, see train_gpu.py.
"""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import torch
import transformers
from torch import Tensor

from benchmarks import train_gpu
from benchmarks.memory import peak_growth
from benchmarks.options import Options
from benchmarks.record import Goal, Record, Row, Table
from benchmarks.timing import in_turn
from collapse.errors import UsageError
from collapse_zoo.model import build
from collapse_zoo.recipes import Recipe

_SIDE = 2048
"""Of the square matrices of which the rate of products is taken."""


def benchmark(options: Options) -> Record:
    """Compare both models on the CPU, and measure the zoo's on a GPU where there is one."""
    if options.compile and not torch.cuda.is_available():
        raise UsageError("--compile compiles what is trained on a GPU, and there is no CUDA device")
    sizes = {"depth": 2, "width": 64, "vocabulary": 2_000, "chunk_length": 256, "batch": 2}
    if not options.quick:
        sizes = {"depth": 4, "width": 256, "vocabulary": 50_257, "chunk_length": 2_048, "batch": 2}
    record = Record("train", "The zoo's GPT-Neo, and transformers' own.", [])
    _forward(record, sizes, rounds=2, quick=options.quick)
    _step(record, sizes, rounds=2, quick=options.quick)
    if torch.cuda.is_available():
        train_gpu.add(record, options)
        record.run["gpu"] = torch.cuda.get_device_name()
    else:
        record.notes.append("no CUDA device: training on a GPU is not measured")
    return record


def _forward(record: Record, sizes: dict[str, int], *, rounds: int, quick: bool) -> None:
    recipe, tokens_BT = _recipe(sizes), _tokens(sizes)
    works = {"ours": forward(ours(recipe), tokens_BT), "own": forward(own(recipe), tokens_BT)}
    flops = recipe.flops_per_token() / 3 - 2 * recipe.vocabulary * recipe.width  # without the head
    table, times = _table("body forward, float32", works, torch.float32, flops, sizes, rounds)
    record.tables.append(table)
    if not quick:
        record.goals.append(Goal("forward faster than transformers'", times["own"] / times["ours"], 6, at_least=True))


def _step(record: Record, sizes: dict[str, int], *, rounds: int, quick: bool) -> None:
    recipe, tokens_BT = _recipe(sizes), _tokens(sizes)
    dtype = _step_dtype()
    works = {"ours": step(ours(recipe), tokens_BT, dtype), "own": step(own(recipe), tokens_BT, dtype)}
    kind = str(dtype).removeprefix("torch.")
    peaks = {}
    for which in () if quick else works:
        peaks[which] = peak_growth("benchmarks.train:prepared", which=which, kind=kind, **sizes)
    what = f"training step, {kind}"
    table, times = _table(what, works, dtype, recipe.flops_per_token(), sizes, rounds, peaks)
    record.tables.append(table)
    if not quick:
        record.goals.append(Goal("step faster than transformers'", times["own"] / times["ours"], 2.5, at_least=True))
        if peaks["ours"] and peaks["own"]:
            smaller = peaks["own"] / peaks["ours"]
            record.goals.append(Goal("growth of a step smaller than transformers'", smaller, 2, at_least=True))


def _table(
    what: str,
    works: Mapping[str, Callable[[], object]],
    dtype: torch.dtype,
    flops: float,
    sizes: dict[str, int],
    rounds: int,
    peaks: dict[str, int | None] | None = None,
) -> tuple[Table, dict[str, float]]:
    """Time both models in turn with one product in the dtype, whose rate is the limit."""
    square = torch.randn(_SIDE, _SIDE).to(dtype)
    times = in_turn({"product": lambda: torch.mm(square, square), **works}, rounds)
    rate, tokens = 2 * _SIDE**3 / times["product"], sizes["batch"] * sizes["chunk_length"]
    names = {"ours": "the zoo's", "own": "transformers'"}
    rows = [
        Row(
            who,
            times[name],
            tokens / times[name],
            flops * tokens / times[name] / rate,
            (peaks or {}).get(name),
        )
        for name, who in names.items()
    ]
    size = f"{sizes['depth']}x{sizes['width']}, {sizes['batch']} × {sizes['chunk_length']:,} tokens"
    limit = f"the model's operations at the rate of one product in {str(dtype)[6:]}, {rate / 1e9:,.3g} GFLOP/s"
    return Table(f"{what}, GPT-Neo {size}", rows, unit="tokens", limit=limit), times


def ours(recipe: Recipe) -> Any:
    """Return the zoo's model."""
    return build(recipe)


def own(recipe: Recipe) -> Any:
    """Return transformers' model with the same weights."""
    transformers.set_seed(recipe.seed)
    return transformers.GPTNeoForCausalLM(recipe.configuration())


def forward(model: Any, tokens_BT: Tensor) -> Callable[[], None]:
    """Return the forward pass of the body."""

    @torch.inference_mode()
    def forward() -> None:
        model.transformer(tokens_BT, use_cache=False)

    return forward


def step(model: Any, tokens_BT: Tensor, dtype: torch.dtype) -> Callable[[], None]:
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
    squares = {dtype: torch.randn(256, 256).to(dtype) for dtype in (torch.bfloat16, torch.float32)}
    times = in_turn({str(dtype): partial(torch.mm, x, x) for dtype, x in squares.items()}, 3)
    return min(squares, key=lambda dtype: times[str(dtype)])


def prepared(which: str, kind: str, **sizes: int) -> Callable[[], None]:
    """Return a piece of work whose peak is that of the first step of a model, in the dtype of this name."""
    return step({"ours": ours, "own": own}[which](_recipe(sizes)), _tokens(sizes), getattr(torch, kind))


def _recipe(sizes: dict[str, int]) -> Recipe:
    depth, width, vocabulary, length = (sizes[name] for name in ("depth", "width", "vocabulary", "chunk_length"))
    return Recipe(depth=depth, width=width, vocabulary=vocabulary, chunk_length=length)


def _tokens(sizes: dict[str, int]) -> Tensor:
    draw = torch.Generator().manual_seed(0)
    return torch.randint(sizes["vocabulary"], (sizes["batch"], sizes["chunk_length"]), generator=draw)
