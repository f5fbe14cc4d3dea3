"""Class moments of batches, against a copy of the embeddings and a bare ``index_add_`` of the same batches.

The copy, from float32 to float64 as the accumulator needs it, is the limit: the embeddings are read and written once.
"""

import itertools
from collections.abc import Callable

import torch
from torch import Tensor

from benchmarks.memory import peak_growth
from benchmarks.options import Options
from benchmarks.record import Goal, Growth, Record, Row, Table
from benchmarks.timing import exponents, in_turn, varied
from collapse.numerics.accumulate import ClassMoments

_GROWN = 10  # batches that grow the accumulator before it is timed, as it is for most of a run


def benchmark(options: Options) -> Record:
    """Measure one size, and its halves and quarters for the growth."""
    sizes = {"C": 1_000, "d": 64, "N": 512} if options.quick else {"C": 29_233, "d": 768, "N": 2_047}
    rounds = 20 if options.quick else 100
    points = [(each, _timed(each, rounds)) for each in varied(sizes)]
    times = points[0][1]
    peak = None if options.quick else peak_growth("benchmarks.accumulate:prepared", **sizes)
    limit = times["copy"]
    names = {"copy": "copy as float64", "bare": "bare index_add_", "ours": "class moments"}
    rows = [
        Row(what, times[name], sizes["N"] / times[name], limit / times[name], peak if name == "ours" else None)
        for name, what in names.items()
    ]
    speed = sizes["N"] * sizes["d"] * (4 + 8) / limit / 1e9
    title = f"batches of {sizes['N']:,} samples, C = {sizes['C']:,}, d = {sizes['d']:,}"
    return Record(
        "accumulate",
        "Counts, means and variances of the classes of a batch, whose labels are drawn by Zipf's law.",
        [Table(title, rows, unit="samples", limit=f"the copy of the embeddings, {speed:.0f} GB/s")],
        [] if options.quick else [Goal("class moments over index_add_", times["ours"] / times["bare"], 8)],
        [Growth("class moments", "time", exponents([(each, times["ours"]) for each, times in points]))],
    )


def _timed(sizes: dict[str, int], rounds: int) -> dict[str, float]:
    embeddings, labels = _batches(sizes, rounds + 1)
    moments = _grown(sizes, embeddings, labels)
    sums = torch.zeros(sizes["C"], sizes["d"], dtype=torch.float64)
    copied = torch.empty(sizes["N"], sizes["d"], dtype=torch.float64)
    turns = {name: itertools.cycle(zip(itertools.cycle(embeddings), labels)) for name in ("copy", "bare", "ours")}

    def turn(name: str, work: Callable[[Tensor, Tensor], object]) -> Callable[[], object]:
        return lambda: work(*next(turns[name]))

    works = {
        "copy": turn("copy", lambda h, _: copied.copy_(h)),
        "bare": turn("bare", lambda h, y: sums.index_add_(0, y, h.double())),
        "ours": turn("ours", lambda h, y: moments.add(h, y)),
    }
    return in_turn(works, rounds)


def prepared(**sizes: int) -> Callable[[], None]:
    """Return a piece of work whose peak is that of a new accumulator and twenty batches."""
    embeddings, labels = _batches(sizes, 20)
    copied = embeddings[0].double()
    torch.zeros(sizes["C"], sizes["d"]).index_add_(0, labels[0], copied.float())

    def work() -> None:
        _grown(sizes, embeddings, labels)

    return work


def _batches(sizes: dict[str, int], count: int) -> tuple[list[Tensor], list[Tensor]]:
    draw = torch.Generator().manual_seed(0)
    zipf = 1 / torch.arange(1, sizes["C"] + 1, dtype=torch.float64)
    embeddings = [torch.randn(sizes["N"], sizes["d"], generator=draw) for _ in range(8)]
    return embeddings, [torch.multinomial(zipf, sizes["N"], replacement=True, generator=draw) for _ in range(count)]


def _grown(sizes: dict[str, int], embeddings: list[Tensor], labels: list[Tensor]) -> ClassMoments:
    moments = ClassMoments(sizes["d"])
    for h, y in zip(itertools.cycle(embeddings), labels[: max(_GROWN, len(labels) // 2)], strict=False):
        moments.add(h, y)
    return moments
