"""Compute standard errors of B − A for measurements of the training text, from the parts of two stores A and B.

The parts are those of ``--part 1/K`` to ``K/K``. The delete-one jackknife measures the text without each part in
turn. It does not measure single parts, because many measurements, such as those of class means, differ much between a
part and the whole text. Source: Efron & Tibshirani 1993, ch. 11.
"""

import math
from collections.abc import Sequence
from typing import Any

from collapse.errors import CollapseError, UsageError, counted
from collapse.measurement.measuring import row_and_results
from collapse.numerics.standard_errors import jackknife_error
from collapse.plugin.plugin_manager import plugins
from collapse.stores.folding_shards import statistics_of_shards
from collapse.stores.identity_differences import differences
from collapse.stores.manifest import OF_VALIDATION
from collapse.stores.merging import Parts, joined
from collapse.stores.shards import Shard, gaps
from collapse.stores.store import Store

Error = tuple[float, int, str]
"""A standard error, its degrees of freedom, and how it was computed."""


def errors_of_parts(
    stores: Sequence[Store], parts: Sequence[Parts], *, one_text: bool, **options: Any
) -> dict[str, Error]:
    """Return the standard errors of differences B − A of training measurements, from the parts of A and those of B.

    The parts are paired if ``one_text`` is true and A and B have the same slices. The options are those of
    :func:`collapse.measurement.measuring.row_and_results`.

    Raises:
        UsageError: A store has fewer than two parts, or a part is of another collection.
        CollapseError: The parts of a store overlap or do not cover the text, or one was altered.
    """
    sides = [_shards_of_parts(store, some) for store, some in zip(stores, parts, strict=True)]
    values = [[_without(side, at, **options) for at in range(len(side))] for side in sides]
    slices = [[[(shard.start, shard.stop) for shard in part] for part in side] for side in sides]
    paired, fewest = one_text and slices[0] == slices[1], min(map(len, sides))
    how = (
        f"± error of the training text: jackknife of {counted(fewest, 'part')}, {'paired' if paired else 'not paired'}"
    )
    errors = {}
    for name in values[0][0]:
        a, b = ([each[name] for each in side] for side in values)
        if None in (*a, *b):  # not available without one of the parts
            continue
        if paired:
            error = jackknife_error([theirs - ours for ours, theirs in zip(a, b, strict=True)])
        else:
            error = math.hypot(jackknife_error(a), jackknife_error(b))
        errors[name] = error, fewest - 1, how
    return errors


def _shards_of_parts(store: Store, parts: Parts) -> list[list[Shard]]:
    """Return the shards of each part of a store; all parts together must cover the store's training text."""
    part = joined(parts)
    differ = differences(store.identity, part.identity, ignoring=OF_VALIDATION, sides=("store", "part"))
    if differ:
        raise UsageError(
            f"{part} is not a part of {store}: they differ in {'; '.join(differ)}. Give the parts of this store"
        )
    if gaps(part.shards):
        raise CollapseError(f"the parts of {store} hold only {part.covered()}: give all parts")
    folders = dict.fromkeys(shard.folder for shard in part.shards)
    return [[shard for shard in part.shards if shard.folder == folder] for folder in folders]


def _without(parts: Sequence[Sequence[Shard]], at: int, **options: Any) -> dict[str, Any]:
    """Measure the training text without the part at the index ``at``; return its measurements by name."""
    known = plugins().measurements()
    shards = [shard for part in [*parts[:at], *parts[at + 1 :]] for shard in part]
    row, *_ = row_and_results(statistics_of_shards(shards), **options)
    of_text = [name for name in row.measurements if not {"validation", "n_params"} & {*known[name][0].needs}]
    return {name: row.measurements[name] for name in of_text}
