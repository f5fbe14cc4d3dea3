"""A phase is cut into slices: fixed runs of its units, after which the state can be written.

Slices depend only on the source, never on the batch size, and no batch crosses the border of a slice. A killed run
resumes after the last slice whose state was written, and gives the same bytes.
"""

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from collapse.core.progress import Report
from collapse.errors import CollapseError, counted
from collapse.inputs.source import Phase
from collapse.numerics.devices import is_out_of_memory
from collapse.numerics.finite import NotFinite

log = logging.getLogger("collapse")

_SHARE = 1 / 20
"""Of the time of a pass that writing states takes, about at most."""


@dataclass(frozen=True)
class Slices:
    """A run of slices of a phase.

    Attributes:
        phase: The samples.
        start, stop: The first slice of the run, and the first after it.
    """

    phase: Phase
    start: int
    stop: int

    def units(self, index: int) -> tuple[int, int]:
        """Return the first unit of a slice, and the first after it."""
        length = self.phase.slice_units
        return index * length, min((index + 1) * length, self.phase.units)

    @property
    def samples(self) -> int:
        """Number of samples, at most."""
        units = self.units(self.stop - 1)[1] - self.first_unit
        return min(units * self.phase.unit_samples, self.phase.n_samples)

    @property
    def first_unit(self) -> int:
        """The first unit of the first slice."""
        return self.units(self.start)[0]


def run_slices(
    slices: Slices,
    *,
    batch: int,
    add: Callable[[Tensor, Tensor, int, int], None],
    save: Callable[[int, int], None],
    report: Report | None = None,
) -> None:
    """Run slices. The state is saved after the first one, the last one, and others in between.

    Saving takes time that grows with classes and dimensions: it is done again after slices that took 20 times as long.

    Args:
        slices: The slices.
        batch: Units per batch; it is halved where memory runs out.
        add: Called with embeddings (n, d), labels (n,), the index of the first unit, and the number of units.
        save: Called with the first slice that is not done, and the batch size in use.
        report: Called as report(what, units done, units).

    Raises:
        CollapseError: An embedding is not finite, or memory ran out with a single unit.
    """
    phase = slices.phase
    unit, began = phase.words[0], time.perf_counter()
    first, end = slices.first_unit, slices.units(slices.stop - 1)[1]
    clock, saved, writing = began, slices.start, 0.0
    for index in range(slices.start, slices.stop):
        low, high = slices.units(index)
        position = low
        while position < high:
            stop = min(position + batch, high)
            try:
                h_nd, y_n = phase.samples(position, stop)
            except (torch.OutOfMemoryError, MemoryError, RuntimeError) as error:
                batch = _halved(batch, phase, error)
                continue
            try:
                add(h_nd, y_n, position, stop - position)
            except NotFinite as error:
                raise CollapseError(phase.not_finite(position, error.row, error.wrong)) from error
            position = stop
            if report:
                report(f"collecting {phase.name}", position - first, end - first)
        now = time.perf_counter()
        if index + 1 < slices.stop and writing > _SHARE * (now - clock):
            continue
        span = f"{unit}s {slices.units(saved)[0]}–{high - 1}, {_speed(phase, high - slices.units(saved)[0], clock)}"
        save(index + 1, batch)
        log.debug("%s: slice %d of %d done, %s", phase.name, index + 1, slices.stop, span)
        clock, saved = time.perf_counter(), index + 1
        writing = clock - now
    level = logging.INFO if unit == "chunk" else logging.DEBUG  # rows in memory are collected in no time
    log.log(level, "%s: %s collected, %s", phase.name, counted(end - first, unit), _speed(phase, end - first, began))


def _speed(phase: Phase, units: int, since: float) -> str:
    return f"{units * phase.size / (time.perf_counter() - since):,.0f} {phase.words[1]}/s"


def _halved(batch: int, phase: Phase, error: BaseException) -> int:
    if not is_out_of_memory(error):
        raise error
    unit, _ = phase.words
    if batch == 1:
        raise CollapseError(f"memory ran out with a single {unit}: {phase.out_of_memory}") from error
    if torch.cuda.is_available():
        torch.cuda.empty_cache()
    log.warning("memory ran out: going on with batches of %d %ss", batch // 2, unit)
    return batch // 2
