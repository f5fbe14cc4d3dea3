"""Compute the progress of a collection by phase and part, for ``collapse status`` and for ``--launcher local``."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from collapse.stores.dealing_slices import slices_of_part
from collapse.stores.lock import is_locked, running_parts
from collapse.stores.manifest import is_store, read_manifest
from collapse.stores.shards import Shard, gaps, shards_in


@dataclass(frozen=True)
class Covered:
    """The progress of a phase, or of a part of it.

    Attributes:
        phase: "train" or "validation".
        part: (k, n) for part k of n; None for the whole phase.
        done: Number of saved slices.
        slices: Number of all slices of the phase or part; None if it is not known yet.
        running: Whether a process collects the phase or part now.
        rate: Chunks per second of the last run; None if nothing is saved, or for a features file.
        seconds_left: Estimated time for the missing slices; None if no process collects them or no slice is saved.
    """

    phase: str
    part: tuple[int, int] | None
    done: int
    slices: int | None
    running: bool = False
    rate: float | None = None
    seconds_left: float | None = None


def covered(folder: Path, parts: int | None = None) -> list[Covered]:
    """Return the progress of the collection in a folder, by phase and part.

    Nothing in the folder is changed. ``parts`` is the number of parts, or None for whole phases. If a part is
    running, ``parts`` is ignored, because the running part determines the number.
    """
    running = running_parts(folder)
    n = running[0][1] if running else parts
    shards_of = {phase: shards_in(folder, phase) for phase in ("train", "validation")}
    # read after the shards, because folding writes the manifest before it removes the shards
    coverage: Mapping[str, Any] = read_manifest(folder)["coverage"] if is_store(folder) else {}
    found, current = list[Covered](), True
    for phase, shards in shards_of.items():
        whole = coverage.get(phase)
        if whole and not shards:  # a finished store has shards while further layers are collected
            found.append(Covered(phase, None, whole["slices"], whole["slices"]))
            continue
        for part in [(k + 1, n) for k in range(n)] if n else [None]:
            is_running = current and (part in running if running else part is None and is_locked(folder))
            if shards or is_running:
                found.append(_covered(phase, part, shards, is_running))
        current = False  # no process collects the next phase before this one is folded
    return found


def _covered(phase: str, part: tuple[int, int] | None, shards: Sequence[Shard], running: bool) -> Covered:
    if not shards:
        return Covered(phase, part, 0, None, running)
    start, stop = slices_of_part(shards[0].slices_in_phase, part)
    missing = sum(high - low for low, high in gaps(shards, (start, stop)))
    rate = left = None
    if within := [each for each in shards if start <= each.start < stop]:
        last = max(within, key=lambda each: str(each.header["provenance"]["finished"]))
        slices = last.stop - last.start - last.header["provenance"].get("slices_of_earlier_runs", 0)
        if per_slice := last.header["coverage"].get("slice_chunks"):  # a features file has one slice and no chunks
            rate = slices * per_slice / last.header["seconds"]
        left = missing * last.header["seconds"] / slices if running else None
    return Covered(phase, part, stop - start - missing, stop - start, running, rate, left)
