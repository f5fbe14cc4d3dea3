"""Parts of a collection into one store: training parts by merging moments, validation parts by adding counts."""

import hashlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from collapse.accumulate import ClassMoments, Side, Statistic
from collapse.decisions import merge_validation
from collapse.errors import StoreError, UsageError
from collapse.lock import locked
from collapse.manifest import differences, is_store, now, spans
from collapse.plugin_manager import plugins
from collapse.provenance import command_line, versions
from collapse.statistics import ValidationStatistics
from collapse.store import LAYER, Store, build, load_same

Run = tuple[int, int]
NOTHING = Side(torch.zeros(0).long(), torch.zeros(0).double(), torch.zeros(0, 0).double())
"""The sides that a validation statistic's merge is given: it has no use for counts and means."""


def merge(stores: Sequence[str | Path | Store], *, store: str | Path) -> Store:
    """Fold the parts of one collection into a store, in slice order whatever the order of the arguments.

    Parts of the training pass give a store that is trained, not validated; copies of one trained store that hold parts
    of the validation pass give a complete one.

    Args:
        stores: The parts.
        store: Folder of the result, which holds no store, or this one: then nothing is written.

    Raises:
        StoreError: Parts overlap, leave slices out, or differ in identity; which and in what is named.
        CollapseError: The result's folder holds another store, or cannot be written.
    """
    if not stores:
        raise UsageError("nothing to merge: name the stores of the parts")
    parts = [each if isinstance(each, Store) else Store.load(each) for each in stores]
    target = Path(store)
    first = parts[0]
    for other in parts[1:]:
        differ = differences(_comparable(first), _comparable(other))
        if differ:
            raise StoreError(f"{first} and {other} are no parts of one collection: they differ in {'; '.join(differ)}")
    phase = "train" if any(part.state == "part" for part in parts) else "validation"
    ordered = _in_order(parts, phase)
    for part in parts:
        part.check()
    make = _merge_train if phase == "train" else _merge_validation
    if not is_store(target):
        with locked(target):
            if not is_store(target):  # another process may have finished it just now
                return make(ordered, target)
    return load_same(target, make(ordered, None))


def means_hash(store: Store, layer: str = LAYER) -> str:
    """sha256 of the raw bytes of (classes, counts, means): what a validation pass decided by."""
    train = store.tensors("train", layer)
    digest = hashlib.sha256()
    for name in ("classes", "counts", "means"):
        digest.update(train[name].contiguous().numpy().data)
    return digest.hexdigest()


def add_validation(
    store: Store,
    pieces: Sequence[tuple[Run, ValidationStatistics]],
    statistics: dict[str, Statistic],
    *,
    path: Path | None,
    about: dict[str, Any],
    provenance: dict[str, Any],
) -> Store:
    """Put validation pieces, sorted by their runs of slices, beside a store's training files.

    ``about`` holds the manifest's new content; its coverage of validation must already say which slices these are.
    """
    total = merge_validation([piece for _, piece in pieces])
    files: dict[str, dict[str, Tensor]] = {
        f"{LAYER}/validation.safetensors": {name: getattr(total, name) for name in vars(total)}
    }
    files |= {f"{LAYER}/{name}.safetensors": each.tensors() for name, each in statistics.items()}
    kept = {name: entry for name, entry in store.manifest["files"].items() if name not in files}
    if path != store.path:
        files |= {name: _tensors(store, name) for name in kept}
        kept = {}
    return build(path, about, files, provenance=provenance, kept=kept)


def pieces_of(store: Store) -> list[tuple[Run, ValidationStatistics]]:
    """The validation results that a store holds, as a piece a run of slices.

    Counts cannot be taken apart again: the first run carries them, the others only their chunks' totals.
    """
    validation = store.manifest["coverage"]["validation"]
    if validation is None:
        return []
    whole = ValidationStatistics(**store.tensors("validation"))
    runs = [(start, stop) for start, stop in validation["done"]]
    length, chunks = validation["slice_chunks"], validation["chunks"]
    rows = [min(stop * length, chunks) - start * length for start, stop in runs]
    pieces = []
    for index, (run, totals) in enumerate(zip(runs, whole.chunk_totals.split(rows), strict=True)):
        counted = {name: value if index == 0 else value[:0] for name, value in vars(whole).items()}
        counted["argmax_without_mean"] = whole.argmax_without_mean * (index == 0)
        pieces.append((run, ValidationStatistics(**{**counted, "chunk_totals": totals})))
    return pieces


def joined(runs: Sequence[Run]) -> list[list[int]]:
    """Runs of slices, sorted, with neighbours made one.

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


def _comparable(store: Store) -> dict[str, Any]:
    """What parts of one collection must share: the identity, the slices, and the means where there are all."""
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
    """Parts sorted by their slices, which must neither overlap nor leave any out."""
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
            "collect the missing part, then merge all"
        )
    return list(dict.fromkeys(part for _, _, part in covered))


def _merge_train(parts: Sequence[Store], target: Path | None) -> Store:
    kinds = [
        kind
        for name, kind in sorted(plugins().statistics.items())
        if kind.phase == "train" and all(part.manifest["statistics"].get(name) == kind.version for part in parts)
    ]
    total: ClassMoments | None = None
    for part in parts:
        moments = _moments(part, kinds)
        if total is None:
            total = moments
        else:
            total.merge(moments)
    assert total is not None  # merge() saw at least one part
    s = total.statistics_so_far()
    first = parts[0].manifest
    versions = {kind.name: kind.version for kind in kinds}
    files: dict[str, dict[str, Tensor]] = {
        f"{LAYER}/train.safetensors": {
            "classes": s.classes,
            "counts": s.counts,
            "means": s.means,
            "variances": s.variances,
        },
        f"{LAYER}/classifier.safetensors": _classifier(parts, s.classes),
    }
    files |= {f"{LAYER}/{name}.safetensors": dict(tensors) for name, tensors in s.extra.items()}
    train = {**first["coverage"]["train"], "done": [[0, first["coverage"]["train"]["slices"]]]}
    about = {
        "identity": {**first["identity"], "statistics": versions},
        "model": first["model"],
        "corpus": first["corpus"],
        "coverage": {"train": train, "validation": None},
        "statistics": versions,
    }
    provenance = _provenance(parts)
    return build(target, about, files, provenance=provenance)


def _moments(part: Store, kinds: Sequence[type[Statistic]]) -> ClassMoments:
    train = part.tensors("train")
    state = {name: train[name] for name in ("classes", "counts", "means")}
    state["squares"] = train["variances"] * train["counts"]
    for kind in kinds:
        state |= {f"{kind.name}/{key}": value for key, value in part.tensors(kind.name).items()}
    return ClassMoments.from_state(state, "cpu", kinds)


def _classifier(parts: Sequence[Store], classes: Tensor) -> dict[str, Tensor]:
    """The rows of all classes, from the parts that saw them."""
    rows: dict[str, Tensor] = {}
    for part in parts:
        at = torch.searchsorted(classes, part.tensors("train")["classes"])
        for name, value in part.tensors("classifier").items():
            rows.setdefault(name, value.new_zeros(len(classes), *value.shape[1:]))[at] = value
    return rows


def _merge_validation(parts: Sequence[Store], target: Path | None) -> Store:
    pieces = sorted((piece for part in parts for piece in pieces_of(part)), key=lambda piece: piece[0])
    kinds = [
        kind
        for name, kind in sorted(plugins().statistics.items())
        if kind.phase == "validation" and all(part.manifest["statistics"].get(name) == kind.version for part in parts)
    ]
    statistics = {}
    for kind in kinds:
        total = kind.from_tensors(parts[0].tensors(kind.name))
        for part in parts[1:]:
            total.merge(kind.from_tensors(part.tensors(kind.name)), NOTHING, NOTHING)
        statistics[kind.name] = total
    first = parts[0].manifest
    coverage = first["coverage"]
    about = {name: first[name] for name in ("identity", "model", "corpus", "statistics")}
    about["coverage"] = {
        **coverage,
        "validation": {**coverage["validation"], "done": joined([run for run, _ in pieces])},
    }
    provenance = _provenance(parts)
    return add_validation(parts[0], pieces, statistics, path=target, about=about, provenance=provenance)


def _provenance(parts: Sequence[Store]) -> dict[str, Any]:
    made = [part.manifest["provenance"] for part in parts]
    return {"merged": now(), "versions": versions(), "command": command_line(), "parts": made}


def _tensors(store: Store, file: str) -> dict[str, Tensor]:
    layer, name = file.removesuffix(".safetensors").split("/")
    return store.tensors(name, layer)
