"""Resume a killed collection. Its state is used only if it certainly counts the same slices."""

import logging
from collections.abc import Mapping, Sequence
from typing import Any

from torch import Tensor

from collapse.collection.slices import Slices
from collapse.plugin.filling import conflict
from collapse.plugin.statistic import Statistic
from collapse.stores.partial import Partial, Progress

log = logging.getLogger("collapse")


def find_place(partial: Partial, slices: Slices, identity: Mapping[str, Any], means: str | None) -> Progress | None:
    """Return the progress of an earlier run of these slices, or None to start with the first slice.

    A state that cannot be used is removed, with a warning if work is lost.

    Raises:
        StoreError: The state belongs to another collection, or is damaged.
    """
    place = partial.read()
    if place is None:
        return None
    if not place.file or place.phase != slices.phase.name:  # no slice is done, or that phase is already in the store
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
            slices.phase.name,
        )
        partial.clear()
        return None
    log.info("%s: resuming after slice %d of %d", slices.phase.name, place.done, slices.stop)
    return place


def _same_slices(partial: Partial, place: Progress, slices: Slices) -> bool:
    cut = (place.slice_chunks, place.chunks) == (slices.length, slices.phase.units)
    # a process may have been killed while it discarded the state
    return cut and partial.file(place).is_file()


def resumable(kinds: Sequence[type[Statistic]], place: Progress, state: Mapping[str, Tensor]) -> list[type[Statistic]]:
    """Return the statistics that a resumed phase continues; warn of others, which were not filled from its start.

    Args:
        kinds: The statistics of this phase that are requested now.
        place: The progress of the earlier run.
        state: Its tensors.
    """
    held = {key.split("/")[0] for key in state if "/" in key}
    versions = place.identity.get("statistics") or {}
    alive = []
    for kind in kinds:
        differ = conflict(kind, versions.get(kind.name), place.made_by.get(kind.name))
        if kind.name in held and not differ:
            alive.append(kind)
        else:
            log.warning(
                "statistic %s is not collected: the earlier run, which is resumed, %s",
                kind.name,
                differ if kind.name in held else "did not fill it",
            )
    return alive
