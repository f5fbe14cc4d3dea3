"""Class moments of batches, against a copy of the embeddings and a bare ``index_add_`` of the same batches.

The copy, from float32 to float64 as the accumulator needs it, is the limit: the embeddings are read and written once.
"""

import itertools
from collections.abc import Callable

import torch
from torch import Tensor

from benchmarks.memory import in_turn, peak_growth
from benchmarks.record import Goal, Record, Row, Table
from collapse.numerics.accumulate import ClassMoments


def benchmark(quick: bool) -> Record:
    """Measure one size."""
    sizes = {"C": 1_000, "d": 64, "N": 512} if quick else {"C": 29_233, "d": 768, "N": 2_047}
    times = _timed(sizes, 20 if quick else 100)
    peak = None if quick else peak_growth("benchmarks.accumulate:prepared", **sizes)
    names = {"copy": "copy as float64", "bare": "bare index_add_", "ours": "class moments"}
    rows = [
        Row(what, times[name], sizes["N"] / times[name], times["copy"] / times[name], peak if name == "ours" else None)
        for name, what in names.items()
    ]
    title = f"batches of {sizes['N']:,} samples, C = {sizes['C']:,}, d = {sizes['d']:,}"
    return Record(
        "accumulate",
        "Counts, means and variances of the classes of a batch, whose labels are drawn by Zipf's law.",
        [Table(title, rows, unit="samples", limit="the copy of the embeddings")],
        [] if quick else [Goal("class moments over index_add_", times["ours"] / times["bare"], 8)],
    )


def _timed(sizes: dict[str, int], rounds: int) -> dict[str, float]:
    embeddings, labels = _batches(sizes, rounds + 1)
    moments = _grown(sizes, embeddings, labels)
    sums = torch.zeros(sizes["C"], sizes["d"], dtype=torch.float64)
    copied = torch.empty(sizes["N"], sizes["d"], dtype=torch.float64)

    def turn(work: Callable[[Tensor, Tensor], object]) -> Callable[[], object]:
        batches = zip(itertools.cycle(embeddings), labels, strict=False)
        return lambda: work(*next(batches))

    works = {
        "copy": turn(lambda h, _: copied.copy_(h)),
        "bare": turn(lambda h, y: sums.index_add_(0, y, h.double())),
        "ours": turn(moments.add),
    }
    return in_turn(works, rounds)


def prepared(**sizes: int) -> Callable[[], object]:
    """Return a piece of work whose peak is that of a new accumulator and twenty batches."""
    embeddings, labels = _batches(sizes, 20)
    return lambda: _grown(sizes, embeddings, labels)


def _batches(sizes: dict[str, int], count: int) -> tuple[list[Tensor], list[Tensor]]:
    draw = torch.Generator().manual_seed(0)
    zipf = 1 / torch.arange(1, sizes["C"] + 1, dtype=torch.float64)
    embeddings = [torch.randn(sizes["N"], sizes["d"], generator=draw) for _ in range(8)]
    return embeddings, [torch.multinomial(zipf, sizes["N"], replacement=True, generator=draw) for _ in range(count)]


def _grown(sizes: dict[str, int], embeddings: list[Tensor], labels: list[Tensor]) -> ClassMoments:
    """Return an accumulator that holds most classes, as it does for most of a run."""
    moments = ClassMoments(sizes["d"])
    for h, y in zip(itertools.cycle(embeddings), labels[:20], strict=False):
        moments.add(h, y)
    return moments
