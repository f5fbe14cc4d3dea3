"""Time of accumulating batches into class moments against a bare index_add_ of the same embeddings, in one process.

python benchmarks/accumulate.py [--classes 29233] [--dim 768] [--batch 2047] [--output results.json]
"""

import argparse
import time

import torch
from _report import report

from collapse.numerics.accumulate import ClassMoments


def main() -> None:
    """Print the ratio and write it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--classes", type=int, default=29_233)
    parser.add_argument("--dim", type=int, default=768)
    parser.add_argument("--batch", type=int, default=2_047)
    parser.add_argument("--batches", type=int, default=100)
    parser.add_argument("--output")
    options = parser.parse_args()
    draw = torch.Generator().manual_seed(0)
    zipf = 1 / torch.arange(1, options.classes + 1, dtype=torch.float64)
    embeddings = [torch.randn(options.batch, options.dim, generator=draw) for _ in range(8)]
    labels = [torch.multinomial(zipf, options.batch, replacement=True, generator=draw) for _ in range(options.batches)]
    moments = ClassMoments(options.dim)
    sums = torch.zeros(options.classes, options.dim, dtype=torch.float64)
    for y in labels[:10]:  # the first batches grow the accumulator; time it as it is for most of a run
        moments.add(embeddings[0], y)
    bare, ours = [], []
    for index, y in enumerate(labels):  # in turn, so that a drift of the machine touches both alike
        h = embeddings[index % len(embeddings)]
        start = time.perf_counter()
        sums.index_add_(0, y, h.double())
        middle = time.perf_counter()
        moments.add(h, y)
        bare.append(middle - start)
        ours.append(time.perf_counter() - middle)
    figures = {
        "classes": options.classes,
        "dim": options.dim,
        "batch": options.batch,
        "bare_index_add_milliseconds": 1000 * median(bare),
        "class_moments_milliseconds": 1000 * median(ours),
        "ratio (goal 8)": median(ours) / median(bare),
        "ratio of totals": sum(ours) / sum(bare),
    }
    report("accumulate", options.output, figures)


def median(values: list[float]) -> float:
    """The middle one."""
    return sorted(values)[len(values) // 2]


if __name__ == "__main__":
    main()
