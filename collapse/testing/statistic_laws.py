"""Check a plugin statistic: it must depend only on the samples, not on how they are split and merged."""

from collections.abc import Collection
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
from collapse.testing.sample_data import random_features

_CLASSES, _DIM, _SAMPLES, _VOCABULARY = 9, 5, 400, 311
_CHUNK = 4  # samples; a batch is a run of chunks, as in a collection
_TOLERANCE = 1e-9  # relative to the largest number of a tensor, for float64 sums in another order

State = dict[str, Tensor]


def check_statistic(kind: type[Statistic], *, without: Collection[str] = ()) -> None:
    """Check that a statistic obeys every law on which collections rely.

    Args:
        kind: A subclass of :class:`collapse.Statistic`.
        without: Names of laws to skip.

    Raises:
        LawBroken: A law is broken. The message names the law, the tensor that breaks it, and the numbers. If the
            statistic fails, keeps its initial values or is not finite, the other laws are not checked.
        CollapseError: The statistic's name is invalid.
    """
    check_declared(kind)
    text = _Text(kind)
    with Checked(without) as checked:
        law = "value"
        try:
            once = text.filled(_SAMPLES)
            _check_value(checked, kind, once)
            if checked.broken:
                return  # the other laws would report the same
            for law, what, fill, size in (
                ("value", "the same batch again", text.filled, _SAMPLES),
                ("batch size", f"batches of {_CHUNK}", text.filled, _CHUNK),
                ("batch size", "batches of 64", text.filled, 64),
                ("merge", "merged parts", text.merged, _SAMPLES // 4),
            ):
                _compare(checked, law, what, once, fill(size))
        except PluginError as error:
            checked.breach(law, kind.name, str(error))


def _check_value(checked: Checked, kind: type[Statistic], held: State) -> None:
    sizes = len(held.get(f"{kind.name}/classes", ())), _DIM, "cpu"
    if all(torch.equal(held[f"{kind.name}/{name}"], each.zeros(*sizes)) for name, each in kind.state.items()):
        checked.breach("value", kind.name, f"it still has its initial values after {_SAMPLES} samples")
    for name, value in held.items():
        if value.is_floating_point() and not bool(torch.isfinite(value).all()):
            checked.breach("value", _called(name), f"it is not finite: {value.tolist()!r:.60}")


def _compare(checked: Checked, law: str, what: str, once: State, other: State) -> None:
    for name, a in once.items():
        b = other[name]
        if a.shape != b.shape:
            checked.breach(law, _called(name), f"shape {tuple(a.shape)}, but {tuple(b.shape)} with {what}")
            continue
        size = float(a.double().abs().nan_to_num().max()) if a.numel() else 0.0
        differ = ~torch.isclose(a.double(), b.double(), rtol=0, atol=_TOLERANCE * size, equal_nan=True)
        for at in differ.nonzero().tolist()[:1]:
            checked.breach(law, _called(name), f"{a[tuple(at)].tolist()}, but {b[tuple(at)].tolist()} with {what}")


class _Text:
    """Samples of a text, and methods that fill one statistic from them; the labels have gaps, like token ids."""

    def __init__(self, kind: type[Statistic]) -> None:
        features = random_features(_CLASSES, _DIM, _SAMPLES)
        draw = torch.Generator().manual_seed(3)
        ids = torch.randperm(_VOCABULARY, generator=draw)[:_CLASSES]
        self.statistic_types = [kind]
        self.h, self.y = features["train_features"].double() + 3, ids[features["train_labels"]]
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

    def add(self, total: ClassMoments | ValidationTally, start: int, size: int) -> None:
        """Add a batch: the next ``size`` samples from ``start`` on, or fewer at the end of the text."""
        run = slice(start, min(start + size, _SAMPLES))
        if isinstance(total, ClassMoments):
            total.add(self.h[run], self.y[run])
        else:
            total.add(self.h[run], self.y[run], units=(run.stop - start) // _CHUNK, first=start // _CHUNK)

    def filled(self, size: int) -> State:
        """Return the state of the statistic after a pass over batches of ``size`` samples."""
        total = self.begin()
        for start in range(0, _SAMPLES, size):
            self.add(total, start, size)
        return total.plugin_statistics.state()

    def merged(self, size: int) -> State:
        """Fill a new statistic from each part of ``size`` samples, and return the state of all parts merged.

        Parts are merged from the last to the first.
        """
        total = self.begin()
        for start in reversed(range(0, _SAMPLES, size)):
            part = self.begin()
            self.add(part, start, size)
            if isinstance(total, ClassMoments) and isinstance(part, ClassMoments):
                total.merge(part)
            else:
                total.plugin_statistics.merge(part.plugin_statistics)
        return total.plugin_statistics.state()


def _called(name: str) -> str:
    return name.replace("/", ".", 1)
