"""Other packages beside ours on the same means, where they can be imported: their time, and how far values differ.

Neither is on a package index. Both form the grid of all pairs: rhubarbwu/neural-collapse in tiles of differences,
felixsh/nc-toolbox the differences of all pairs at once, so that it gets fewer classes.
"""

from collections.abc import Callable
from importlib import import_module
from typing import Any

import collapse
from benchmarks.memory import in_turn, timed
from benchmarks.record import Goal, Record, Row, Table
from collapse import EmbeddingStatistics

SOURCES = {
    "neural_collapse": "pip install git+https://github.com/rhubarbwu/neural-collapse",
    "nc_toolbox": "pip install git+https://github.com/felixsh/nc-toolbox",
}
"""Where a package comes from, by the name under which it is imported."""

_TILE = 512  # as large as those of our sweep; their default, one tile of everything, would not fit into memory
_MEMORY = 1 << 30  # bytes of the differences of all pairs, of which nc-toolbox holds several at a time


def add(record: Record, s: EmbeddingStatistics, *, quick: bool) -> None:
    """Add a table and goals for each package that is there, and a note for one that is not."""
    for name, compare in (("neural_collapse", _neural_collapse), ("nc_toolbox", _nc_toolbox)):
        try:
            compare(record, s, quick)
        except ImportError as error:
            record.notes.append(f"{name} cannot be imported ({error}): {SOURCES[name]}")


def _neural_collapse(record: Record, s: EmbeddingStatistics, quick: bool) -> None:
    measure, kernels = import_module("neural_collapse.measure"), import_module("neural_collapse.kernels")

    def theirs() -> list[float]:
        cdnv = measure.variability_cdnv(s.variances, s.means, dist_exp=2, tile_size=_TILE)
        mean, variance = kernels.kernel_stats(s.means, s.global_mean, kernels.log_kernel, tile_size=_TILE)
        return [cdnv, mean, variance**0.5]

    names = ["nc1.cdnv", "gnc2.log_kernel", "gnc2.log_kernel_std"]
    faster = _compared(record, s, names, f"neural-collapse, tiles of {_TILE}", theirs, quick)
    if not quick:
        record.goals.append(Goal("faster than neural-collapse", faster, 300, at_least=True))


def _nc_toolbox(record: Record, s: EmbeddingStatistics, quick: bool) -> None:
    package = import_module("nc_toolbox")
    most = int((2 * _MEMORY / (8 * s.dim)) ** 0.5)
    few = EmbeddingStatistics(
        classes=s.classes[:most], counts=s.counts[:most], means=s.means[:most], variances=s.variances[:most]
    )
    means, mean, variances = few.means.numpy(), few.global_mean.numpy(), few.variances.numpy()

    def theirs() -> list[float]:
        kernel = package.gnc2_hypershperical_uniformity(means, mean)
        angle = package.nc2_equiangularity(means, mean) - 1 / (few.n_classes - 1)
        return [package.nc1_cdnv(means, variances), kernel, angle]

    _compared(record, few, ["nc1.cdnv_galanti", "gnc2.log_kernel", "nc2.interference"], "nc-toolbox", theirs, quick)


def _compared(
    record: Record,
    s: EmbeddingStatistics,
    names: list[str],
    package: str,
    theirs: Callable[[], list[float]],
    quick: bool,
) -> float:
    """Add the times of both and the largest relative difference of values; return how many times faster ours is."""
    values: dict[str, Any] = {}
    ours = in_turn({"ours": lambda: values.update(ours=collapse.measure(s, metrics=names))}, 3)["ours"]
    seconds = timed(lambda: values.update(theirs=theirs()))
    apart = max(
        abs(values["ours"][name] - b) / abs(values["ours"][name])
        for name, b in zip(names, values["theirs"], strict=True)
    )
    pairs = s.n_classes * (s.n_classes - 1) / 2
    rows = [Row(package, seconds, pairs / seconds), Row("collapse", ours, pairs / ours)]
    record.tables.append(Table(f"{', '.join(names)}, C = {s.n_classes:,}, d = {s.dim:,}", rows, unit="pairs"))
    record.notes.append(
        f"{package}: {seconds / ours:,.3g} × the time of collapse; values differ by {apart:.1e} at most"
    )
    if not quick:
        record.goals.append(Goal(f"largest difference from {package}", apart, 1e-5, "relative"))
    return seconds / ours
