"""Benchmark the sweep over class pairs, compared with the bare Gram products of the same tiles.

The three measurements are CDNV, interference and the log kernel, each with mean and standard deviation.
"""

from collections.abc import Callable

import torch

from benchmarks.record import Record
from benchmarks.timing import in_turn, peak_growth
from collapse import EmbeddingStatistics
from collapse.measurement.measuring import by_metric
from collapse.numerics.evaluating_metrics import evaluate
from collapse.numerics.pair_fields import tile_side, tiles
from collapse.numerics.values import values_of
from collapse.plugin.plugin_manager import plugins

THREE = [f"{name}{what}" for name in ("nc1.cdnv", "nc2.interference", "gnc2.log_kernel") for what in ("", "_std")]


def benchmark(quick: bool, device: str) -> Record:
    """Time the sweep for two numbers of classes."""
    record = Record("pairs", "Measurements of all pairs of classes, float64.")
    dim, many = (64, (600, 1_200)) if quick else (768, (12_000, 29_233))
    for classes in many:
        _add(record, classes, dim, quick, device)
    return record


def _add(record: Record, classes: int, dim: int, quick: bool, device: str) -> None:
    """Time the sweep and the bare products for one size, in turn."""
    s = statistics(classes, dim, device)
    every = [name for name, (metric, _) in plugins().chosen(None).items() if metric.kind == "pair"]
    works: dict[str, Callable[[], object]] = {
        "bare Gram products": lambda: products(s.centred_means),
        "three measurements": lambda: evaluate(lambda: values_of(s), by_metric(plugins().chosen(THREE))),
        "all pair measurements": lambda: evaluate(lambda: values_of(s), by_metric(plugins().chosen(every))),
    }
    times = in_turn(works, 2)
    peak = None if quick else peak_growth(prepared, classes=classes, dim=dim, device=device)
    record.add(
        f"C = {classes:,}, d = {dim:,}",
        times,
        amount=classes * (classes - 1) / 2,
        unit="pairs",
        limit="bare Gram products",
        peaks={"three measurements": peak},
    )


def statistics(classes: int, dim: int, device: str) -> EmbeddingStatistics:
    """Return statistics with random means and variances."""
    draw = torch.Generator().manual_seed(0)
    return EmbeddingStatistics(
        classes=torch.arange(classes),
        counts=torch.full((classes,), 2),
        means=torch.randn(classes, dim, dtype=torch.float64, generator=draw),
        variances=torch.rand(classes, dtype=torch.float64, generator=draw),
    ).to(device)


def products(means: torch.Tensor) -> None:
    """Compute the Gram product of every tile of the sweep, each into the same preallocated matrix."""
    side = tile_side(means.device)
    gram = torch.empty(side * side, dtype=means.dtype, device=means.device)
    for rows, columns in tiles(len(means), side):
        a, b = means[rows], means[columns]
        torch.mm(a, b.T, out=gram[: len(a) * len(b)].view(len(a), len(b)))


def prepared(classes: int, dim: int, device: str) -> Callable[[], object]:
    """Return a function that evaluates the three measurements of existing means, to measure its peak memory."""
    s, wanted = statistics(classes, dim, device), by_metric(plugins().chosen(THREE))
    products(s.means[:2000].contiguous())
    return lambda: evaluate(lambda: values_of(s), wanted)
