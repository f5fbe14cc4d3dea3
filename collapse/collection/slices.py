"""A phase is cut into slices: fixed runs of its units, after which the state can be written.

Slices depend only on the source, never on the batch size, and no batch crosses the border of a slice. A killed run
resumes after the last slice whose state was written, and gives the same bytes.
"""

import logging
import time
from collections.abc import Callable
from typing import TypeVar

import torch
from torch import Tensor

from collapse.core.progress import Report
from collapse.errors import CollapseError, counted
from collapse.inputs.source import Phase
from collapse.numerics.devices import is_out_of_memory
from collapse.numerics.finite import NotFinite

log = logging.getLogger("collapse")

_SHARE = 1 / 20
"""Writing states takes about this share of a pass's time, at most."""

Add = Callable[[Tensor, Tensor, int, int], None]
Saved = TypeVar("Saved")


def _units_of(phase: Phase, index: int) -> tuple[int, int]:
    """Return the first unit of a slice, and the first after it."""
    return index * phase.slice_units, min((index + 1) * phase.slice_units, phase.units)


def run_slices(
    phase: Phase,
    start: int,
    stop: int,
    *,
    batch: int,
    add: Add,
    save: Callable[[int, int], Saved],
    report: Report | None = None,
) -> Saved:
    """Run slices. The state is saved after the first one, the last one, and others in between.

    Saving takes time that grows with classes and dimensions: it is done again after slices that took 20 times as long.

    Args:
        phase: The samples.
        start, stop: The first slice, and the first after the last one.
        batch: Units per batch; it is halved where memory runs out.
        add: Called with embeddings (n, d), labels (n,), the index of the first unit, and the number of units.
        save: Called with the first slice that is not done, and the batch size in use.
        report: Called as report(what, units done, units).

    Returns:
        What the last call of ``save`` returned.

    Raises:
        CollapseError: An embedding is not finite, or memory ran out with a single unit.
    """
    began = saved = time.perf_counter()
    writing = 0.0
    first, end = _units_of(phase, start)[0], _units_of(phase, stop - 1)[1]
    for index in range(start, stop):
        position, high = _units_of(phase, index)
        while position < high:
            units = min(batch, high - position)
            try:
                h_nd, y_n = phase.samples(position, position + units)
            except (MemoryError, RuntimeError) as error:  # only here: add() may stop halfway, with its sums changed
                batch = _halved(batch, phase, error)
                continue
            try:
                add(h_nd, y_n, position, units)
            except NotFinite as error:
                raise CollapseError(phase.not_finite(position, error.row, error.wrong)) from error
            position += units
            if report:
                report(f"collecting {phase.name}", position - first, end - first)
        now = time.perf_counter()
        if index + 1 == stop or writing <= _SHARE * (now - saved):
            last = save(index + 1, batch)
            log.debug("%s: slice %d of %d done", phase.name, index + 1, stop)
            saved = time.perf_counter()
            writing = saved - now
    level = logging.INFO if phase.is_text else logging.DEBUG  # rows in memory are collected in no time
    speed = (end - first) * phase.size / (time.perf_counter() - began)
    units_done = counted(end - first, phase.words[0])
    log.log(level, "%s: %s collected, %s %s/s", phase.name, units_done, f"{speed:,.0f}", phase.words[1])
    return last


def _halved(batch: int, phase: Phase, error: BaseException) -> int:
    if not is_out_of_memory(error):
        raise error
    unit = phase.words[0]
    if batch == 1:
        raise CollapseError(f"memory ran out with a single {unit}: {phase.out_of_memory}") from error
    if torch.cuda.is_available():
        torch.cuda.empty_cache()
    log.warning("memory ran out: going on with batches of %d %ss", batch // 2, unit)
    return batch // 2
