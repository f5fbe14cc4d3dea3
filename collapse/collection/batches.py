"""Run a phase (the training or validation pass) in batches, and save its state after some slices.

The batch size is halved when memory runs out.

Slices are fixed ranges of units; a unit is a chunk of a text or a block of rows. ``gaps`` in stores/shards.py finds the
missing slices, and ``dealt`` in stores/dealing_slices.py divides them among ranks.

Slices depend only on the source, never on the batch size, and no batch crosses the border of a slice. A run that was
killed resumes after the last saved slice, and gives the same bytes as an uninterrupted run.
"""

import logging
import time
from collections.abc import Callable, Sequence
from typing import TypeVar

import torch
from torch import Tensor

from collapse.core import ranks
from collapse.core.progress import Report
from collapse.errors import CollapseError, counted
from collapse.inputs.source import Phase
from collapse.numerics.devices import is_out_of_memory
from collapse.numerics.finite import NotFinite
from collapse.stores.layer_names import TOP

log = logging.getLogger("collapse")

_SHARE = 1 / 100
"""Maximum time for saving states, as a share of a pass's time; the first and the last save can exceed it."""

Add = Callable[[dict[str, Tensor], Tensor, int, int], None]
Saved = TypeVar("Saved")


def _units_of(phase: Phase, index: int) -> tuple[int, int]:
    """Return the first unit of a slice, and the first unit after it."""
    return index * phase.slice_units, min((index + 1) * phase.slice_units, phase.units)


def run_slices(
    phase: Phase,
    start: int,
    stop: int,
    *,
    batch: int,
    add: Add,
    save: Callable[[int, int], Saved],
    layers: Sequence[str] = (TOP,),
    report: Report | None = None,
) -> Saved:
    """Run slices, and save the state after the first slice, the last slice, and some in between.

    The next save begins only after 100 times the duration of the last save, because saving takes longer with more
    classes and dimensions.

    Args:
        phase: The samples.
        start, stop: Index of the first slice, and index after the last slice.
        batch: Units per batch; it is halved when memory runs out.
        add: Called with embeddings (n, d) by layer, labels (n,), the index of the first unit, and the number of units.
        save: Called with the index of the next slice, and the batch size in use.
        layers: The layers to run.
        report: Called as report(what, units done, total units).

    Returns:
        The result of the last call of ``save``.

    Raises:
        CollapseError: An embedding is not finite, or memory ran out with a single unit.
    """
    began = saved = time.perf_counter()
    save_seconds = 0.0  # so that the first slice is saved, which shows how long saving takes
    slices = -(-phase.units // phase.slice_units)
    first, end = _units_of(phase, start)[0], _units_of(phase, stop - 1)[1]
    for index in range(start, stop):
        position, high = _units_of(phase, index)
        while position < high:
            units = min(batch, high - position)
            try:
                h, y_n = phase.samples(position, position + units, layers)
            except (MemoryError, RuntimeError) as error:  # add() is not retried: it may have changed some sums
                batch = _halved(batch, phase, error)
                continue
            try:
                if len(y_n):  # otherwise all samples of the batch are excluded
                    add(h, y_n, position, units)
            except NotFinite as error:
                kept = phase.kept(position, position + units)
                row = error.row if kept is None else int(kept.nonzero()[error.row])
                raise CollapseError(phase.not_finite(position, row, error.wrong)) from error
            position += units
            if report:
                report(f"collecting {phase.name}", position - first, end - first)
        now = time.perf_counter()
        if index + 1 == stop or save_seconds <= _SHARE * (now - saved):
            last = save(index + 1, batch)
            log.debug("%s: slice %d of %d done", phase.name, index + 1, slices)
            saved = time.perf_counter()
            save_seconds = saved - now
    level = logging.INFO if phase.is_text else logging.DEBUG  # collecting rows in memory is too fast to report
    speed = (end - first) * phase.unit_samples / (time.perf_counter() - began)
    done = counted(end - first, phase.unit) + (" of this rank" if ranks.count() > 1 else "")
    log.log(level, "%s: %s collected, %s samples/s", phase.name, done, f"{speed:,.0f}")
    return last


def _halved(batch: int, phase: Phase, error: BaseException) -> int:
    if not is_out_of_memory(error):
        raise error
    if batch == 1:
        raise CollapseError(f"memory ran out with a single {phase.unit}: {phase.out_of_memory}") from error
    if torch.cuda.is_available():
        torch.cuda.empty_cache()
    log.warning("memory ran out: continuing with batches of %d %ss", batch // 2, phase.unit)
    return batch // 2
