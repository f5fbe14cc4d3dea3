"""Other packages beside ours on the same means, where they can be imported: their time, and how far values differ.

Neither is on a package index. Both form the grid of all pairs: rhubarbwu/neural-collapse in tiles of differences,
felixsh/nc-toolbox the differences of all pairs at once, so that it gets fewer classes.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from importlib import import_module
from statistics import median
from typing import Any

import collapse
from benchmarks.record import Goal, Row, Table
from benchmarks.timing import in_turn, timed
from collapse import EmbeddingStatistics

SOURCES = {
    "neural_collapse": "pip install git+https://github.com/rhubarbwu/neural-collapse",
    "nc_toolbox": "pip install git+https://github.com/felixsh/nc-toolbox",
}
"""Where a package comes from, by the name under which it is imported."""

_TILE = 512  # as large as those of our sweep; their default, one tile of everything, would not fit into memory
_SIDES = (8, 16, 32, 64, 128)  # among which their fastest tile is looked for
_MEMORY = 1 << 30  # bytes of the differences of all pairs, of which it holds several at a time
_EQUAL = 1e-5


@dataclass
class Found:
    """What was measured of the packages that are there."""

    tables: list[Table] = field(default_factory=list)
    goals: list[Goal] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


def measured(s: EmbeddingStatistics, *, quick: bool) -> Found:
    """Measure CDNV and log kernel with each package that is there, and with ours."""
    found = Found()
    for name, compare in (("neural_collapse", _neural_collapse), ("nc_toolbox", _nc_toolbox)):
        try:
            compare(s, found, quick)
        except ImportError as error:
            found.notes.append(f"{name} cannot be imported ({error}): {SOURCES[name]}")
    return found


def _neural_collapse(s: EmbeddingStatistics, found: Found, quick: bool) -> None:
    measure, kernels = import_module("neural_collapse.measure"), import_module("neural_collapse.kernels")

    def theirs(of: EmbeddingStatistics, side: int) -> list[float]:
        cdnv = measure.variability_cdnv(of.variances, of.means, dist_exp=2, tile_size=side)
        mean, variance = kernels.kernel_stats(of.means, of.global_mean, kernels.log_kernel, tile_size=side)
        return [cdnv, mean, variance**0.5]

    some = _first(s, _TILE)
    fastest = min(_SIDES, key=lambda side: timed(lambda: theirs(some, side)))
    names = ["nc1.cdnv", "gnc2.log_kernel", "gnc2.log_kernel_std"]
    works = {f"neural-collapse, tiles of {side}": lambda side=side: theirs(s, side) for side in (_TILE, fastest)}
    times, apart = _compared(s, names, works)
    _add(found, f"CDNV, and log kernel's mean and std, C = {s.n_classes:,}, d = {s.dim:,}", s, times, apart)
    if not quick:
        for name, seconds in times.items():
            if name != "collapse":
                found.goals.append(Goal(f"faster than {name}", seconds / times["collapse"], 300, at_least=True))
        found.goals.append(Goal("largest difference from its values", apart, _EQUAL, "relative"))


def _nc_toolbox(s: EmbeddingStatistics, found: Found, quick: bool) -> None:
    package = import_module("nc_toolbox")
    most = int((2 * _MEMORY / (8 * s.dim)) ** 0.5)
    few = _first(s, min(s.n_classes, most))
    means, mean, variances = few.means.numpy(), few.global_mean.numpy(), few.variances.numpy()

    def theirs() -> list[float]:
        kernel = package.gnc2_hypershperical_uniformity(means, mean)
        angle = package.nc2_equiangularity(means, mean) - 1 / (few.n_classes - 1)
        return [package.nc1_cdnv(means, variances), kernel, angle]

    names = ["nc1.cdnv_galanti", "gnc2.log_kernel", "nc2.interference"]
    times, apart = _compared(few, names, {"nc-toolbox": theirs})
    _add(found, f"CDNV, log kernel, interference, C = {few.n_classes:,}, d = {few.dim:,}", few, times, apart)
    if not quick:
        found.goals.append(Goal("largest difference from nc-toolbox", apart, _EQUAL, "relative"))


def _compared(
    s: EmbeddingStatistics, names: list[str], theirs: Mapping[str, Callable[[], list[float]]]
) -> tuple[dict[str, float], float]:
    """Return the times of theirs, once each, and of ours around them, and the largest relative difference of values."""
    said: dict[str, Any] = {}

    def ours() -> float:
        return in_turn({"ours": lambda: said.update(ours=collapse.measure(s, metrics=names))}, 3)["ours"]

    times, apart, around = dict[str, float](), 0.0, [ours()]
    values = [said["ours"][name] for name in names]
    for package, work in theirs.items():
        times[package] = timed(lambda: said.update(theirs=work()))  # noqa: B023  # called at once
        apart = max(apart, *(abs(a - b) / abs(a) for a, b in zip(values, said["theirs"], strict=True)))
        around.append(ours())
    return {**times, "collapse": median(around)}, apart


def _add(found: Found, title: str, s: EmbeddingStatistics, times: dict[str, float], apart: float) -> None:
    pairs = s.n_classes * (s.n_classes - 1) / 2
    found.tables.append(Table(title, [Row(what, each, pairs / each) for what, each in times.items()], unit="pairs"))
    for package, seconds in times.items():
        if package != "collapse":
            found.notes.append(f"{package}: {seconds / times['collapse']:,.3g} × the time of collapse")
    found.notes.append(f"C = {s.n_classes:,}: values differ by {apart:.1e} at most, relatively")


def _first(s: EmbeddingStatistics, classes: int) -> EmbeddingStatistics:
    return EmbeddingStatistics(
        classes=s.classes[:classes],
        counts=s.counts[:classes],
        means=s.means[:classes],
        variances=s.variances[:classes],
    )
