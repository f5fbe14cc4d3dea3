"""The validation pass behind the model, against one bare float32 product of the same embeddings with the whole head.

Both classifiers, the loss and their tally over random embeddings, and where they differ from direct float64. With
``--against COMMIT`` the pass of an older commit takes turns with this one's, on the same numbers.
"""

import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import torch
from safetensors.torch import save_file
from torch import Tensor

from benchmarks.memory import peak_growth
from benchmarks.options import Options
from benchmarks.record import Goal, Growth, Record, Row, Table
from benchmarks.timing import exponents, in_turn, varied
from benchmarks.workers import Worker, tree_of
from collapse import EmbeddingStatistics
from collapse.numerics.decisions import Decider, ValidationTally

SNIPPET = """
import sys
from safetensors.torch import load_file
from collapse import EmbeddingStatistics
try:
    from collapse.numerics.decisions import Decider, ValidationTally
except ModuleNotFoundError:  # before the core was divided into folders
    from collapse.decisions import Decider, ValidationTally
data = load_file(sys.argv[2])
h, y, weight = data.pop("h"), data.pop("y"), data.pop("weight")
decider = Decider(EmbeddingStatistics(**data), weight, None)
works["validation"] = lambda: ValidationTally(decider).add(h, y)
"""
"""One pass, in this version of the code and in older ones."""

_FASTER = {"d = 256": 3, "d = 64": 4}
"""How many times faster than commit 2017d5a it must be."""


def benchmark(options: Options) -> Record:
    """Measure d = 256 and d = 64, and their growth over V, d and N."""
    rounds = 2 if options.quick else 5
    vocabulary, classes, tokens = (4_000, 2_000, 512) if options.quick else (50_257, 29_233, 2_047)
    tables, goals, notes = [], [], []
    for dim in (256, 64):
        sizes = {"V": vocabulary, "C": classes, "d": dim, "N": tokens}
        table, reached, note = _measured(sizes, rounds, options)
        tables.append(table)
        goals += [] if options.quick else reached
        notes += note
    whole = {"V": vocabulary, "C": classes, "d": 256, "N": tokens}
    vary = varied({name: whole[name] for name in "VdN"}, (0.5,) if options.quick else (0.5, 0.25))
    points = [(each, _one({**each, "C": each["V"] * classes // vocabulary}, rounds)) for each in vary]
    growth = [Growth("decisions and loss, C with V", "time", exponents(points))]
    return Record("validate", "The validation pass without its model.", tables, goals, growth, notes)


def _one(sizes: dict[str, int], rounds: int) -> float:
    h, y, weight, s = data(**sizes)
    decider = Decider(s, weight, None)
    return in_turn({"ours": lambda: ValidationTally(decider).add(h, y)}, rounds)["ours"]


def _measured(sizes: dict[str, int], rounds: int, options: Options) -> tuple[Table, list[Goal], list[str]]:
    h, y, weight, s = data(**sizes)
    decider = Decider(s, weight, None)
    names = {"product": "bare float32 product", "ours": "decisions and loss", "exact": "the same, exact loss"}
    names |= {"older": f"validation of {options.against[:10]}"} if options.against else {}
    times = _times(h, y, weight, s, rounds, options.against)
    peak = None if options.quick else peak_growth("benchmarks.validate:prepared", **sizes)
    rows = [
        Row(what, times[name], len(h) / times[name], times["product"] / times[name], peak if name == "ours" else None)
        for name, what in names.items()
    ]
    where = f"d = {sizes['d']}"
    flops = 2 * len(h) * weight.numel() / times["product"] / 1e9
    unlike, apart = differences(decider, weight, h, y, s)
    counts = ", ".join(f"{count} of the {kind} ones" for kind, count in unlike.items())
    notes = [
        f"{where}: the product reaches {flops:.0f} GFLOP/s; of {len(h):,} decisions, {counts} are unlike float64's; "
        f"the loss differs by {apart:.1e}"
    ]
    if "older" in times:
        notes.append(f"{where}: {times['older'] / times['ours']:.2f} times as fast as {options.against}")
    title = f"V = {sizes['V']:,}, C = {sizes['C']:,}, {where}, {sizes['N']:,} samples"
    limit = "the bare float32 product with the head, into a matrix that is there"
    return Table(title, rows, unit="samples", limit=limit), list(_goals(where, times, peak, options.against)), notes


def _times(
    h: Tensor, y: Tensor, weight: Tensor, s: EmbeddingStatistics, rounds: int, against: str | None
) -> dict[str, float]:
    """Time the bare product, the pass, also with the exact loss, and that of an older commit."""
    decider, exact = Decider(s, weight, None), Decider(s, weight, None, exact_loss=True)
    logits = torch.empty(len(h), len(weight))
    works: dict[str, Callable[[], object]] = {
        "product": lambda: torch.mm(h, weight.T, out=logits),
        "ours": lambda: ValidationTally(decider).add(h, y),
        "exact": lambda: ValidationTally(exact).add(h, y),
    }
    with ExitStack() as stack:
        if against:
            file = Path(stack.enter_context(tempfile.TemporaryDirectory())) / "data.safetensors"
            save_file({"h": h, "y": y, "weight": weight, **_fields(s)}, file)
            worker = stack.enter_context(Worker(SNIPPET, str(file), tree=stack.enter_context(tree_of(against))))
            worker.wait()
            works["older"] = lambda: worker.seconds("validation")
        return in_turn(works, rounds)


def _goals(where: str, times: dict[str, float], peak: int | None, against: str | None) -> Iterator[Goal]:
    if where == "d = 256":
        yield Goal(f"validation over the bare product, {where}", times["ours"] / times["product"], 1.8)
    if peak is not None:
        yield Goal(f"peak growth of validation, {where}", peak / 1e6, 512, "MB")
    if against:
        yield Goal(
            f"faster than {against[:10]}, {where}", times["older"] / times["ours"], _FASTER[where], at_least=True
        )


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


def _fields(s: EmbeddingStatistics) -> dict[str, Tensor]:
    return {name: getattr(s, name) for name in ("classes", "counts", "means", "variances")}


def prepared(**sizes: int) -> Callable[[], None]:
    """Return a piece of work whose peak is that of preparing the classifiers and one pass."""
    h, y, weight, s = data(**sizes)
    h[:64] @ weight.T

    def work() -> None:
        ValidationTally(Decider(s, weight, None)).add(h, y)

    return work


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
