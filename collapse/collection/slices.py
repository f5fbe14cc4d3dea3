"""A phase is cut into slices: fixed runs of its units, after which the state can be written.

Slices depend only on the source, never on the batch size, and no batch crosses the border of a slice. A killed run
resumes after the last slice whose state was written, and gives the same bytes.
"""

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from collapse.collection.request import part_of
from collapse.errors import CollapseError, counted
from collapse.inputs.source import Phase
from collapse.numerics.devices import is_out_of_memory
from collapse.numerics.finite import NotFinite
from collapse.precision import is_exact
from collapse.progress import Report
from collapse.stores.partial import Partial, Progress

log = logging.getLogger("collapse")

_SHARE = 1 / 20
"""Of the time of a pass that writing states takes, about at most."""


@dataclass(frozen=True)
class Slices:
    """The slices of a phase, and the range of them that this part runs.

    Attributes:
        phase: The samples.
        length: Units per slice.
        start, stop: The first slice of this part, and the first after it.
        first_batch: Initial batch size in units, at most a slice.
    """

    phase: Phase
    length: int
    start: int
    stop: int
    first_batch: int

    @classmethod
    def cut(cls, phase: Phase, *, batch_size: int | str, part: tuple[int, int] | None) -> "Slices":
        """Cut a phase into slices; batch sizes and parts as of :func:`collapse.collect`."""
        length = phase.slice_units
        start, stop = part_of(-(-phase.units // length), part)
        return cls(phase, length, start, stop, min(phase.batch_units(batch_size), length))

    def units(self, index: int) -> tuple[int, int]:
        """Return the first unit of a slice, and the first after it."""
        return index * self.length, min((index + 1) * self.length, self.phase.units)

    @property
    def samples(self) -> int:
        """Number of samples of this part, at most."""
        units = self.units(self.stop - 1)[1] - self.first_unit
        return min(units * self.phase.unit_samples, self.phase.n_samples)

    @property
    def first_unit(self) -> int:
        """The first unit of this part."""
        return self.start * self.length


def run_slices(
    slices: Slices,
    *,
    place: Progress | None,
    add: Callable[[Tensor, Tensor, int, int], None],
    state: Callable[[], dict[str, Tensor]],
    partial: Partial | None,
    about: Callable[[], dict[str, Any]],
    report: Report | None = None,
) -> int:
    """Run the remaining slices. The state is written after the first one, the last one, and others in between.

    Writing it takes time that grows with classes and dimensions: it is written again after slices that took 20 times as
    long as writing it did.

    Args:
        slices: The slices.
        place: The progress of an earlier run, or None.
        add: Called with embeddings (n, d), labels (n,), the index of the first unit, and the number of units.
        state: Returns the tensors to write.
        partial: Where to write them; None to write nothing.
        about: Returns further fields of :class:`~collapse.stores.partial.Progress` to write.
        report: Called as report(what, units done, units).

    Returns:
        The batch size in use at the end.

    Raises:
        CollapseError: An embedding is not finite, or memory ran out with a single unit.
    """
    phase, batch = slices.phase, _batch_size(slices, place)
    unit, began, begun = phase.words[0], time.perf_counter(), place.done if place else slices.start
    written = {"phase": phase.name, "start": slices.start, "stop": slices.stop, "chunks": phase.units}
    written |= {"slice_chunks": slices.length, "first_batch": slices.first_batch}
    if partial is not None and place is None:
        partial.begin(**written, batch_size=batch, **about())
    end = slices.units(slices.stop - 1)[1]
    clock, kept, writing = began, begun, 0.0
    for index in range(begun, slices.stop):
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
            if not is_exact():
                raise CollapseError(
                    f"torch's precision of float32 products was changed while {phase.name} {unit} {position} was "
                    "computed, by another thread of this program or by the model's code: nothing was stored of it. "
                    "Change it before or afterwards; the same call continues"
                )
            position = stop
            if report:
                report(f"collecting {phase.name}", position - slices.first_unit, end - slices.first_unit)
        now = time.perf_counter()
        if partial is None or (index + 1 < slices.stop and writing > _SHARE * (now - clock)):
            continue
        first = slices.units(kept)[0]
        span = f"{unit}s {first}–{high - 1}, {_speed(phase, high - first, clock)}"
        tensors = state()  # before about(), which records the plugin statistics that fail here
        partial.write(tensors, **written, done=index + 1, batch_size=batch, **about())
        log.debug("%s: slice %d of %d done, %s", phase.name, index + 1, slices.stop, span)
        clock, kept = time.perf_counter(), index + 1
        writing = clock - now
    if partial is not None and begun < slices.stop:
        units = end - slices.units(begun)[0]
        log.info("%s: %s collected, %s", phase.name, counted(units, unit), _speed(phase, units, began))
    return batch


def _speed(phase: Phase, units: int, since: float) -> str:
    return f"{units * phase.size / (time.perf_counter() - since):,.0f} {phase.words[1]}/s"


def _batch_size(slices: Slices, place: Progress | None) -> int:
    """Return the batch size of the earlier run if the same initial size is requested now, else the requested one."""
    if place is None or place.first_batch != slices.first_batch:
        return slices.first_batch
    return min(place.batch_size, slices.length)


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
