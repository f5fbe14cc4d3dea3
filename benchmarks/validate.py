"""The validation pass behind the model, against one bare float32 product of the same embeddings with the whole head.

Both classifiers, the loss and their tally over random embeddings, and where they differ from direct float64.
"""

from collections.abc import Callable

import torch
from torch import Tensor

from benchmarks.memory import in_turn, peak_growth
from benchmarks.record import Goal, Record, Row, Table
from collapse import EmbeddingStatistics
from collapse.numerics.decisions import Decider, ValidationTally


def benchmark(quick: bool) -> Record:
    """Measure d = 256 and d = 64."""
    record = Record("validate", "The validation pass without its model.")
    vocabulary, classes, tokens = (4_000, 2_000, 512) if quick else (50_257, 29_233, 2_047)
    for dim in (256, 64):
        _add(record, {"V": vocabulary, "C": classes, "d": dim, "N": tokens}, quick)
    return record


def _add(record: Record, sizes: dict[str, int], quick: bool) -> None:
    h, y, weight, s = data(**sizes)
    decider, exact = Decider(s, weight, None), Decider(s, weight, None, exact_loss=True)
    logits = torch.empty(len(h), len(weight))
    works: dict[str, Callable[[], object]] = {
        "bare float32 product": lambda: torch.mm(h, weight.T, out=logits),
        "decisions and loss": lambda: ValidationTally(decider).add(h, y),
        "the same, exact loss": lambda: ValidationTally(exact).add(h, y),
    }
    times = in_turn(works, 2 if quick else 5)
    peak = None if quick else peak_growth("benchmarks.validate:prepared", **sizes)
    bare, ours, _ = times.values()
    rows = [
        Row(what, seconds, len(h) / seconds, bare / seconds, peak if what == "decisions and loss" else None)
        for what, seconds in times.items()
    ]
    where = f"d = {sizes['d']}"
    title = f"V = {sizes['V']:,}, C = {sizes['C']:,}, {where}, {sizes['N']:,} samples"
    limit = "the bare float32 product with the head, into a matrix that is there"
    record.tables.append(Table(title, rows, unit="samples", limit=limit))
    unlike, apart = differences(decider, weight, h, y, s)
    record.goals.append(Goal(f"decisions unlike float64's, {where}", sum(unlike.values()), 0, ""))
    record.goals.append(Goal(f"relative difference of the loss, {where}", apart, 1e-6, ""))
    if peak is not None:
        record.goals.append(Goal(f"validation over the bare product, {where}", ours / bare, 1.8))
        record.goals.append(Goal(f"peak growth of validation, {where}", peak / 1e6, 512, "MB"))


def data(**sizes: int) -> tuple[Tensor, Tensor, Tensor, EmbeddingStatistics]:
    """Return random embeddings, labels, a head and training statistics."""
    V, C, d, N = (sizes[name] for name in "VCdN")
    draw = torch.Generator().manual_seed(0)
    weight = torch.randn(V, d, generator=draw) / d**0.5
    classes = torch.randperm(V, generator=draw)[:C].sort().values
    h = torch.randn(N, d, generator=draw) * 3
    y = classes[torch.randint(C, (N,), generator=draw)]
    s = EmbeddingStatistics(
        classes=classes,
        counts=torch.full((C,), 2),
        means=torch.randn(C, d, dtype=torch.float64, generator=draw),
        variances=torch.rand(C, dtype=torch.float64, generator=draw),
    )
    return h, y, weight, s


def prepared(**sizes: int) -> Callable[[], object]:
    """Return a piece of work whose peak is that of preparing the classifiers and one pass."""
    h, y, weight, s = data(**sizes)
    return lambda: ValidationTally(Decider(s, weight, None)).add(h, y)


def differences(
    decider: Decider, weight: Tensor, h: Tensor, y: Tensor, s: EmbeddingStatistics
) -> tuple[dict[str, int], float]:
    """Compare with the direct computation in float64, sample by sample.

    Returns:
        How many decisions of each kind are unlike its own, and how far the summed loss is from its own, relatively.
    """
    linear, everywhere, _, loss = decider.linear(h.double(), y)
    ours = {"linear": linear, "whole vocabulary": everywhere, "nearest": decider.nearest(h.double())}
    unlike, total = dict.fromkeys(ours, 0), 0.0
    for some in torch.arange(len(h)).split(128):
        logits = h[some].double() @ weight.double().T
        total += float((logits.logsumexp(dim=1) - logits[torch.arange(len(some)), y[some]]).sum())
        centres = torch.cdist(h[some].double(), s.means, compute_mode="donot_use_mm_for_euclid_dist")
        direct = (s.classes[logits[:, s.classes].argmax(dim=1)], logits.argmax(dim=1), s.classes[centres.argmin(dim=1)])
        for kind, theirs in zip(ours, direct, strict=True):
            unlike[kind] += int((ours[kind][some] != theirs).sum())
    return unlike, abs(float(loss.sum()) / total - 1)
