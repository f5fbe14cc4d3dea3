"""Check a plugin statistic: it must depend only on the samples, not on how they are split and merged."""

from collections.abc import Collection, Sequence
from dataclasses import replace

import torch
from torch import Tensor

from collapse.errors import PluginError
from collapse.numerics.class_moments import ClassMoments
from collapse.numerics.decisions import Decider, ValidationTally
from collapse.plugin.plugin_statistics import PluginStatistics
from collapse.plugin.registry import check_declared
from collapse.plugin.statistic import Statistic
from collapse.testing.laws import Checked
from collapse.testing.samples import random_features

_CLASSES, _DIM, _SAMPLES, _VOCABULARY = 9, 5, 400, 311
_CHUNK = 4  # samples; a batch is a run of chunks, as in a collection
_TOLERANCE = 1e-9  # relative to the largest number of a tensor, for float64 sums in another order

State = dict[str, Tensor]
Runs = Sequence[slice]


def check_statistic(kind: type[Statistic], *, without: Collection[str] = ()) -> None:
    """Check that a statistic obeys every law on which collections rely.

    Args:
        kind: A subclass of :class:`collapse.Statistic`.
        without: Names of laws to skip.

    Raises:
        LawBroken: A law is broken; the message says which, by which tensor, and with which numbers. If the statistic
            fails, keeps its initial values or is not finite, the other laws are not checked.
        CollapseError: The statistic's name is invalid.
    """
    check_declared(kind)
    text = _Text(kind)
    whole, small, large, quarters = (_runs(size) for size in (_SAMPLES, _CHUNK, 64, _SAMPLES // 4))
    with Checked(without) as checked:
        law = "value"
        try:
            once = text.filled(whole)
            _check_value(checked, kind, once)
            if checked.broken:
                return  # the other laws would report the same
            for law, what, fill, runs in (
                ("value", "the same batch again", text.filled, whole),
                ("batch size", f"batches of {_CHUNK}", text.filled, small),
                ("batch size", "batches of 64", text.filled, large),
                ("sample order", "batches in reverse order", text.filled, small[::-1]),
                ("merge", "parts merged in order", text.merged, quarters),
                ("merge", "parts merged backwards", text.merged, quarters[::-1]),
            ):
                _compare(checked, law, what, once, fill(runs))
            law = "resume"
            _compare(checked, law, "a resumed run", text.filled(quarters), text.resumed(quarters), tolerance=0)
        except PluginError as error:
            checked.breach(law, kind.name, str(error))


def _runs(size: int) -> Runs:
    """Return a slice for each batch when the samples are cut into batches of this size."""
    return [slice(start, min(start + size, _SAMPLES)) for start in range(0, _SAMPLES, size)]


def _check_value(checked: Checked, kind: type[Statistic], held: State) -> None:
    sizes = len(held.get(f"{kind.name}/classes", ())), _DIM, "cpu"
    if all(torch.equal(held[f"{kind.name}/{name}"], each.zeros(*sizes)) for name, each in kind.state.items()):
        checked.breach("value", kind.name, f"it still has its initial values after {_SAMPLES} samples")
    for name, value in held.items():
        if value.is_floating_point() and not bool(torch.isfinite(value).all()):
            checked.breach("value", _called(name), f"it is not finite: {value.tolist()!r:.60}")


def _compare(
    checked: Checked, law: str, what: str, once: State, other: State, *, tolerance: float = _TOLERANCE
) -> None:
    for name, a in once.items():
        b = other[name]
        if a.shape != b.shape:
            checked.breach(law, _called(name), f"shape {tuple(a.shape)}, but {tuple(b.shape)} with {what}")
            continue
        size = float(a.double().abs().nan_to_num().max()) if a.numel() else 0.0
        differ = ~torch.isclose(a.double(), b.double(), rtol=0, atol=tolerance * size, equal_nan=True)
        for at in differ.nonzero().tolist()[:1]:
            checked.breach(law, _called(name), f"{a[tuple(at)].tolist()}, but {b[tuple(at)].tolist()} with {what}")


class _Text:
    """Samples of a text, whose labels have gaps like token ids, and the passes that fill one statistic."""

    def __init__(self, kind: type[Statistic]) -> None:
        features = random_features(_CLASSES, _DIM, _SAMPLES)
        draw = torch.Generator().manual_seed(3)
        ids = torch.randperm(_VOCABULARY, generator=draw)[:_CLASSES]
        self.statistic_types, self.h, self.y = (
            [kind],
            features["train_features"].double() + 3,
            ids[features["train_labels"]],
        )
        moments, seen = ClassMoments(_DIM), self.y != self.y[0]  # one label has no mean
        moments.add(self.h[seen], self.y[seen])
        weight = torch.randn(_VOCABULARY, _DIM, generator=draw, dtype=torch.float64)
        s = moments.statistics_so_far()
        # with an exact loss, so that any difference comes from the statistic
        self.decider = Decider(replace(s, classifier=weight[s.classes]), weight, None, exact_loss=True)

    def begin(self) -> ClassMoments | ValidationTally:
        """Begin a pass; return its empty accumulator."""
        plugin_statistics = PluginStatistics(self.statistic_types)
        if self.statistic_types[0].phase == "validation":
            return ValidationTally(self.decider, plugin_statistics)
        return ClassMoments(_DIM, plugin_statistics=plugin_statistics)

    def accumulated(self, runs: Runs, begun: ClassMoments | ValidationTally) -> ClassMoments | ValidationTally:
        """Add batches to the accumulator of a pass, and return it."""
        for run in runs:
            if isinstance(begun, ClassMoments):
                begun.add(self.h[run], self.y[run])
            else:
                chunks = (run.stop - run.start) // _CHUNK
                begun.add(self.h[run], self.y[run], units=chunks, first=run.start // _CHUNK)
        return begun

    def filled(self, runs: Runs) -> State:
        """Return the state of the statistic after a pass over batches."""
        return self.accumulated(runs, self.begin()).plugin_statistics.state()

    def resumed(self, runs: Runs) -> State:
        """Return the state after a pass over batches that stops after two batches and resumes from its state."""
        begun = self.accumulated(runs[:2], self.begin())
        begun.plugin_statistics = PluginStatistics.from_state(
            begun.plugin_statistics.state(), "cpu", self.statistic_types
        )
        return self.accumulated(runs[2:], begun).plugin_statistics.state()

    def merged(self, runs: Runs) -> State:
        """Return the state after filling a new statistic from each batch and merging these statistics in order."""
        total = self.begin()
        for run in runs:
            part = self.accumulated([run], self.begin())
            if isinstance(total, ClassMoments) and isinstance(part, ClassMoments):
                total.merge(part)
            else:
                total.plugin_statistics.merge(part.plugin_statistics)
        return total.plugin_statistics.state()


def _called(name: str) -> str:
    return name.replace("/", ".", 1)
