"""Where a killed collection goes on: its state is used only where it surely counts the same slices."""

import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from collapse.partial import Partial, Progress
from collapse.slices import Slices

log = logging.getLogger("collapse")


def find_place(partial: Partial, slices: Slices, identity: Mapping[str, Any], means: str | None) -> Progress | None:
    """How far an earlier run of these slices came, or None to begin with the first.

    A state that is of no more use is removed, with a line that says so where it held any work.

    Raises:
        StoreError: The state is of another collection, or damaged.
    """
    place = partial.read()
    if place is None:
        return None
    if not place.file or place.phase != slices.phase:  # no slice was done; or the store of that phase is finished
        partial.clear()
        return None
    if place.means != means:
        log.warning("validation results of other class means are discarded")
        partial.clear()
        return None
    partial.check(place, identity, slices.start, slices.stop)
    partial.tidy(place)
    if not _same_slices(partial, place, slices):
        log.warning(
            "%s: an unfinished %s pass is discarded, since its slices are not surely those of now",
            partial.folder.parent,
            slices.phase,
        )
        partial.clear()
        return None
    log.info("%s: going on after slice %d of %d", slices.phase, place.done, slices.stop)
    return place


def _same_slices(partial: Partial, place: Progress, slices: Slices) -> bool:
    if not (partial.folder / Path(place.file).name).is_file():  # a kill while it was being discarded
        return False
    if place.slice_chunks is not None:
        return (place.slice_chunks, place.chunks) == (slices.length, len(slices.chunks))
    # an earlier version cut slices by the batch size, and did not say how: the labels that it counted do
    state = partial.tensors(place)
    return place.done <= slices.stop and slices.have_labels(place.done, state["classes"], state["counts"])
