"""Merge the parts of a collection into one store: training parts by merging moments, validation parts by counts."""

import logging
import shlex
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from collapse.collection.pieces import NOTHING, add_validation, filled_of, joined, of_validation, pieces_of, unlike
from collapse.collection.request import part_of
from collapse.collection.trained import build_trained, moments_of
from collapse.errors import StoreError, UsageError
from collapse.numerics.accumulate import ClassMoments
from collapse.plugin.guarding import outside_inference_mode
from collapse.plugin.plugin_manager import plugins
from collapse.plugin.statistic import Statistic
from collapse.stores.manifest import LAYER, differences, is_store, now, spans
from collapse.stores.provenance import shown_word, versions
from collapse.stores.store import Store, load_same
from collapse.stores.store_folder import settled, writing

log = logging.getLogger("collapse")


@outside_inference_mode
def merge(stores: Iterable[str | Path | Store], *, store: str | Path) -> Store:
    """Merge the parts of one collection into a store, in slice order whatever the order of the arguments.

    Parts of the training pass give a store that is trained but not validated. Copies of one trained store, each with a
    part of the validation pass, give a complete store.

    Args:
        stores: The parts.
        store: Folder of the result. If it already holds this result, nothing is written.

    Raises:
        UsageError: No stores or something else than stores and their folders is given.
        StoreError: Parts overlap, do not cover all slices, or differ in identity; the message names them.
        CollapseError: The result's folder holds another store, or cannot be written.
    """
    stores = [stores] if isinstance(stores, str | Path | Store) else stores
    if not isinstance(stores, Iterable):
        raise UsageError(f"merge() takes a list of stores or of their folders, not a {type(stores).__name__}")
    stores = list(stores)
    if not stores:
        raise UsageError("nothing to merge: name the stores of the parts")
    for each in stores:
        if not isinstance(each, str | Path | Store):
            raise UsageError(f"merge() takes stores or their folders; among them there is a {type(each).__name__}")
    if not isinstance(store, str | Path):
        raise UsageError(f"merge() writes into a folder: store must be its path, got a {type(store).__name__}")
    parts = [each if isinstance(each, Store) else Store.load(each) for each in stores]
    target = Path(store)
    phase = "train" if any(part.state == "part" for part in parts) else "validation"
    for each in parts if len(parts) > 1 else ():
        if each.state == "complete" or (phase == "train" and each.state != "part"):
            raise StoreError(f"{each} is a {each.state} store, not a part of a collection: merge the parts without it")
    first = parts[0]
    for other in parts[1:]:
        differ = differences(comparable(first), comparable(other))
        if differ:
            raise StoreError(f"{first} and {other} are not parts of one collection: they differ in {'; '.join(differ)}")
    ordered = _in_order(parts, phase)
    for part in parts:
        part.check()
    make = _merge_train if phase == "train" else _merge_validation
    if not is_store(target) or not settled(target):
        with writing(target):
            if not is_store(target):  # another process may have just written it
                return make(ordered, target)
    return load_same(target, make(ordered, None))


def comparable(store: Store) -> dict[str, Any]:
    """Return what the parts of one collection have in common: identity, slices and, once trained, the class means."""
    coverage = store.manifest["coverage"]
    compared = {key: value for key, value in store.identity.items() if key != "statistics"}
    compared["slices"] = {name: coverage["train"].get(name) for name in ("chunks", "slice_chunks", "slices")}
    if store.state != "part":
        compared["means"] = store.manifest["files"][f"{LAYER}/train.safetensors"]["sha256"]
        validation = coverage["validation"] or {}
        compared["validation slices"] = {
            name: validation.get(name) for name in ("chunks", "slice_chunks", "slices", "means")
        }
    return compared


def _in_order(parts: Sequence[Store], phase: str) -> list[Store]:
    """Return the parts sorted by their slices, which must cover all slices without overlap."""
    covered: list[tuple[int, int, Store]] = []
    for part in parts:
        coverage = part.manifest["coverage"][phase]
        if coverage is None:
            raise StoreError(f"{part} holds no validation results: collapse collect MODEL --store {part} --part k/n")
        covered += [(start, stop, part) for start, stop in coverage["done"]]
    covered.sort(key=lambda each: each[:2])
    slices = parts[0].manifest["coverage"][phase]["slices"]
    gaps, reached, before = [], 0, None
    for start, stop, part in covered:
        if start < reached:
            shared = spans([[start, min(stop, reached)]])
            raise StoreError(f"{before} and {part} overlap: both hold {phase} slices {shared} of {slices}")
        if start > reached:
            gaps.append([reached, start])
        reached, before = stop, part
    if reached < slices:
        gaps.append([reached, slices])
    if gaps:
        raise StoreError(
            f"{phase} slices {spans(gaps)} of {slices} are in none of the stores given: "
            f"collect {_missing_parts([(start, stop) for start, stop, _ in covered], slices)}, then merge all"
        )
    return list(dict.fromkeys(part for _, _, part in covered))


def _missing_parts(covered: Sequence[tuple[int, int]], slices: int) -> str:
    """Return the options ``--part`` that collect the missing slices, if each run of slices is a part of equal parts."""
    for n in range(2, slices + 1):
        parts = [part_of(slices, (k, n)) for k in range(1, n + 1)]
        if set(covered) <= set(parts):
            return " and ".join(f"--part {k}/{n}" for k, part in enumerate(parts, 1) if part not in covered)
    return "the missing part"


def mergeable(parts: Sequence[Store], phase: str) -> list[type[Statistic]]:
    """Return the statistics that can be merged; warn about the others, which are left out."""
    installed = plugins().statistics
    kinds = []
    others = {kind.name for kind in installed.values() if kind.phase != phase}
    if phase == "validation":
        others |= {name for part in parts for name in part.manifest["statistics"]} - of_validation(*parts)
    for name in sorted({name for part in parts for name in part.manifest["statistics"]} - others):
        if name not in installed:
            why = "no plugin installed here can merge it"
        else:
            why = next((f"{part} {said}" for part in parts if (said := unlike(part, installed[name]))), "")
        if why:
            log.warning("statistic %s is left out: %s", name, why)
        else:
            kinds.append(installed[name])
    return kinds


def _merge_train(parts: Sequence[Store], target: Path | None) -> Store:
    kinds = mergeable(parts, "train")
    total: ClassMoments | None = None
    for part in parts:
        moments = moments_of(part, kinds)
        if total is None:
            total = moments
        else:
            total.merge(moments)
    assert total is not None  # merge() saw at least one part
    s = total.statistics_so_far()
    first = parts[0].manifest
    train = {**first["coverage"]["train"], "done": [[0, first["coverage"]["train"]["slices"]]]}
    about = {
        "identity": {**first["identity"], "statistics": dict(s.versions)},
        "model": first["model"],
        "corpus": first["corpus"],
        "coverage": {"train": train, "validation": None},
    }
    rows = classifier_rows(parts, s.classes)
    return build_trained(target, s, rows, about=about, provenance=_provenance(parts))


def classifier_rows(parts: Sequence[Store], classes: Tensor) -> dict[str, Tensor]:
    """Return the classifier's rows of all classes, each from a part that saw the class."""
    rows: dict[str, Tensor] = {}
    for part in parts:
        at = torch.searchsorted(classes, part.tensors("train")["classes"])
        for name, value in part.tensors("classifier").items():
            rows.setdefault(name, value.new_zeros(len(classes), *value.shape[1:]))[at] = value
    return rows


def _merge_validation(parts: Sequence[Store], target: Path | None) -> Store:
    pieces = sorted((piece for part in parts for piece in pieces_of(part)), key=lambda piece: piece[0])
    kinds = mergeable(parts, "validation")
    statistics = filled_of(parts[0], kinds)
    for part in parts[1:]:
        statistics.merge(filled_of(part, kinds), NOTHING, NOTHING)
    first = parts[0].manifest
    coverage = first["coverage"]
    about = {name: first[name] for name in ("identity", "model", "corpus")}
    about["coverage"] = {
        **coverage,
        "validation": {**coverage["validation"], "done": joined([run for run, _ in pieces])},
    }
    return add_validation(parts[0], pieces, statistics, path=target, about=about, provenance=_provenance(parts))


def _provenance(parts: Sequence[Store]) -> dict[str, Any]:
    made = [part.manifest["provenance"] for part in parts]
    command = shlex.join(["collapse", "merge", *(shown_word(str(part.path)) for part in parts if part.path)])
    return {"merged": now(), "versions": versions(), "command": command, "parts": made}
