"""Check a plugin statistic: what it holds must depend on the samples alone, however they are split and merged."""

from collections.abc import Collection, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace

import torch
from torch import Tensor

from collapse.accumulate import ClassMoments, Statistic
from collapse.decisions import Decider, ValidationTally
from collapse.filling import Filled
from collapse.pieces import NOTHING
from collapse.plugin_manager import check_declared
from collapse.testing.laws import Checked
from collapse.testing.samples import random_features

LAWS = ("value", "batch size", "merge order", "sample order", "resume")
_CLASSES, _DIM, _SAMPLES, _VOCABULARY = 9, 5, 400, 311
_TOLERANCE = 1e-9  # of the largest number of a tensor: float64 sums in another order

State = dict[str, Tensor]
Samples = Sequence[tuple[Tensor, Tensor]]


def check_statistic(kind: type[Statistic], *, without: Collection[str] = ()) -> None:
    """Check a statistic against every law that collections rely on.

    Args:
        kind: A subclass of :class:`collapse.Statistic`.
        without: Names of laws that are not looked at.

    Raises:
        LawBroken: Which laws are broken, by which tensor, and with which numbers. Where it fails, or holds nothing,
            this alone is told.
        CollapseError: It is no such class, or its name, phase or version is not possible.
    """
    check_declared(kind)
    samples = _samples()
    order = torch.randperm(_SAMPLES, generator=torch.Generator().manual_seed(1)).tolist()
    with Checked(LAWS, without) as checked, suppress(_Stop):
        once = _filled(checked, kind, "value", [samples])
        if not once or _is_empty(checked, kind, once):
            what = "no tensor" if not once else "what an empty one holds"
            checked.breach("value", kind.name, f"it holds {what} after {_SAMPLES} samples")
        for name, value in once.items():
            if value.is_floating_point() and not bool(torch.isfinite(value).all()):
                checked.breach("value", f"{kind.name}.{name}", f"it is not finite: {_shown(value)}")
        if checked.broken:
            return  # the other laws would say the same
        for size in (5, 64):
            batches = _batches(samples, size)
            _compare(checked, "batch size", f"batches of {size}", once, _filled(checked, kind, "batch size", batches))
        few = samples[: 3 * _CLASSES]
        alone = _filled(checked, kind, "batch size", _batches(few, 1))
        _compare(checked, "batch size", "batches of 1", _filled(checked, kind, "batch size", [few]), alone)
        shuffled = [samples[index] for index in order]
        after = _filled(checked, kind, "sample order", _batches(shuffled, 64))
        _compare(checked, "sample order", "samples in another order", once, after)
        for what, merged in _merged(kind, _batches(samples, 100)):
            _compare(checked, "merge order", what, once, _state(checked, kind, "merge order", merged))
        resumed = _filled(checked, kind, "resume", _batches(samples, 100), stop_after=2)
        straight = _filled(checked, kind, "resume", _batches(samples, 100))
        _compare(checked, "resume", "a resumed run", straight, resumed, exactly=True)


class _Stop(Exception):
    """The statistic failed: nothing that follows can be looked at."""


class _Pass:
    """A pass over samples that fills one statistic, in the training phase or in the validation phase."""

    def __init__(self, kind: type[Statistic]) -> None:
        self.kind = kind
        self.decider = _decider() if kind.phase == "validation" else None
        self._begin(Filled.begin([kind]))

    def _begin(self, filled: Filled) -> None:
        self.moments = ClassMoments(_DIM, statistics=filled)
        self.tally = None if self.decider is None else ValidationTally(self.decider, filled)

    @property
    def filled(self) -> Filled:
        """The statistic, while it is filled."""
        return self.moments.statistics if self.tally is None else self.tally.statistics

    def add(self, samples: Samples) -> None:
        """Take in a batch."""
        h_Bd, y_B = _stacked(samples)
        (self.moments if self.tally is None else self.tally).add(h_Bd, y_B)

    def merge(self, other: "_Pass") -> None:
        """Take in another pass."""
        if self.tally is None:
            self.moments.merge(other.moments)
        else:
            self.filled.merge(other.filled, NOTHING, NOTHING)

    def resume(self) -> None:
        """Go on from the state as a killed collection does from its file."""
        if self.tally is None:
            self.moments = ClassMoments.from_state(self.moments.state(), "cpu", [self.kind], self.filled.dropped)
        else:
            self._begin(Filled.from_state(self.filled.state(), "cpu", [self.kind], self.filled.dropped))


def _samples() -> Samples:
    """Embeddings with labels that have gaps, as the ids of tokens have."""
    features = random_features(_CLASSES, _DIM, _SAMPLES)
    ids = torch.randperm(_VOCABULARY, generator=torch.Generator().manual_seed(3))[:_CLASSES]
    return list(zip(features["train_features"].double() + 3, ids[features["train_labels"]], strict=True))


def _decider() -> Decider:
    """The classifiers of a validation pass, in which one label has no mean."""
    samples = _samples()
    unseen = samples[0][1]
    moments = ClassMoments(_DIM)
    h_Bd, y_B = _stacked([(h, y) for h, y in samples if y != unseen])
    moments.add(h_Bd, y_B)
    s = moments.statistics_so_far()
    draw = torch.Generator().manual_seed(4)
    weight = torch.randn(_VOCABULARY, _DIM, generator=draw, dtype=torch.float64)
    return Decider(replace(s, classifier=weight[s.classes]), weight, None)


def _stacked(samples: Samples) -> tuple[Tensor, Tensor]:
    h_Bd, y_B = (torch.stack(each) for each in zip(*samples, strict=True))
    return h_Bd, y_B


def _is_empty(checked: Checked, kind: type[Statistic], state: State) -> bool:
    empty = _state(checked, kind, "value", _Pass(kind))
    return empty.keys() == state.keys() and all(torch.equal(value, empty[name]) for name, value in state.items())


def _filled(
    checked: Checked,
    kind: type[Statistic],
    law: str,
    batches: Sequence[Samples],
    *,
    stop_after: int | None = None,
) -> State:
    made = _Pass(kind)
    for number, batch in enumerate(batches):
        if number == stop_after:
            made.resume()
        made.add(batch)
    return _state(checked, kind, law, made)


def _merged(kind: type[Statistic], batches: Sequence[Samples]) -> Iterator[tuple[str, _Pass]]:
    """Passes of one batch each, merged in several orders."""

    def passes() -> list[_Pass]:
        made = [_Pass(kind) for _ in batches]
        for each, batch in zip(made, batches, strict=True):
            each.add(batch)
        return made

    for what, order in (("merged in order", range(len(batches))), ("merged backwards", range(len(batches))[::-1])):
        made = passes()
        first, *others = (made[index] for index in order)
        for other in others:
            first.merge(other)
        yield f"{len(batches)} parts {what}", first
    a, b, *others = passes()
    for other in others:
        b.merge(other)
    a.merge(b)
    yield "parts merged last to first by twos", a
    empty, (whole, *others) = _Pass(kind), passes()
    for other in others:
        whole.merge(other)
    empty.merge(whole)
    yield "merged into an empty one", empty


def _state(checked: Checked, kind: type[Statistic], law: str, made: _Pass) -> State:
    state = made.filled.tensors().get(kind.name)
    if state is None:
        checked.breach(law, kind.name, made.filled.dropped.get(kind.name, "it was dropped"))
        raise _Stop
    return {name: value.clone() for name, value in state.items()}


def _compare(checked: Checked, law: str, what: str, once: State, other: State, *, exactly: bool = False) -> None:
    for name in sorted({*once, *other}):
        a, b = once.get(name), other.get(name)
        of = name
        if a is None or b is None:
            checked.breach(law, of, f"it is there in {'one batch' if b is None else what} only")
        elif (a.shape, a.dtype) != (b.shape, b.dtype):
            checked.breach(
                law, of, f"{tuple(a.shape)}, {a.dtype} in one batch, {tuple(b.shape)}, {b.dtype} with {what}"
            )
        else:
            size = float(a.double().abs().nan_to_num().max()) if a.numel() else 0.0
            apart = (a.double() - b.double()).abs()
            same = (a == b) | (a.isnan() & b.isnan()) | (apart <= (0 if exactly else _TOLERANCE * size))
            if not bool(same.all()):
                at = tuple((~same).nonzero()[0].tolist())
                checked.breach(law, of, f"{_shown(a[at])} in one batch, {_shown(b[at])} with {what}")


def _batches(samples: Samples, size: int) -> list[Samples]:
    return [samples[start : start + size] for start in range(0, len(samples), size)]


def _shown(value: Tensor) -> str:
    return f"{value.tolist()!r:.60}"
