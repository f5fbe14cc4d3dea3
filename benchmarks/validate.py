"""Time and peak memory of the validation pass behind the model, against one bare float32 product with the head.

Both classifiers, the loss and their tally over random embeddings; and where they differ from direct float64.

python benchmarks/validate.py [--dim 256] [--vocabulary 50257] [--classes 29233] [--tokens 2047] [--output results.json]
"""

import argparse
import resource
import time
from collections.abc import Callable

import torch
from _report import report

from collapse import EmbeddingStatistics
from collapse.numerics.decisions import Decider, ValidationTally


def main() -> None:
    """Print the ratios and write them."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--dim", type=int, default=256)
    parser.add_argument("--vocabulary", type=int, default=50_257)
    parser.add_argument("--classes", type=int, default=29_233)
    parser.add_argument("--tokens", type=int, default=2_047)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--output")
    options = parser.parse_args()
    draw = torch.Generator().manual_seed(0)
    weight = torch.randn(options.vocabulary, options.dim, generator=draw) / options.dim**0.5
    classes = torch.randperm(options.vocabulary, generator=draw)[: options.classes].sort().values
    h = torch.randn(options.tokens, options.dim, generator=draw) * 3
    y = classes[torch.randint(options.classes, (options.tokens,), generator=draw)]
    s = EmbeddingStatistics(
        classes=classes,
        counts=torch.full((options.classes,), 2),
        means=torch.randn(options.classes, options.dim, dtype=torch.float64, generator=draw),
        variances=torch.rand(options.classes, dtype=torch.float64, generator=draw),
    )
    logits = torch.empty(options.tokens, options.vocabulary)
    torch.mm(h, weight.T, out=logits)
    before = peak()
    decider = Decider(s, weight, None)
    ValidationTally(decider).add(h, y)
    growth = peak() - before
    exact = Decider(s, weight, None, exact_loss=True)
    times: dict[str, list[float]] = {"product": [], "ours": [], "exact_loss": []}
    for _ in range(options.rounds):  # in turn, so that a drift of the machine touches all alike
        times["product"].append(timed(lambda: torch.mm(h, weight.T, out=logits)))
        times["ours"].append(timed(lambda: ValidationTally(decider).add(h, y)))
        times["exact_loss"].append(timed(lambda: ValidationTally(exact).add(h, y)))
    best = {name: sorted(values)[len(values) // 2] for name, values in times.items()}
    report(
        "validate",
        options.output,
        {
            "vocabulary": options.vocabulary,
            "classes": options.classes,
            "dim": options.dim,
            "tokens": options.tokens,
            "product_seconds": best["product"],
            "ours_seconds": best["ours"],
            "ratio (goal 1.8 at d = 256)": best["ours"] / best["product"],
            "ratio_exact_loss": best["exact_loss"] / best["product"],
            "peak_growth_bytes (goal 512 MB)": growth,
            **differences(decider, weight, h, y, s),
        },
    )


def differences(
    decider: Decider, weight: torch.Tensor, h: torch.Tensor, y: torch.Tensor, s: EmbeddingStatistics
) -> dict[str, float | int]:
    """Decisions unlike those of the direct computation in float64, and the loss beside its own."""
    linear, everywhere, _, loss = decider.linear(h.double(), y)
    nearest = decider.nearest(h.double())
    unlike, total = [0, 0, 0], 0.0
    for some in torch.arange(len(h)).split(128):
        logits = h[some].double() @ weight.double().T
        total += float((logits.logsumexp(dim=1) - logits[torch.arange(len(some)), y[some]]).sum())
        centres = torch.cdist(h[some].double(), s.means, compute_mode="donot_use_mm_for_euclid_dist")
        direct = (s.classes[logits[:, s.classes].argmax(dim=1)], logits.argmax(dim=1), s.classes[centres.argmin(dim=1)])
        for place, (ours, theirs) in enumerate(zip((linear, everywhere, nearest), direct, strict=True)):
            unlike[place] += int((ours[some] != theirs).sum())
    return {
        "linear_decisions_unlike_float64": unlike[0],
        "vocabulary_decisions_unlike_float64": unlike[1],
        "nearest_centres_unlike_float64": unlike[2],
        "loss_relative_difference_in_1e-9": 1e9 * abs(float(loss.sum()) / total - 1),
    }


def peak() -> int:
    """Peak memory of the process in bytes."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def timed(action: Callable[[], object]) -> float:
    """Seconds of one call."""
    start = time.perf_counter()
    action()
    return time.perf_counter() - start


if __name__ == "__main__":
    main()
