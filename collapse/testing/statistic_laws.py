"""Check a plugin statistic: it must depend only on the samples, however they are split and merged."""

from collections.abc import Callable, Collection, Sequence
from dataclasses import replace

import torch
from torch import Tensor

from collapse.errors import PluginError
from collapse.numerics.accumulate import ClassMoments
from collapse.numerics.decisions import Decider, ValidationTally
from collapse.plugin.filling import Filled
from collapse.plugin.registry import check_declared
from collapse.plugin.statistic import Statistic
from collapse.testing.laws import Checked
from collapse.testing.samples import random_features

LAWS = ("value", "batch size", "merge", "sample order", "resume")
_CLASSES, _DIM, _SAMPLES, _VOCABULARY = 9, 5, 400, 311
_CHUNK = 4  # samples; a batch is a run of chunks, as in a collection
_TOLERANCE = 1e-9  # relative to the largest number of a tensor, for float64 sums in another order

State = dict[str, Tensor]


def check_statistic(kind: type[Statistic], *, without: Collection[str] = ()) -> None:
    """Check that a statistic obeys every law on which collections rely.

    Args:
        kind: A subclass of :class:`collapse.Statistic`.
        without: Names of laws that are not checked.

    Raises:
        LawBroken: Which laws are broken, by which statistic and tensor, and with which numbers. If the statistic
            fails or holds nothing, only this is reported.
        CollapseError: Its name is invalid.
    """
    check_declared(kind)
    text = _Text(kind)
    whole = text.filled([slice(0, _SAMPLES)])
    small, large, quarters = text.batches(_CHUNK), text.batches(64), text.batches(_SAMPLES // 4)
    with Checked(LAWS, without) as checked:
        for law, what, one, other in (
            ("value", "twice the same batch", whole, whole),
            ("batch size", f"batches of {_CHUNK}", whole, text.filled(small)),
            ("batch size", "batches of 64", whole, text.filled(large)),
            ("sample order", "batches in reverse order", whole, text.filled(small[::-1])),
            ("merge", "parts merged in order", whole, text.merged(quarters)),
            ("merge", "parts merged backwards", whole, text.merged(quarters[::-1])),
            ("resume", "a resumed run", text.filled(quarters), text.filled(quarters, resume=True)),
        ):
            try:
                first, second = one(), other()
            except PluginError as error:
                checked.breach(law, kind.name, str(error))
                return
            _compare(checked, law, what, first, second, 0 if law == "resume" else _TOLERANCE)
            if law == "value":
                _check_value(checked, kind, first)
                if checked.broken:
                    return  # the other laws would report the same


def _check_value(checked: Checked, kind: type[Statistic], held: State) -> None:
    sizes = len(held.get(f"{kind.name}/classes", ())), _DIM, "cpu"
    if all(torch.equal(held[f"{kind.name}/{name}"], each.zeros(*sizes)) for name, each in kind.state.items()):
        checked.breach("value", kind.name, f"it holds what an empty one holds after {_SAMPLES} samples")
    for name, value in held.items():
        if value.is_floating_point() and not bool(torch.isfinite(value).all()):
            checked.breach("value", _called(name), f"it is not finite: {value.tolist()!r:.60}")


def _compare(checked: Checked, law: str, what: str, once: State, other: State, tolerance: float) -> None:
    for name, a in once.items():
        b = other[name]
        said = f"{tuple(a.shape)} in one batch, {tuple(b.shape)} with {what}"
        if a.shape == b.shape:
            size = float(a.double().abs().nan_to_num().max()) if a.numel() else 0.0
            same = torch.isclose(a.double(), b.double(), rtol=0, atol=tolerance * size, equal_nan=True)
            if bool(same.all()):
                continue
            at = tuple((~same).nonzero()[0].tolist())
            said = f"{a[at].tolist()} in one batch, {b[at].tolist()} with {what}"
        checked.breach(law, _called(name), said)


class _Text:
    """Samples of a text, whose labels have gaps as token ids have, and the passes that fill one statistic."""

    def __init__(self, kind: type[Statistic]) -> None:
        features = random_features(_CLASSES, _DIM, _SAMPLES)
        draw = torch.Generator().manual_seed(3)
        ids = torch.randperm(_VOCABULARY, generator=draw)[:_CLASSES]
        self.kind, self.h, self.y = kind, features["train_features"].double() + 3, ids[features["train_labels"]]
        moments, seen = ClassMoments(_DIM), self.y != self.y[0]  # one label has no mean
        moments.add(self.h[seen], self.y[seen])
        weight = torch.randn(_VOCABULARY, _DIM, generator=draw, dtype=torch.float64)
        s = moments.statistics_so_far()
        # exact, so that what the laws find is the statistic's own
        self.decider = Decider(replace(s, classifier=weight[s.classes]), weight, None, exact_loss=True)

    def batches(self, size: int) -> list[slice]:
        """Return runs of samples of a size."""
        return [slice(start, min(start + size, _SAMPLES)) for start in range(0, _SAMPLES, size)]

    def filled(self, batches: Sequence[slice], resume: bool = False) -> Callable[[], State]:
        """Fill it from batches; to ``resume``, it is restored from its tensors before the third."""

        def fill() -> State:
            filled = Filled.begin([self.kind])
            moments, tally = ClassMoments(_DIM, statistics=filled), ValidationTally(self.decider, filled)
            for number, run in enumerate(batches):
                if resume and number == 2:
                    filled = Filled.from_state(filled.state(), "cpu", [self.kind])
                    moments.statistics = tally.statistics = filled
                if self.kind.phase == "train":
                    moments.add(self.h[run], self.y[run])
                else:
                    chunks = (run.stop - run.start) // _CHUNK
                    tally.add(self.h[run], self.y[run], chunks=chunks, first=run.start // _CHUNK)
            return filled.state()

        return fill

    def merged(self, parts: Sequence[slice]) -> Callable[[], State]:
        """Merge statistics of one batch each, one after the other."""

        def merge() -> State:
            if self.kind.phase == "validation":
                total = Filled.begin([self.kind])
                for part in parts:
                    total.merge(Filled.from_state(self.filled([part])(), "cpu", [self.kind]))
                return total.state()
            moments = ClassMoments(_DIM, statistics=Filled.begin([self.kind]))
            for part in parts:
                other = ClassMoments(_DIM, statistics=Filled.begin([self.kind]))
                other.add(self.h[part], self.y[part])
                moments.merge(other)
            return moments.statistics.state()

        return merge


def _called(name: str) -> str:
    return name.replace("/", ".", 1)
