"""Validation results as pieces, each of a run of slices: read from a store, joined, and written next to the means."""

import hashlib
import logging
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from collapse.numerics.statistics import ValidationStatistics
from collapse.numerics.validation_totals import merge_validation
from collapse.plugin.batch import Side
from collapse.plugin.filling import Filled, conflict, makers
from collapse.plugin.statistic import Statistic
from collapse.stores.building import build
from collapse.stores.manifest import LAYER
from collapse.stores.store import Store

log = logging.getLogger("collapse")

Run = tuple[int, int]
NOTHING = Side(classes=torch.zeros(0).long(), counts=torch.zeros(0).double(), means=torch.zeros(0, 0).double())
"""The sides that are passed to the merge of a validation statistic, which does not need counts and means."""


def means_hash(store: Store, layer: str = LAYER) -> str:
    """Return the sha256 of the raw bytes of (classes, counts, means), which determine a validation pass's decisions."""
    train = store.tensors("train", layer)
    digest = hashlib.sha256()
    for name in ("classes", "counts", "means"):
        digest.update(train[name].contiguous().numpy().data)
    return digest.hexdigest()


def add_validation(
    store: Store,
    pieces: Sequence[tuple[Run, ValidationStatistics]],
    statistics: Filled,
    *,
    path: Path | None,
    about: dict[str, Any],
    provenance: dict[str, Any],
) -> Store:
    """Add validation pieces, sorted by their runs of slices, to a store's training files.

    ``about`` is the manifest's new content, and its validation coverage must already list these slices. Statistics of
    an earlier validation are dropped unless ``statistics`` holds them too.
    """
    total = merge_validation([piece for _, piece in pieces])
    files: dict[str, dict[str, Tensor]] = {
        f"{LAYER}/validation.safetensors": {name: getattr(total, name) for name in vars(total)}
    }
    filled = statistics.tensors()
    files |= {f"{LAYER}/{name}.safetensors": tensors for name, tensors in filled.items()}
    before = of_validation(store)
    for name in sorted(before & set(store.manifest["statistics"]) - set(filled)):
        log.warning("statistic %s is left out: it was not filled on all of the validation text", name)
    left_out = before | set(filled)
    kept = {
        name: entry
        for name, entry in store.manifest["files"].items()
        if name not in files and name.split("/")[1].removesuffix(".safetensors") not in left_out
    }

    def joint(field: str, added: Mapping[str, Any]) -> dict[str, Any]:
        held = store.manifest.get(field, {})
        return {name: value for name, value in held.items() if name not in left_out} | dict(added)

    versions = joint("statistics", statistics.versions)
    identity, coverage = about["identity"], about["coverage"]
    if "statistics" in identity:
        identity = {**identity, "statistics": versions}
    if "means" in coverage["validation"]:  # arrays have none: they are trained and validated in one run
        coverage = {**coverage, "validation": {**coverage["validation"], "statistics": sorted(filled)}}
    about = {
        **about,
        "identity": identity,
        "coverage": coverage,
        "statistics": versions,
        "statistics_by": joint("statistics_by", makers(type(each) for each in statistics)),
    }
    if path is None or path != store.path:
        files |= {name: _tensors(store, name) for name in kept}
        kept = {}
    return build(path, about, files, provenance=provenance, kept=kept)


def pieces_of(store: Store) -> list[tuple[Run, ValidationStatistics]]:
    """Return the validation results of a store, one piece per run of slices.

    Counts cannot be separated again: the first piece holds all of them, the others hold none.
    """
    validation = store.manifest["coverage"]["validation"]
    if validation is None:
        return []
    whole = ValidationStatistics(**store.tensors("validation"))
    runs = [(start, stop) for start, stop in validation["done"]]
    none = {name: value[:0] for name, value in vars(whole).items()} | {"argmax_without_mean": torch.tensor([0])}
    return [(run, whole if index == 0 else ValidationStatistics(**none)) for index, run in enumerate(runs)]


def filled_of(store: Store, kinds: Sequence[type[Statistic]], device: str | torch.device = "cpu") -> Filled:
    """Return a store's statistics as state that their plugins can continue."""
    state = {f"{kind.name}/{key}": value for kind in kinds for key, value in store.tensors(kind.name).items()}
    return Filled.from_state(state, device, kinds)


def unlike(store: Store, kind: type[Statistic]) -> str:
    """Say why the installed plugin cannot merge a statistic of a store; "" if it can."""
    held = store.manifest["statistics"].get(kind.name)
    if held is None:
        return "does not hold it"
    return conflict(kind, held, store.manifest.get("statistics_by", {}).get(kind.name))


def joined(runs: Sequence[Run]) -> list[list[int]]:
    """Sort runs of slices and join adjacent ones.

    >>> joined([(4, 6), (0, 2), (2, 4), (8, 9)])
    [[0, 6], [8, 9]]
    """
    done: list[list[int]] = []
    for start, stop in sorted(runs):
        if done and done[-1][1] == start:
            done[-1][1] = stop
        else:
            done.append([start, stop])
    return done


def of_validation(*stores: Store) -> set[str]:
    """Return the names of the validation statistics that stores hold."""
    return {name for each in stores for name in (each.manifest["coverage"]["validation"] or {}).get("statistics", [])}


def _tensors(store: Store, file: str) -> dict[str, Tensor]:
    layer, name = file.removesuffix(".safetensors").split("/")
    return store.tensors(name, layer)
