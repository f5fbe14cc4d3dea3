"""Time of per-token CDNV and interference, and of the most confusable pairs, against the scalar sweep of the same two.

python benchmarks/tokens.py [--classes 12000] [--dim 768] [--rounds 5] [--output results.json]
"""

import argparse
import time
from collections.abc import Callable

import torch
from _report import report

import collapse
from collapse.measurement.class_values import measure_classes
from collapse.numerics.statistics import EmbeddingStatistics

TWO = ["nc1.cdnv", "nc2.interference"]


def main() -> None:
    """Print the ratios and write them."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--classes", type=int, default=12_000)
    parser.add_argument("--dim", type=int, default=768)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--output")
    options = parser.parse_args()
    draw = torch.Generator().manual_seed(0)
    s = EmbeddingStatistics(
        classes=torch.arange(options.classes),
        counts=torch.randint(1, 1000, (options.classes,), generator=draw),
        means=torch.randn(options.classes, options.dim, dtype=torch.float64, generator=draw),
        variances=torch.rand(options.classes, dtype=torch.float64, generator=draw),
    )
    works: dict[str, Callable[[], object]] = {
        "scalar": lambda: collapse.measure(s, metrics=TWO),
        "by_token": lambda: measure_classes(s, TWO),
        "pairs": lambda: collapse.confusable_pairs(s, 100),
        "table": lambda: collapse.tokens(s, top=20),
    }
    times: dict[str, list[float]] = {name: [] for name in works}
    for _ in range(options.rounds):  # in turn, so that a drift of the machine touches all alike
        for name, work in works.items():
            start = time.perf_counter()
            work()
            times[name].append(time.perf_counter() - start)
    best = {name: min(each) for name, each in times.items()}
    report(
        "tokens",
        options.output,
        {
            "classes": options.classes,
            "dim": options.dim,
            **{f"{name}_seconds": seconds for name, seconds in best.items()},
            "ratio_by_token (goal 1.3)": best["by_token"] / best["scalar"],
            "ratio_pairs (goal 1.5)": best["pairs"] / best["scalar"],
            "ratio_table": best["table"] / best["scalar"],
        },
    )


if __name__ == "__main__":
    main()
