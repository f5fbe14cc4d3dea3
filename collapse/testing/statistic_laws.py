"""Check a plugin statistic: it must depend only on the samples, however they are split and merged."""

from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace

import torch
from torch import Tensor

from collapse.collection.folding import NOTHING
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
_CHUNK = 4  # samples; validation statistics see the chunk and the position of each sample
_TOLERANCE = 1e-9  # relative to the largest number of a tensor, for float64 sums in another order

State = dict[str, Tensor]
Unit = tuple[Tensor, Tensor, int]  # embeddings, labels and index: one sample, or a chunk for a validation statistic
Units = Sequence[Unit]


def check_statistic(kind: type[Statistic], *, without: Collection[str] = ()) -> None:
    """Check that a statistic obeys every law on which collections rely.

    Args:
        kind: A subclass of :class:`collapse.Statistic`.
        without: Names of laws that are not checked.

    Raises:
        LawBroken: Which laws are broken, by which statistic and tensor, and with which numbers. If the statistic
            fails or holds nothing, only this is reported.
        CollapseError: It is not such a class, or its name, phase or version is invalid.
    """
    check_declared(kind)
    units = _units(_CHUNK if kind.phase == "validation" else 1)
    order = torch.randperm(len(units), generator=torch.Generator().manual_seed(1)).tolist()
    quarters, few = _batches(units, len(units) // 4), units[: 3 * _CLASSES]
    with Checked(LAWS, without) as checked, suppress(_Stop):
        once = _filled(checked, kind, "value", [units])
        if not once or _is_empty(kind, once):
            what = "no tensor" if not once else "what an empty one holds"
            checked.breach("value", kind.name, f"it holds {what} after {_SAMPLES} samples")
        for name, value in once.items():
            if value.is_floating_point() and not bool(torch.isfinite(value).all()):
                checked.breach("value", f"{kind.name}.{name}", f"it is not finite: {_shown(value)}")
        if checked.broken:
            return  # the other laws would report the same
        shuffled = [units[index] for index in order]
        for law, what, whole, batches in (
            ("batch size", "batches of 5", [units], _batches(units, 5)),
            ("batch size", "batches of 64", [units], _batches(units, 64)),
            ("batch size", "batches of 1", [few], _batches(few, 1)),
            ("sample order", "samples in another order", [units], _batches(shuffled, 64)),
        ):
            _compare(checked, kind, law, what, _filled(checked, kind, law, whole), _filled(checked, kind, law, batches))
        with _breaching(checked, kind, "merge"):
            for what, merged in _merged(kind, quarters):
                _compare(checked, kind, "merge", what, once, _state(merged))
        resumed = _filled(checked, kind, "resume", quarters, stop_after=2)
        _compare(
            checked, kind, "resume", "a resumed run", _filled(checked, kind, "resume", quarters), resumed, exactly=True
        )


class _Stop(Exception):
    """The statistic failed, so the remaining checks are skipped."""


@contextmanager
def _breaching(checked: Checked, kind: type[Statistic], law: str) -> Iterator[None]:
    """Report a failure of the statistic as a breach of a law."""
    try:
        yield
    except PluginError as error:
        checked.breach(law, kind.name, str(error))
        raise _Stop from error


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
        """The statistic being filled."""
        return self.moments.statistics if self.tally is None else self.tally.statistics

    def add(self, units: Units) -> None:
        """Add a batch; chunks that do not follow each other are added separately, since a batch has one run of them."""
        if self.tally is None:
            self.moments.add(*_joined(units))
            return
        for run in _runs(units):
            self.tally.add(*_joined(run), chunks=len(run), first=run[0][2])

    def merge(self, other: "_Pass") -> None:
        """Merge another pass."""
        if self.tally is None:
            self.moments.merge(other.moments)
        else:
            self.filled.merge(other.filled, NOTHING, NOTHING)

    def resume(self) -> None:
        """Resume from the state, as a killed collection resumes from its file."""
        if self.tally is None:
            self.moments = ClassMoments.from_state(self.moments.state(), "cpu", [self.kind])
        else:
            self._begin(Filled.from_state(self.filled.state(), "cpu", [self.kind]))


def _units(length: int) -> Units:
    """Return embeddings with labels that have gaps, as token ids have, in units of a number of samples."""
    features = random_features(_CLASSES, _DIM, _SAMPLES)
    ids = torch.randperm(_VOCABULARY, generator=torch.Generator().manual_seed(3))[:_CLASSES]
    h_nd, y_n = features["train_features"].double() + 3, ids[features["train_labels"]]
    return list(zip(h_nd.split(length), y_n.split(length), range(_SAMPLES // length), strict=True))


def _runs(units: Units) -> Iterator[Units]:
    """Yield runs of units whose indices follow each other."""
    start = 0
    for stop in range(1, len(units) + 1):
        if stop == len(units) or units[stop][2] != units[stop - 1][2] + 1:
            yield units[start:stop]
            start = stop


def _decider() -> Decider:
    """Return the classifiers of a validation pass in which one label has no mean."""
    h_nd, y_n = _joined(_units(1))
    seen = y_n != y_n[0]
    moments = ClassMoments(_DIM)
    moments.add(h_nd[seen], y_n[seen])
    s = moments.statistics_so_far()
    draw = torch.Generator().manual_seed(4)
    weight = torch.randn(_VOCABULARY, _DIM, generator=draw, dtype=torch.float64)
    # exact, so that what the laws find is the statistic's own
    return Decider(replace(s, classifier=weight[s.classes]), weight, None, exact_loss=True)


def _joined(units: Units) -> tuple[Tensor, Tensor]:
    return torch.cat([h for h, _, _ in units]), torch.cat([y for _, y, _ in units])


def _is_empty(kind: type[Statistic], state: State) -> bool:
    empty = _state(_Pass(kind))
    return empty.keys() == state.keys() and all(torch.equal(value, empty[name]) for name, value in state.items())


def _filled(
    checked: Checked,
    kind: type[Statistic],
    law: str,
    batches: Sequence[Units],
    *,
    stop_after: int | None = None,
) -> State:
    with _breaching(checked, kind, law):
        made = _Pass(kind)
        for number, batch in enumerate(batches):
            if number == stop_after:
                made.resume()
            made.add(batch)
        return _state(made)


def _merged(kind: type[Statistic], batches: Sequence[Units]) -> Iterator[tuple[str, _Pass]]:
    """Yield passes of one batch each, merged in several orders."""
    for what, order in (("in order", range(len(batches))), ("backwards", range(len(batches))[::-1])):
        for empty_first in (False, True):
            passes = [_Pass(kind) for _ in batches]
            for each, batch in zip(passes, batches, strict=True):
                each.add(batch)
            first, *others = ([_Pass(kind)] if empty_first else []) + [passes[index] for index in order]
            for other in others:
                first.merge(other)
            yield f"{len(batches)} parts merged {what}{', into an empty one' if empty_first else ''}", first


def _state(made: _Pass) -> State:
    return made.filled.tensors()[made.kind.name]


def _compare(
    checked: Checked, kind: type[Statistic], law: str, what: str, once: State, other: State, *, exactly: bool = False
) -> None:
    for name in sorted({*once, *other}):
        a, b = once.get(name), other.get(name)
        of = f"{kind.name}.{name}"
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


def _batches(units: Units, size: int) -> list[Units]:
    return [units[start : start + size] for start in range(0, len(units), size)]


def _shown(value: Tensor) -> str:
    return f"{value.tolist()!r:.60}"
