"""The pair sweep, against the bare Gram products of the same tiles.

Three measurements are CDNV, interference and log kernel, each with mean and std. Other packages' tables are of
peers.py, values of single tokens of tokens.py.
"""

from collections.abc import Callable, Iterator, Sequence
from itertools import islice

import torch

from benchmarks import peers, tokens
from benchmarks.memory import growth_of, peak, peak_growth
from benchmarks.options import Options
from benchmarks.record import Goal, Growth, Record, Row, Table
from benchmarks.timing import exponents, in_turn, timed, varied
from collapse import EmbeddingStatistics
from collapse.numerics.pairs import TILE, sweep, tiles
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
_WARM = 5  # expected seconds of the three measurements above which there is no warm-up, and two rounds less
_LONG = 60  # above which nothing is repeated
_ENDLESS = 600  # and above which not all measurements are taken
_SAMPLE = 2_048  # classes of the products from which the time is estimated
_NAMES = {
    "products": "bare Gram products",
    "three": "three measurements",
    "every": "all pair measurements",
}
_EVERY = 20  # of the tiles of an endless sweep, one in so many is multiplied


def benchmark(options: Options) -> Record:
    """Measure two numbers of classes, or the one that was asked for; then tokens, growth and other packages."""
    about = "Measurements of all pairs of classes, float64."
    if options.classes or options.dim:
        classes, dim = options.classes or (600 if options.quick else 12_000), options.dim or 768
        record = Record(f"pairs-{classes}x{dim}", about, [])  # beside the file of the usual sizes
        _add(record, classes, dim)
        return record
    record = Record("pairs", about, [])
    dim, many = (64, (600, 1_200)) if options.quick else (768, (12_000, 29_233))
    for classes in many:
        _add(record, classes, dim, goals=not options.quick)
    _add_growth(record, *many, dim, quick=options.quick)
    tables, goals = tokens.measured(statistics(many[0], dim), rounds=2)
    record.tables.extend(tables)
    record.goals.extend([] if options.quick else goals)
    found = peers.measured(statistics(300 if options.quick else 3_000, dim), quick=options.quick)
    record.tables.extend(found.tables)
    record.goals.extend(found.goals)
    record.notes.extend(found.notes)
    return record


def _add(record: Record, classes: int, dim: int, *, goals: bool = False) -> None:
    """Time the sweep at one size, in turn with its bare products."""
    s = statistics(classes, dim)
    once = _expected_seconds(s)
    works: dict[str, Callable[[], object]] = {
        "products": lambda: products(s.centred_means, TILE),
        "three": lambda: sweep(s, by_metric(THREE)),
        "every": lambda: sweep(s, by_metric(every())),
    }
    size = f"C = {classes:,}, d = {dim:,}"
    if once > _ENDLESS:
        works = {"products": lambda: products(s.centred_means, TILE, every=_EVERY), "three": works["three"]}
        record.notes.append(f"{size}: three measurements only; products of one tile in {_EVERY}")
    if once > _LONG:  # one round; the memory is that of the timed sweep itself
        times: dict[str, float] = {}
        # the measurements first, so that their growth has the centred means
        grown = {
            name: growth_of(lambda: times.update({name: timed(works[name])}))  # noqa: B023  # called at once
            for name in sorted(works, key=lambda each: each == "products")
        }
        if once > _ENDLESS:
            times["products"] *= _EVERY
        record.notes.append(f"{size}: one round; the process's peak is {peak() / 2**30:.2f} GiB")
    else:
        times = in_turn(works, 5 if once < _WARM else 3, warm_up=once < _WARM)
        grown = {"three": peak_growth("benchmarks.pairs:prepared", classes=classes, dim=dim)}
    pairs = classes * (classes - 1) / 2
    rows = [
        Row(what, times[name], pairs / times[name], times["products"] / times[name], grown.get(name))
        for name, what in _NAMES.items()
        if name in times
    ]
    limit = f"the bare products of the same tiles of {TILE}, {pairs * 2 * dim / times['products'] / 1e9:.0f} GFLOP/s"
    record.tables.append(Table(size, rows, unit="pairs", limit=limit))
    if goals:
        record.goals.extend(_goals(classes, times, grown["three"]))


def _goals(classes: int, times: dict[str, float], grown: int | None) -> Iterator[Goal]:
    yield Goal(f"{_NAMES['three']}, over products, C = {classes:,}", times["three"] / times["products"], 1.8)
    if grown is not None:
        yield Goal(f"peak growth above the means, C = {classes:,}", grown / 1e6, 300, "MB")


def _add_growth(record: Record, few: int, many: int, dim: int, *, quick: bool) -> None:
    """Fit how the time of the three measurements grows with C and d, and how their memory does, from many classes."""
    wanted, points = by_metric(THREE), []
    for sizes in varied({"C": few, "d": dim}, (0.5,) if quick else (0.5, 0.25)):
        s = statistics(sizes["C"], sizes["d"])
        points.append((sizes, in_turn({"three": lambda: sweep(s, wanted)}, 3)["three"]))  # noqa: B023
    record.growth.append(Growth("three measurements", "time", exponents(points)))
    if quick:
        return
    memory = []
    for sizes in varied({"C": many, "d": dim}, (0.5,)):
        grown = peak_growth("benchmarks.pairs:prepared", classes=sizes["C"], dim=sizes["d"])
        if grown is None:
            return
        memory.append((sizes, float(grown)))
    record.growth.append(Growth("three measurements", "peak growth", exponents(memory)))


def _expected_seconds(s: EmbeddingStatistics) -> float:
    """Return about how long three measurements take, from the products of some classes."""
    some = min(_SAMPLE, s.n_classes)
    means = s.means[:some].contiguous()
    products(means, TILE)
    return 2 * timed(lambda: products(means, TILE)) * (s.n_classes / some) ** 2


def statistics(classes: int, dim: int) -> EmbeddingStatistics:
    """Return statistics with random means and variances."""
    draw = torch.Generator().manual_seed(0)
    return EmbeddingStatistics(
        classes=torch.arange(classes),
        counts=torch.full((classes,), 2),
        means=torch.randn(classes, dim, dtype=torch.float64, generator=draw),
        variances=torch.rand(classes, dtype=torch.float64, generator=draw),
    )


def products(means: torch.Tensor, tile: int, *, every: int = 1) -> None:
    """Compute the bare products of the same tiles, or of one in so many, into a preallocated one."""
    gram = torch.empty(tile * tile, dtype=means.dtype)
    for rows, columns in islice(tiles(len(means), tile), 0, None, every):
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


def prepared(classes: int, dim: int) -> Callable[[], None]:
    """Return a piece of work whose peak is that of three measurements of means that are there."""
    s = statistics(classes, dim)
    products(s.means[: 2 * TILE].contiguous(), TILE)
    wanted = by_metric(THREE)

    def work() -> None:
        sweep(s, wanted)

    return work
