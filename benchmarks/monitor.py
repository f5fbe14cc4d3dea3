"""Benchmark updates of the monitor, and a measurement by the callback compared with the training steps.

Updates run on one thread. They are compared with a copy of the embeddings as float64 and, if the package
neural-collapse (github.com/rhubarbwu/neural-collapse) is installed, with its mean and variance accumulators.
"""

import itertools
from collections.abc import Callable, Iterable
from importlib.util import find_spec
from tempfile import TemporaryDirectory
from typing import Any

import torch
import transformers
from torch import Tensor
from torch.utils.data import DataLoader

from benchmarks.record import Record
from benchmarks.timing import in_turn
from collapse import Monitor
from collapse.monitoring.recorder import Recorder
from collapse_zoo.model import build
from collapse_zoo.recipes import Recipe

_UPDATES = 16
_EVERY, _MEASURED = 500, 32  # the defaults of the callback
_BATCH = 2
_THEIRS = "package neural-collapse: means and variances"


def benchmark(quick: bool) -> Record:
    """Time updates of the monitor, and a measurement during training."""
    record = Record(
        "monitor", "Updates of the monitor on one thread, and one measurement by the callback with its default options."
    )
    _add_updates(record, quick)
    _add_callback(record, quick)
    return record


def _add_updates(record: Record, quick: bool) -> None:
    """Time updates with batches whose labels are drawn uniformly."""
    C, d, B = (100, 64, 64) if quick else (1_000, 512, 512)
    draw = torch.Generator().manual_seed(0)
    batches = [(torch.randn(B, d, generator=draw), torch.randint(C, (B,), generator=draw)) for _ in range(_UPDATES)]
    copied = torch.empty(B, d, dtype=torch.float64)
    works: dict[str, Callable[[Tensor, Tensor], object]] = {
        "copy as float64": lambda h, _: copied.copy_(h),
        "monitor": Monitor("nc1.cdnv,nc2,nc3", classes=C).update,
        "monitor, unknown classes": Monitor("nc1.cdnv,nc2,nc3").update,
    }
    if find_spec("neural_collapse"):
        from neural_collapse.accumulate import MeanAccumulator, VarNormAccumulator

        theirs, means = MeanAccumulator(C, d), torch.zeros(C, d)
        variances = VarNormAccumulator(C, d, M=means)
        works[_THEIRS] = lambda h, y: (theirs.accumulate(h, y), variances.accumulate(h, y, means))
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    times = in_turn({name: _over(batches, work) for name, work in works.items()}, 10 if quick else 100)
    torch.set_num_threads(threads)
    record.add(
        f"{_UPDATES} batches of {B:,} samples, C = {C:,}, d = {d:,}",
        times,
        amount=_UPDATES * B,
        unit="samples",
        limit="copy as float64",
    )


def _over(batches: Iterable[tuple[Tensor, Tensor]], work: Callable[[Tensor, Tensor], object]) -> Callable[[], None]:
    """Return a function that calls ``work`` with each batch."""

    def over() -> None:
        for h, y in batches:
            work(h, y)

    return over


def _add_callback(record: Record, quick: bool) -> None:
    """Time a training step of a GPT-Neo 2x128, and a measurement, on tokens that are drawn by Zipf's law."""
    V, T = (2_000, 64) if quick else (50_257, 2_048)
    recipe = Recipe(depth=2, width=128, vocabulary=V, chunk_length=T)
    transformers.set_seed(0)
    model: Any = build(recipe)
    optimizer = torch.optim.AdamW(model.parameters())
    zipf = 1 / torch.arange(1, V + 1, dtype=torch.float64)
    chunks = torch.multinomial(zipf, 2 * _MEASURED * _BATCH * T, replacement=True).view(-1, T)
    loader = DataLoader([{"input_ids": each, "labels": each} for each in chunks], batch_size=_BATCH)
    batches = itertools.cycle(loader)

    def step() -> None:
        model(**next(batches)).loss.backward()
        optimizer.step()
        optimizer.zero_grad()

    recorder = Recorder(_EVERY, None, _MEASURED, None, Monitor(), None)
    with TemporaryDirectory() as folder:
        works = {"a training step": step, "one measurement": lambda: recorder.measure(model, loader, 0, folder)}
        times = in_turn(works, 2)
    row = recorder.monitor.to_row()
    times = {f"{_EVERY} training steps": _EVERY * times["a training step"], "one measurement": times["one measurement"]}
    share = times["one measurement"] / times[f"{_EVERY} training steps"]
    title = f"GPT-Neo 2x128, {_BATCH} × {T:,} tokens, C = {row.classes:,}"
    record.add(title, times)
    record.notes.append(f"{_MEASURED} batches measured every {_EVERY} steps cost {share:.2%} of the steps' time")
