"""The pair sweep, against the bare Gram products of the same tiles.

Three measurements are CDNV, interference and log kernel, each with mean and std. Other packages' tables are of
peers.py.
"""

from collections.abc import Callable, Sequence

import torch

from benchmarks import peers
from benchmarks.memory import in_turn, peak_growth
from benchmarks.record import Goal, Record, Row, Table
from collapse import EmbeddingStatistics
from collapse.numerics.evaluating import evaluate
from collapse.numerics.pairs import TILE, tiles
from collapse.numerics.values import values_of
from collapse.plugin.metrics import Measure, Metric
from collapse.plugin.plugin_manager import plugins

THREE = [
    "nc1.cdnv",
    "nc1.cdnv_std",
    "nc2.interference",
    "nc2.interference_std",
    "gnc2.log_kernel",
    "gnc2.log_kernel_std",
]


def benchmark(quick: bool) -> Record:
    """Measure two numbers of classes, then other packages."""
    record = Record("pairs", "Measurements of all pairs of classes, float64.")
    dim, many = (64, (600, 1_200)) if quick else (768, (12_000, 29_233))
    for classes in many:
        _add(record, classes, dim, quick)
    peers.add(record, statistics(300 if quick else 3_000, dim), quick=quick)
    return record


def _add(record: Record, classes: int, dim: int, quick: bool) -> None:
    """Time the sweep at one size, in turn with its bare products."""
    s = statistics(classes, dim)
    works: dict[str, Callable[[], object]] = {
        "bare Gram products": lambda: products(s.centred_means, TILE),
        "three measurements": lambda: evaluate(lambda: values_of(s), by_metric(THREE)),
        "all pair measurements": lambda: evaluate(lambda: values_of(s), by_metric(every())),
    }
    times = in_turn(works, 2)
    bare, three, _ = times.values()
    grown = None if quick else peak_growth("benchmarks.pairs:prepared", classes=classes, dim=dim)
    pairs = classes * (classes - 1) / 2
    rows = [
        Row(what, seconds, pairs / seconds, bare / seconds, grown if what == "three measurements" else None)
        for what, seconds in times.items()
    ]
    limit = f"the bare products of the same tiles of {TILE}, {pairs * 2 * dim / bare / 1e9:.0f} GFLOP/s"
    record.tables.append(Table(f"C = {classes:,}, d = {dim:,}", rows, unit="pairs", limit=limit))
    if not quick:
        record.goals.append(Goal(f"three measurements, over products, C = {classes:,}", three / bare, 1.8))
    if grown is not None:
        record.goals.append(Goal(f"peak growth above the means, C = {classes:,}", grown / 1e6, 300, "MB"))


def statistics(classes: int, dim: int) -> EmbeddingStatistics:
    """Return statistics with random means and variances."""
    draw = torch.Generator().manual_seed(0)
    return EmbeddingStatistics(
        classes=torch.arange(classes),
        counts=torch.full((classes,), 2),
        means=torch.randn(classes, dim, dtype=torch.float64, generator=draw),
        variances=torch.rand(classes, dtype=torch.float64, generator=draw),
    )


def products(means: torch.Tensor, tile: int) -> None:
    """Compute the bare products of the same tiles into a preallocated one."""
    gram = torch.empty(tile * tile, dtype=means.dtype)
    for rows, columns in tiles(len(means), tile):
        a, b = means[rows], means[columns]
        torch.mm(a, b.T, out=gram[: len(a) * len(b)].view(len(a), len(b)))


def by_metric(names: Sequence[str]) -> list[tuple[Metric, list[Measure]]]:
    """Group measurements by their metrics."""
    known, chosen = plugins().measurements(), dict[int, tuple[Metric, list[Measure]]]()
    for metric, measure in map(known.__getitem__, names):
        chosen.setdefault(id(metric), (metric, []))[1].append(measure)
    return list(chosen.values())


def every() -> list[str]:
    """Return the names of all pair measurements."""
    return [name for name, (metric, _) in plugins().measurements().items() if metric.kind == "pair"]


def prepared(classes: int, dim: int) -> Callable[[], object]:
    """Return a piece of work whose peak is that of three measurements of means that are there."""
    s, wanted = statistics(classes, dim), by_metric(THREE)
    products(s.means[: 2 * TILE].contiguous(), TILE)
    return lambda: evaluate(lambda: values_of(s), wanted)
