"""Standard errors of training measurements from the parts of both collections (``--part 1/2`` and ``--part 2/2``).

The delete-one jackknife: measure the text without each part in turn. A measurement that is not a mean over the text,
such as one of the class means, differs between a part and the whole; of all parts but one it differs little.
Source: Efron & Tibshirani 1993, ch. 11.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from collapse.errors import CollapseError, UsageError, counted
from collapse.measurement.measuring import measured
from collapse.numerics.standard_errors import jackknife_error
from collapse.plugin.plugin_manager import plugins
from collapse.stores.folding import joined, statistics_of
from collapse.stores.manifest import OF_VALIDATION, differences
from collapse.stores.shards import Part, Shard, gaps
from collapse.stores.store import Store


@dataclass(frozen=True)
class Parts:
    """What the parts of two collections say.

    Attributes:
        errors: Standard error of the difference B − A, by measurement of the training text.
        note: How they were computed.
    """

    errors: Mapping[str, float]
    note: str


def measured_parts(stores: Sequence[Store], parts: Sequence[Any], *, paired: bool, **options: Any) -> Parts:
    """Measure all parts of A and of B.

    Args:
        stores: A and B.
        parts: The parts of each.
        paired: Whether both are of one text, so that equal slices of it can be paired.
        **options: As of :func:`collapse.measurement.measuring.measured`.

    Raises:
        UsageError: There are not two sides of two parts or more, or a store is not a part of its side's collection.
        CollapseError: The parts of a side overlap or do not cover the text, or one was altered.
    """
    if not _is_list(parts) or len(parts) != 2 or not all(map(_is_list, parts)):
        raise UsageError(f"parts is {parts!r:.40}: give two lists, the parts of A and the parts of B")
    sides = [_in_order(store, some) for store, some in zip(stores, parts, strict=True)]
    measured = [[_without(side, at, **options) for at in range(len(side))] for side in sides]
    slices = [[(part.start, part.stop) for part in side] for side in sides]
    paired = paired and slices[0] == slices[1]
    errors = {}
    for name in measured[0][0]:
        a, b = ([each for values in side if (each := values[name]) is not None] for side in measured)
        if [len(a), len(b)] != [len(side) for side in sides]:  # without a part it has no number
            continue
        if paired:
            errors[name] = jackknife_error([theirs - ours for ours, theirs in zip(a, b, strict=True)])
        else:
            errors[name] = math.hypot(jackknife_error(a), jackknife_error(b))
    return Parts(errors, _note(min(len(side) for side in sides), paired))


def _is_list(given: object) -> bool:
    return isinstance(given, Sequence) and not isinstance(given, str)


def _note(parts: int, paired: bool) -> str:
    how = "paired" if paired else "not paired"
    return (
        f"standard errors of training measurements: jackknife of {counted(parts, 'part')}, {how}{exceeded(parts - 1)}"
    )


def exceeded(degrees: int) -> str:
    """Say how large a t is by chance, if that is not as of a normal distribution."""
    from scipy.special import stdtrit

    beyond = float(stdtrit(degrees, 0.975))
    return "" if beyond < 2.05 else f"; with {counted(degrees, 'degree')} of freedom, |t| exceeds {beyond:.1f} in 5 %"


def _in_order(store: Store, given: Sequence[Part | str | Path]) -> list[Shard]:
    """Open the parts of a store's training text, in the order of their slices; they must cover it without overlap."""
    part = joined(given)
    shards = part.shards
    if differ := differences(store.identity, part.identity, apart=OF_VALIDATION, sides=("store", "part")):
        raise UsageError(f"{part} is not a part of {store}: they differ in {'; '.join(differ)}")
    if gaps(shards):
        raise CollapseError(f"the parts of {store} must hold all slices; they hold {part.covered()}")
    return shards


def _without(parts: Sequence[Shard], at: int, **options: Any) -> dict[str, float | None]:
    """Measure the training text without one of its parts."""
    known = plugins().measurements()
    row, *_ = measured(statistics_of([*parts[:at], *parts[at + 1 :]]), **options)
    return {
        name: value
        for name, value in row.measurements.items()
        if not {"validation", "n_params"} & {*known[name][0].needs}
    }
