"""Fold the shards of a phase into a store: class moments, then decisions and loss. (merging.py checks parts first.)"""

import logging
from collections.abc import Iterable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from collapse.core.paths import expanded
from collapse.errors import StoreError, UsageError
from collapse.numerics.class_moments import ClassMoments
from collapse.numerics.statistics import EmbeddingStatistics, ValidationStatistics
from collapse.numerics.validation_totals import merge_validation
from collapse.plugin.filling import Filled, conflict
from collapse.plugin.plugin_manager import plugins
from collapse.plugin.statistic import Statistic
from collapse.stores.files import sha256_of
from collapse.stores.manifest import MANIFEST, VERSION, differences, file_of, is_part, now, render, sealed
from collapse.stores.missing_slices import spans
from collapse.stores.provenance import versions
from collapse.stores.shards import Part, Shard, fields_to_compare, remove_shards
from collapse.stores.store import Store, Tensors
from collapse.stores.store_folder import new_files
from collapse.stores.tensor_files import check_tensors, manifest_entry, tensor_bytes

log = logging.getLogger("collapse")

Kinds = Sequence[type[Statistic]]

Parts = str | Path | Part | Iterable[Part | str | Path]
"""Parts of a collection or their folders; or, as one text, the folder that holds them."""


def fold_training(folder: Path | None, shards: Sequence[Shard], kinds: Kinds | None = None) -> Store:
    """Make a store, not yet validated, from the shards of a training pass; they cover the text.

    Args:
        folder: Folder of the store, locked by the caller; None for a store in memory.
        shards: The shards in the order of their slices.
        kinds: The statistics to fold; None for all that are registered.
    """
    s, head = _folded(shards, _common(shards, kinds))
    moments = {name: getattr(s, name) for name in ("classes", "counts", "means", "variances")}
    layer: dict[str, Mapping[str, Tensor]] = {"train": moments, "classifier": head, **s.extra}
    first = shards[0].header
    about = {
        **{name: first[name] for name in ("identity", "model", "corpus")},
        "coverage": {"train": first["coverage"], "validation": None},
        "statistics": dict(s.versions),
        "statistics_by": dict(s.makers),
    }
    files = {file_of(name): tensors for name, tensors in layer.items()}
    return build(folder, about, files, provenance=_provenance(shards))


def fold_validation(folder: Path | None, store: Store, shards: Sequence[Shard], kinds: Kinds | None = None) -> Store:
    """Add the validation to a trained store, from shards that cover the validation text.

    Args:
        folder: Folder of the result, locked by the caller; None for a store in memory.
        store: The trained store.
        shards: The shards in the order of their slices.
        kinds: The statistics to fold; None for all that are registered.
    """
    kinds = _common(shards, kinds)
    states = [shard.tensors() for shard in shards]
    filled, *others = [Filled.from_state(state, "cpu", kinds) for state in states]
    for each in others:
        filled.merge(each)
    total = merge_validation([_counts(state) for state in states])
    layer = {"validation": dict(vars(total)), **filled.tensors()}
    files: dict[str, Mapping[str, Tensor]] = {file_of(name): each for name, each in layer.items()}
    kept = dict(store.manifest["files"])
    if folder is None or folder != store.path:
        files |= {file_of(name): store.tensors(name) for name in store.names}
        kept = {}
    first, held = shards[0].header, store.manifest
    about = {
        "identity": first["identity"],
        "model": held["model"],
        "corpus": {**held["corpus"], "validation": first["corpus"]["validation"]},
        "coverage": {**held["coverage"], "validation": first["coverage"]},
        "statistics": {**held["statistics"], **filled.versions},
        "statistics_by": {**held.get("statistics_by", {}), **filled.makers},
    }
    provenance = {**held["provenance"], "validation": _provenance(shards)}
    return build(folder, about, files, provenance=provenance, kept=kept)


def build(
    path: Path | None,
    about: Mapping[str, Any],
    files: Mapping[str, Tensors],
    *,
    provenance: Mapping[str, Any],
    kept: Mapping[str, Any] | None = None,
) -> Store:
    """Make a store from tensors: write the tensor files first and ``collapse.json`` last, then remove the shards.

    Args:
        path: Folder of the store, locked by the caller; None for a store in memory.
        about: Fields of the manifest: identity, model, corpus, coverage, statistics and statistics_by.
        files: Tensors by file name, such as ``top/train.safetensors``.
        provenance: Device, batch size, times, command.
        kept: Manifest entries of existing files that are not written again.
    """
    entries = dict(kept or {})
    with nullcontext() if path is None else new_files(path) as write:
        for name, tensors in files.items():
            check_tensors(name, tensors, about)
            data = tensor_bytes(tensors)
            entries[name] = manifest_entry(data)
            if write:
                write(name, data)
        manifest = sealed({"format": "collapse", "version": VERSION, **about, "files": entries}, provenance)
        if write:
            write(MANIFEST, render(manifest))
    if path is None:
        return Store(manifest, None, files)
    remove_shards(path)
    return Store(manifest, path)


def training_hash(store: Store) -> str:
    """Return a hash of the class means and the head, which determine the decisions of a validation."""
    files = store.manifest["files"]
    return sha256_of([files[file_of(name)]["sha256"] for name in ("train", "classifier")])


def statistics_of(shards: Sequence[Shard]) -> EmbeddingStatistics:
    """Return the merged class statistics of training shards, as a store made from them would have.

    Args:
        shards: The shards in the order of their slices; they need not cover the text.
    """
    s, head = _folded(shards, _common(shards))
    about = shards[0].header
    return replace(
        s,
        classifier=head["weight"].double(),
        bias=head["bias"].double() if "bias" in head else None,
        n_params=about["model"].get("n_params"),
        dtype=str(about["identity"].get("dtype") or "float32"),
    )


def _folded(shards: Sequence[Shard], kinds: Kinds) -> tuple[EmbeddingStatistics, dict[str, Tensor]]:
    """Return the merged moments of shards, and the head's rows of their classes; a shard has the rows it needs."""
    total: ClassMoments | None = None
    heads: list[tuple[Tensor, dict[str, Tensor]]] = []
    for shard in shards:
        state = shard.tensors()
        heads.append((state["classes"], {name: state[name] for name in ("weight", "bias") if name in state}))
        moments = ClassMoments.from_state(state, "cpu", kinds)
        if total is None:
            total = moments
        else:
            total.merge(moments)
    assert total is not None  # there is at least one shard
    s = total.statistics_so_far()
    head = {name: rows.new_zeros(s.n_classes, *rows.shape[1:]) for name, rows in heads[0][1].items()}
    for classes, rows in heads:
        at = torch.searchsorted(s.classes, classes)
        for name, values in rows.items():
            head[name][at] = values
    return s, head


def usable(kinds: Kinds, shard: Shard) -> tuple[list[type[Statistic]], dict[str, str]]:
    """Return the statistics of a shard that installed plugins can continue, and reasons why they cannot the others."""
    fit, unfit = [], {}
    for kind in kinds:
        held = shard.header["statistics"].get(kind.name)
        if held is None:
            unfit[kind.name] = "did not fill it"
        elif differ := conflict(kind, held, shard.header["statistics_by"].get(kind.name)):
            unfit[kind.name] = differ
        else:
            fit.append(kind)
    return fit, unfit


def joined(parts: Parts) -> Part:
    """Join parts of a collection to one part with ordered shards.

    Args:
        parts: The parts or their folders; or, as one text, a folder that holds them, or their folders separated by
            commas.

    Raises:
        UsageError: There are fewer than two parts.
        StoreError: As in :func:`ordered`.
    """
    if isinstance(parts, str | Path):
        folder = expanded(parts)
        found = sorted(each for each in folder.iterdir() if is_part(each)) if folder.is_dir() else []
        parts = found or [each for each in str(parts).split(",") if each]
    given = [parts] if isinstance(parts, Part) else parts
    opened = [each if isinstance(each, Part) else Part.load(each) for each in given]
    if len(opened) < 2:
        raise UsageError(f"at least two parts are needed, got {len(opened)}: collect with --part 1/n to --part n/n")
    return Part(opened[0].path, ordered([shard for part in opened for shard in part.shards]))


def ordered(shards: Sequence[Shard]) -> list[Shard]:
    """Return the shards of one or several folders in the order of their slices.

    Raises:
        StoreError: The shards are of different collections, or overlap.
    """
    in_order = sorted(shards, key=lambda each: (each.start, each.stop))
    for other in in_order[1:]:
        first = in_order[0]
        sides = str(first.folder), str(other.folder)
        if differ := differences(fields_to_compare(first.header), fields_to_compare(other.header), sides=sides):
            raise StoreError(
                f"{' and '.join(sides)} are not parts of one collection: they differ in {'; '.join(differ)}. "
                "Collect all parts with the same options"
            )
    for first, other in pairwise(in_order):
        if other.start < first.stop:
            shared = (other.start, min(first.stop, other.stop))
            raise StoreError(
                f"{first.folder} and {other.folder} overlap: both hold {first.phase} slices {spans([shared])} of "
                f"{first.slices}. Leave one of them out"
            )
    return in_order


def _common(shards: Sequence[Shard], known: Kinds | None = None) -> list[type[Statistic]]:
    """Return the known statistics that all shards hold; warn about statistics that are left out."""
    installed = plugins().statistics if known is None else {kind.name: kind for kind in known}
    kinds = []
    for name in sorted({name for shard in shards for name in shard.header["statistics"]}):
        if why := _why_not(installed.get(name), shards):
            log.warning("statistic %s is left out: %s", name, why)
        else:
            kinds.append(installed[name])
    return kinds


def _why_not(kind: type[Statistic] | None, shards: Sequence[Shard]) -> str | None:
    """Say why the shards' states of a statistic cannot be merged, or return None if they can."""
    if kind is None:
        return "no installed plugin can merge it"
    for shard in shards:
        _, unfit = usable([kind], shard)
        if unfit:
            return f"{shard.path} {unfit[kind.name]}"
    return None


def _counts(state: Mapping[str, Tensor]) -> ValidationStatistics:
    return ValidationStatistics(**{name: value for name, value in state.items() if "/" not in name})


def _provenance(shards: Sequence[Shard]) -> dict[str, Any]:
    made = [dict(shard.header["provenance"]) for shard in shards]
    return made[0] if len(made) == 1 else {"merged": now(), "versions": versions(), "parts": made}
