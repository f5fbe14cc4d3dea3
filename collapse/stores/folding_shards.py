"""Fold (merge) shards into a store: class moments from training shards, decisions and loss from validation shards."""

import logging
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from collapse.numerics.class_moments import ClassMoments
from collapse.numerics.statistics import EmbeddingStatistics
from collapse.numerics.validation_totals import merge_validation
from collapse.plugin.plugin_manager import plugins
from collapse.plugin.plugin_statistics import conflict
from collapse.plugin.statistic import Statistic
from collapse.stores.files import sha256_of
from collapse.stores.layer_names import TOP, state_of
from collapse.stores.manifest import (
    MANIFEST,
    VERSION,
    file_of,
    layer_of,
    name_of,
    now,
    render,
    sealed,
)
from collapse.stores.provenance import versions
from collapse.stores.shards import Shard, remove_shards
from collapse.stores.store import Store, Tensors
from collapse.stores.store_folder import new_files
from collapse.stores.tensor_files import check_tensors, manifest_entry, tensor_bytes

log = logging.getLogger("collapse")

StatisticTypes = Sequence[type[Statistic]]

_ABOUT = ("identity", "model", "corpus", "coverage", "statistics", "statistics_by")
"""Fields of a manifest that are passed to :func:`build` as ``about`` when a store is extended."""


def fold_training(folder: Path | None, shards: Sequence[Shard], statistic_types: StatisticTypes | None = None) -> Store:
    """Fold training shards into a new store, which is not yet validated.

    Afterwards, the shards in the store's folder are removed. The caller holds the folder's lock.

    Args:
        folder: Folder of the store; None for a store in memory.
        shards: Shards in the order of their slices; together, they cover the training text.
        statistic_types: Plugin statistics to fold; None for all that are registered.
    """
    by_layer, head = _merged_statistics_and_head(shards, _mergeable_statistics(shards, statistic_types))
    first, any_layer = shards[0].header, next(iter(by_layer.values()))  # all have statistics of the same versions
    about = {
        **{name: first[name] for name in ("identity", "model", "corpus")},
        "coverage": {"train": first["coverage"], "validation": None},
        "statistics": dict(any_layer.versions),
        "statistics_by": dict(any_layer.makers),
    }
    return build(folder, about, _training_files(by_layer, head), provenance=_provenance(shards))


def add_layers(store: Store, shards: Sequence[Shard], statistic_types: StatisticTypes | None = None) -> Store:
    """Add the layers of training shards to a store, and return the extended store.

    ``shards``, ``statistic_types``, the lock and the removal of the shards are as in :func:`fold_training`.
    """
    by_layer, head = _merged_statistics_and_head(shards, _mergeable_statistics(shards, statistic_types))
    # the store's own fields have priority; only a collection of inner layers adds the field no_lens
    about = {**store.manifest, "model": {**shards[0].header["model"], **store.manifest["model"]}}
    return _extended(store, about, _training_files(by_layer, head), {"layers": _provenance_of_layers(store, shards)})


def _training_files(
    by_layer: Mapping[str, EmbeddingStatistics], head: Mapping[str, Tensor]
) -> dict[str, Mapping[str, Tensor]]:
    """Return the tensors of a store's training files, by file name."""
    files: dict[str, Mapping[str, Tensor]] = {}
    for layer, s in by_layer.items():
        moments = {name: getattr(s, name) for name in ("classes", "counts", "means", "variances")}
        of_head = {"classifier": head} if layer == TOP else {}
        files |= {file_of(name, layer): each for name, each in {"train": moments, **of_head, **s.extra}.items()}
    return files


def fold_validation(shards: Sequence[Shard], statistic_types: StatisticTypes | None = None, *, store: Store) -> Store:
    """Fold validation shards into a trained store, or into a validated store to which they add layers.

    Together, the shards cover the validation text. Afterwards, the shards in the store's folder are removed.
    ``statistic_types`` is as in :func:`fold_training`.
    """
    statistic_types = _mergeable_statistics(shards, statistic_types)
    states = [shard.tensors() for shard in shards]
    files: dict[str, Mapping[str, Tensor]] = {}
    first, held = shards[0].header, store.manifest
    for layer in first["layers"]:
        counts, plugin_statistics = merge_validation([state_of(layer, state) for state in states], statistic_types)
        files |= {
            file_of(name, layer): each
            for name, each in {"validation": vars(counts), **plugin_statistics.tensors()}.items()
        }
    if store.holds("validation"):
        return _extended(store, held, files, {"layers": _provenance_of_layers(store, shards)})
    about = {
        **held,
        "identity": first["identity"],
        "corpus": {**held["corpus"], "validation": first["corpus"]["validation"]},
        "coverage": {**held["coverage"], "validation": first["coverage"]},
        "statistics": {**held["statistics"], **plugin_statistics.versions},  # the same for every layer
        "statistics_by": {**held.get("statistics_by", {}), **plugin_statistics.makers},
    }
    return _extended(store, about, files, {"validation": _provenance(shards)})


def _extended(
    store: Store, about: Mapping[str, Any], files: Mapping[str, Tensors], provenance: Mapping[str, Any]
) -> Store:
    """Add ``files`` to a store, on disk if the store has a folder, and return the extended store.

    ``about`` has the fields of the new manifest. ``provenance`` has the entries to add to the store's provenance.
    """
    held = store.manifest
    kept = held["files"]
    if store.path is None:  # no files to keep: pass the store's own tensors again
        files = {name: store.tensors(name_of(name), layer_of(name)) for name in kept} | dict(files)
        kept = {}
    about = {name: about[name] for name in _ABOUT if name in about}
    return build(store.path, about, files, provenance={**held["provenance"], **provenance}, kept=kept)


def _provenance_of_layers(store: Store, shards: Sequence[Shard]) -> list[dict[str, Any]]:
    """Return a store's provenance entries for layers that were added later, followed by a new entry for ``shards``."""
    first = shards[0]
    added = {"phase": first.phase, "layers": first.header["layers"], **_provenance(shards)}
    return [*store.manifest["provenance"].get("layers", []), added]


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
        path: The store's folder; None for a store in memory.
        about: The fields of the manifest that describe the content, such as ``identity`` and ``coverage``.
        files: The tensors by file name, such as ``top/train.safetensors``.
        provenance: The manifest's provenance.
        kept: Manifest entries of existing files, which are not written again.
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


def training_hash(store: Store, layers: Sequence[str]) -> str:
    """Return one hash of the training statistics of ``layers`` and of the classifier, from their files' sha256.

    A validation uses the class means of these layers and the classifier, so its shards record this hash.
    """
    files = store.manifest["files"]
    names = [*(file_of("train", layer) for layer in layers), file_of("classifier")]
    return sha256_of([files[name]["sha256"] for name in names])


def statistics_of_shards(shards: Sequence[Shard]) -> EmbeddingStatistics:
    """Return the statistics of the layer ``top`` that a store made from these training shards would hold.

    The shards are in the order of their slices; they need not cover the text.
    """
    by_layer, head = _merged_statistics_and_head(shards, _mergeable_statistics(shards))
    about = shards[0].header
    return replace(
        by_layer[TOP],
        classifier=head["weight"].double(),
        bias=head["bias"].double() if "bias" in head else None,
        n_params=about["model"].get("n_params"),
        dtype=str(about["identity"].get("dtype") or "float32"),
    )


def _merged_statistics_and_head(
    shards: Sequence[Shard], statistic_types: StatisticTypes
) -> tuple[dict[str, EmbeddingStatistics], dict[str, Tensor]]:
    """Merge shards: return the statistics by layer, and the classifier's weight and bias, with a row per class.

    Shards without the layer ``top`` have no classifier; the second dictionary is then empty.
    """
    total: dict[str, ClassMoments] = {}
    heads: list[tuple[Tensor, dict[str, Tensor]]] = []
    for shard in shards:
        state = shard.tensors()
        if "weight" in state:  # the head's rows of the shard's classes
            heads.append((state["classes"], {name: state[name] for name in ("weight", "bias") if name in state}))
        for layer in shard.header["layers"]:
            moments = ClassMoments.from_state(state_of(layer, state), "cpu", statistic_types)
            if layer in total:
                total[layer].merge(moments)
            else:
                total[layer] = moments
    by_layer, head = {layer: each.statistics_so_far() for layer, each in total.items()}, dict[str, Tensor]()
    for classes, rows in heads:
        s = by_layer[TOP]
        at = torch.searchsorted(s.classes, classes)
        for name, values in rows.items():
            head.setdefault(name, values.new_zeros(s.n_classes, *values.shape[1:]))[at] = values
    return by_layer, head


def continuable(
    statistic_types: StatisticTypes, held_by: Mapping[str, Any]
) -> tuple[list[type[Statistic]], dict[str, str]]:
    """Return the statistics that can continue from a saved state, and the reason why each other statistic cannot.

    ``held_by`` describes the state: it is the header of a shard or the manifest of a store. The second result maps
    names of statistics to reasons.
    """
    fit, unfit = [], {}
    for kind in statistic_types:
        held = held_by["statistics"].get(kind.name)
        if held is None:
            unfit[kind.name] = "lacks it"
        elif differ := conflict(kind, held, held_by.get("statistics_by", {}).get(kind.name)):
            unfit[kind.name] = differ
        else:
            fit.append(kind)
    return fit, unfit


def _mergeable_statistics(shards: Sequence[Shard], known: StatisticTypes | None = None) -> list[type[Statistic]]:
    """Return the statistics that all shards hold and that can be merged; log a warning for each excluded statistic.

    ``known`` are the statistics to choose from; None for all that are registered.
    """
    installed = plugins().statistics if known is None else {kind.name: kind for kind in known}
    held = sorted({name for shard in shards for name in shard.header["statistics"]})
    unfit = {name: "no installed plugin can merge it" for name in held if name not in installed}
    statistic_types = [installed[name] for name in held if name in installed]
    for shard in shards:
        statistic_types, unfit_here = continuable(statistic_types, shard.header)
        unfit |= {name: f"{shard.path} {why}" for name, why in unfit_here.items()}
    for name, why in unfit.items():
        log.warning("statistic %s is excluded: %s", name, why)
    return statistic_types


def _provenance(shards: Sequence[Shard]) -> dict[str, Any]:
    made = [dict(shard.header["provenance"]) for shard in shards]
    return made[0] if len(made) == 1 else {"merged": now(), "versions": versions(), "parts": made}
