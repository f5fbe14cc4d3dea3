"""Time and peak memory of the pair sweep against the bare Gram products of the same tiles, in one process.

python benchmarks/pair_sweep.py [--classes 12000] [--dim 768] [--tile 512] [--output results.json]
"""

import argparse
import resource
import time
from collections.abc import Callable

import torch
from _report import report

from collapse.measurement.measuring import _by_metric
from collapse.numerics.pairs import sweep, tiles
from collapse.numerics.statistics import EmbeddingStatistics
from collapse.plugin.plugin_manager import plugins

THREE = [
    "nc1.cdnv",
    "nc1.cdnv_std",
    "nc2.interference",
    "nc2.interference_std",
    "gnc2.log_kernel",
    "gnc2.log_kernel_std",
]


def main() -> None:
    """Print the ratios and write them."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--classes", type=int, default=12_000)
    parser.add_argument("--dim", type=int, default=768)
    parser.add_argument("--tile", type=int, default=512)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--output")
    options = parser.parse_args()
    draw = torch.Generator().manual_seed(0)
    s = EmbeddingStatistics(
        classes=torch.arange(options.classes),
        counts=torch.full((options.classes,), 2),
        means=torch.randn(options.classes, options.dim, dtype=torch.float64, generator=draw),
        variances=torch.rand(options.classes, dtype=torch.float64, generator=draw),
    )
    every = [name for name, (metric, _) in plugins().measurements().items() if metric.kind == "pair"]
    three, whole = _by_metric(THREE), _by_metric(every)
    products(s.means[:2048].contiguous(), options.tile)
    _ = s.centred_means, s.norms
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    sweep(s, whole, tile=options.tile)
    growth = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 - before
    allowed = 3 * options.classes * options.dim * 8 + 16 * options.tile**2 * 8
    times: dict[str, list[float]] = {"products": [], "three": [], "whole": []}
    for _ in range(options.rounds):  # in turn, so that a drift of the machine touches all alike
        times["products"].append(timed(lambda: products(s.centred_means, options.tile)))
        times["three"].append(timed(lambda: sweep(s, three, tile=options.tile)))
        times["whole"].append(timed(lambda: sweep(s, whole, tile=options.tile)))
    best = {name: sorted(values)[len(values) // 2] for name, values in times.items()}
    report(
        "pair_sweep",
        options.output,
        {
            "classes": options.classes,
            "dim": options.dim,
            "tile": options.tile,
            "products_seconds": best["products"],
            "cdnv_interference_log_kernel_seconds": best["three"],
            "every_pair_measurement_seconds": best["whole"],
            "ratio_three (goal 2.0)": best["three"] / best["products"],
            "ratio_every (goal 3.5)": best["whole"] / best["products"],
            "measurements": len(every),
            "peak_growth_bytes": growth,
            "peak_growth_of_allowed (goal 1.0)": growth / allowed,
        },
    )


def products(means: torch.Tensor, tile: int) -> None:
    """The bare products of the same tiles into a preallocated one."""
    gram = torch.empty(tile * tile, dtype=means.dtype)
    for rows, columns in tiles(len(means), tile):
        a, b = means[rows], means[columns]
        torch.mm(a, b.T, out=gram[: len(a) * len(b)].view(len(a), len(b)))


def timed(action: Callable[[], object]) -> float:
    """Seconds of one call."""
    start = time.perf_counter()
    action()
    return time.perf_counter() - start


if __name__ == "__main__":
    main()
