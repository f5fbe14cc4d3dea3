"""Check a plugin statistic: it must depend only on the samples, however they are split and merged."""

from collections.abc import Callable, Collection, Iterator, Sequence
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
        CollapseError: Its name is invalid.
    """
    check_declared(kind)
    units = _units(_CHUNK if kind.phase == "validation" else 1)
    order = torch.randperm(len(units), generator=torch.Generator().manual_seed(1)).tolist()
    shuffled, quarters, few = [units[index] for index in order], _batches(units, len(units) // 4), units[: 3 * _CLASSES]

    def filled(batches: Sequence[Units], resume: bool = False) -> Callable[[], State]:
        return lambda: _filled(kind, batches, resume).state()

    def merged(parts: Sequence[Units]) -> Callable[[], State]:
        return lambda: _merged(kind, parts).state()

    whole = filled([units])
    with Checked(LAWS, without) as checked:
        for law, what, one, other in (
            ("value", "twice the same batch", whole, whole),
            ("batch size", "batches of 5", whole, filled(_batches(units, 5))),
            ("batch size", "batches of 64", whole, filled(_batches(units, 64))),
            ("batch size", "batches of 1", filled([few]), filled(_batches(few, 1))),
            ("sample order", "samples in another order", whole, filled(_batches(shuffled, 64))),
            ("merge", "parts merged in order", whole, merged(quarters)),
            ("merge", "parts merged backwards", whole, merged(quarters[::-1])),
            ("merge", "parts merged into an empty one", whole, merged([[], *quarters])),
            ("resume", "a resumed run", filled(quarters), filled(quarters, resume=True)),
        ):
            try:
                first, second = one(), other()
            except PluginError as error:
                checked.breach(law, kind.name, str(error))
                return
            if law == "value":
                _check_value(checked, kind, first, _filled(kind, []).state())
                if checked.broken:
                    return  # the other laws would report the same
            _compare(checked, law, what, first, second, 0 if law == "resume" else _TOLERANCE)


def _check_value(checked: Checked, kind: type[Statistic], held: State, empty: State) -> None:
    if not held:
        checked.breach("value", kind.name, f"it holds no tensor after {_SAMPLES} samples")
    elif held.keys() == empty.keys() and all(torch.equal(value, empty[name]) for name, value in held.items()):
        checked.breach("value", kind.name, f"it holds what an empty one holds after {_SAMPLES} samples")
    for name, value in held.items():
        if value.is_floating_point() and not bool(torch.isfinite(value).all()):
            checked.breach("value", _called(name), f"it is not finite: {_shown(value)}")


def _compare(checked: Checked, law: str, what: str, once: State, other: State, tolerance: float) -> None:
    for name in sorted({*once, *other}):
        a, b = once.get(name), other.get(name)
        if a is None or b is None:
            checked.breach(law, _called(name), f"it is there in {'one batch' if b is None else what} only")
        elif (a.shape, a.dtype) != (b.shape, b.dtype):
            said = f"{tuple(a.shape)}, {a.dtype} in one batch, {tuple(b.shape)}, {b.dtype} with {what}"
            checked.breach(law, _called(name), said)
        else:
            size = float(a.double().abs().nan_to_num().max()) if a.numel() else 0.0
            same = torch.isclose(a.double(), b.double(), rtol=0, atol=tolerance * size, equal_nan=True)
            for at in (~same).nonzero().tolist()[:1]:
                said = f"{_shown(a[tuple(at)])} in one batch, {_shown(b[tuple(at)])} with {what}"
                checked.breach(law, _called(name), said)


def _filled(kind: type[Statistic], batches: Sequence[Units], resume: bool = False) -> Filled:
    """Return a statistic filled from batches; to ``resume``, it is restored from its tensors before the third."""
    filled = Filled.begin([kind])
    moments, decider = ClassMoments(_DIM, statistics=filled), _decider() if kind.phase == "validation" else None
    for number, batch in enumerate(each for each in batches if each):
        if resume and number == 2:
            filled = Filled.from_state(filled.state(), "cpu", [kind])
            moments.statistics = filled
        if decider is None:
            moments.add(*_joined(batch))
            continue
        tally = ValidationTally(decider, filled)
        for run in _runs(batch):  # a batch has chunks that follow each other
            tally.add(*_joined(run), chunks=len(run), first=run[0][2])
    return filled


def _merged(kind: type[Statistic], parts: Sequence[Units]) -> Filled:
    """Return statistics of one batch each, merged one after the other."""
    if kind.phase == "validation":
        total, *others = [_filled(kind, [part]) for part in parts]
        for each in others:
            total.merge(each, NOTHING, NOTHING)
        return total
    moments = ClassMoments(_DIM, statistics=Filled.begin([kind]))
    for part in filter(None, parts):
        other = ClassMoments(_DIM, statistics=Filled.begin([kind]))
        other.add(*_joined(part))
        moments.merge(other)
    return moments.statistics


def _units(length: int) -> Units:
    """Return embeddings with labels that have gaps, as token ids have, in units of a number of samples."""
    features = random_features(_CLASSES, _DIM, _SAMPLES)
    ids = torch.randperm(_VOCABULARY, generator=torch.Generator().manual_seed(3))[:_CLASSES]
    h_nd, y_n = features["train_features"].double() + 3, ids[features["train_labels"]]
    return list(zip(h_nd.split(length), y_n.split(length), range(_SAMPLES // length), strict=True))


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


def _runs(units: Units) -> Iterator[Units]:
    """Yield runs of units whose indices follow each other."""
    start = 0
    for stop in range(1, len(units) + 1):
        if stop == len(units) or units[stop][2] != units[stop - 1][2] + 1:
            yield units[start:stop]
            start = stop


def _batches(units: Units, size: int) -> list[Units]:
    return [units[start : start + size] for start in range(0, len(units), size)]


def _joined(units: Units) -> tuple[Tensor, Tensor]:
    return torch.cat([h for h, _, _ in units]), torch.cat([y for _, y, _ in units])


def _called(name: str) -> str:
    return name.replace("/", ".", 1)


def _shown(value: Tensor) -> str:
    return f"{value.tolist()!r:.60}"
