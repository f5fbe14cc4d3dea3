"""Benchmark decisions and loss of random embeddings, compared with one float32 product of embeddings and output layer.

The results are also compared with a direct float64 computation.
"""

from collections.abc import Callable

import torch
from torch import Tensor

from benchmarks.record import Record
from benchmarks.timing import in_turn, peak_growth
from collapse import EmbeddingStatistics
from collapse.numerics.decisions import Decider, ValidationTally


def benchmark(quick: bool, device: str) -> Record:
    """Time decisions and loss for d = 256, and for d = 64 on a CPU or d = 1,024 on a GPU."""
    record = Record("validate", "Decisions and loss of embeddings, without the forward pass of the model.")
    on_cpu = device == "cpu"
    vocabulary, classes, tokens = (4_000, 2_000, 512) if quick else (50_257, 29_233, 2_047 if on_cpu else 32_768)
    for dim in (256, 64 if on_cpu else 1_024):
        _add(record, {"V": vocabulary, "C": classes, "d": dim, "N": tokens}, quick, device)
    return record


def _add(record: Record, sizes: dict[str, int], quick: bool, device: str) -> None:
    h, y, weight, s = data(device, **sizes)
    decider, exact = Decider(s, weight, None), Decider(s, weight, None, exact_loss=True)
    logits = torch.empty(len(h), len(weight), device=device)
    works: dict[str, Callable[[], object]] = {
        "bare float32 product": lambda: torch.mm(h, weight.T, out=logits),
        "decisions and loss": lambda: ValidationTally(decider).add(h, y),
        "the same, exact loss": lambda: ValidationTally(exact).add(h, y),
    }
    times = in_turn(works, 2 if quick else 5)
    peak = None if quick else peak_growth(prepared, device=device, **sizes)
    record.add(
        f"V = {sizes['V']:,}, C = {sizes['C']:,}, d = {sizes['d']}, {sizes['N']:,} samples",
        times,
        amount=len(h),
        unit="samples",
        limit="bare float32 product",
        peaks={"decisions and loss": peak},
    )
    unlike, apart = differences(decider, weight, h, y, s)
    record.notes.append(
        f"d = {sizes['d']}: {unlike} decisions differ from float64; relative difference of the loss {apart:.1e}"
    )


def data(device: str, **sizes: int) -> tuple[Tensor, Tensor, Tensor, EmbeddingStatistics]:
    """Return random embeddings (N, d), labels (N,), an output layer (V, d), and statistics of C classes."""
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
    return h.to(device), y.to(device), weight.to(device), s.to(device)


def prepared(device: str, **sizes: int) -> Callable[[], object]:
    """Return a function that prepares the classifiers and makes one pass, to measure its peak memory."""
    h, y, weight, s = data(device, **sizes)
    return lambda: ValidationTally(Decider(s, weight, None)).add(h, y)


def differences(decider: Decider, weight: Tensor, h: Tensor, y: Tensor, s: EmbeddingStatistics) -> tuple[int, float]:
    """Compare a decider's results with a direct float64 computation.

    Returns:
        The number of decisions (linear, over the vocabulary, and nearest class centre) that differ, and the relative
        difference of the summed loss.
    """
    linear, everywhere, _, loss = decider.linear(h.double(), y)
    ours = (linear, everywhere, decider.nearest(h.double()))
    unlike, total = 0, 0.0
    for some in torch.arange(len(h)).split(128):
        logits = h[some].double() @ weight.double().T
        total += float((logits.logsumexp(dim=1) - logits[torch.arange(len(some)), y[some]]).sum())
        centres = torch.cdist(h[some].double(), s.means, compute_mode="donot_use_mm_for_euclid_dist")
        direct = (s.classes[logits[:, s.classes].argmax(dim=1)], logits.argmax(dim=1), s.classes[centres.argmin(dim=1)])
        unlike += sum(int((mine[some] != theirs).sum()) for mine, theirs in zip(ours, direct, strict=True))
    return unlike, abs(float(loss.sum()) / total - 1)
