"""Benchmark class moments of batches, compared with a copy of the embeddings and a bare ``index_add_``.

The copy is the limit: it converts float32 to float64, as the accumulator does, and reads and writes embeddings once.
"""

import itertools
from collections.abc import Callable

import torch
from torch import Tensor

from benchmarks.record import Record
from benchmarks.timing import in_turn, peak_growth
from collapse.numerics.class_moments import ClassMoments


def benchmark(quick: bool) -> Record:
    """Time batches of one size, and measure the peak memory."""
    sizes = {"C": 1_000, "d": 64, "N": 512} if quick else {"C": 29_233, "d": 768, "N": 2_047}
    rounds = 20 if quick else 100
    embeddings, labels = _batches(sizes, rounds + 1)
    moments = _grown(sizes, embeddings, labels)
    sums = torch.zeros(sizes["C"], sizes["d"], dtype=torch.float64)
    copied = torch.empty(sizes["N"], sizes["d"], dtype=torch.float64)

    def turn(work: Callable[[Tensor, Tensor], object]) -> Callable[[], object]:
        batches = zip(itertools.cycle(embeddings), labels, strict=False)
        return lambda: work(*next(batches))

    works = {
        "copy as float64": turn(lambda h, _: copied.copy_(h)),
        "bare index_add_": turn(lambda h, y: sums.index_add_(0, y, h.double())),
        "class moments": turn(moments.add),
    }
    times = in_turn(works, rounds)
    peak = None if quick else peak_growth(prepared, **sizes)
    record = Record(
        "accumulate", "Counts, means and variances of the classes of a batch, whose labels are drawn by Zipf's law."
    )
    record.add(
        f"batches of {sizes['N']:,} samples, C = {sizes['C']:,}, d = {sizes['d']:,}",
        times,
        amount=sizes["N"],
        unit="samples",
        limit="copy as float64",
        peaks={"class moments": peak},
    )
    return record


def prepared(**sizes: int) -> Callable[[], object]:
    """Return a function that adds twenty batches to a new accumulator, to measure its peak memory."""
    embeddings, labels = _batches(sizes, 20)
    return lambda: _grown(sizes, embeddings, labels)


def _batches(sizes: dict[str, int], count: int) -> tuple[list[Tensor], list[Tensor]]:
    draw = torch.Generator().manual_seed(0)
    zipf = 1 / torch.arange(1, sizes["C"] + 1, dtype=torch.float64)
    embeddings = [torch.randn(sizes["N"], sizes["d"], generator=draw) for _ in range(8)]
    return embeddings, [torch.multinomial(zipf, sizes["N"], replacement=True, generator=draw) for _ in range(count)]


def _grown(sizes: dict[str, int], embeddings: list[Tensor], labels: list[Tensor]) -> ClassMoments:
    """Return an accumulator that holds twenty batches, so that most samples of the next batch are of known classes."""
    moments = ClassMoments(sizes["d"])
    for h, y in zip(itertools.cycle(embeddings), labels[:20], strict=False):
        moments.add(h, y)
    return moments
