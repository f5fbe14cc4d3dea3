"""Fold the shards of a phase into a store: class moments, then decisions and loss."""

import logging
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from collapse.errors import StoreError
from collapse.numerics.accumulate import ClassMoments
from collapse.numerics.statistics import EmbeddingStatistics, ValidationStatistics
from collapse.numerics.validation_totals import merge_validation
from collapse.plugin.filling import Filled, conflict
from collapse.plugin.plugin_manager import plugins
from collapse.plugin.statistic import Statistic
from collapse.stores.building import build
from collapse.stores.files import sha256_of
from collapse.stores.manifest import LAYER, differences, now
from collapse.stores.provenance import versions
from collapse.stores.shards import Shard, spans
from collapse.stores.store import Store

log = logging.getLogger("collapse")

Kinds = Sequence[type[Statistic]] | None


def fold_training(folder: Path | None, shards: Sequence[Shard], kinds: Kinds = None) -> Store:
    """Make the store of a training pass from its shards, which cover the text; it is not validated.

    Args:
        folder: Folder of the store, locked by the caller; None for a store in memory.
        shards: In the order of their slices.
        kinds: The statistics that may be folded; None for all that are registered.
    """
    s, head = _folded(shards, _common(shards, kinds))
    moments = {name: getattr(s, name) for name in ("classes", "counts", "means", "variances")}
    layer: dict[str, Mapping[str, Tensor]] = {"train": moments, "classifier": head, **s.extra}
    first = shards[0].about
    about = {
        **{name: first[name] for name in ("identity", "model", "corpus")},
        "coverage": {"train": first["coverage"], "validation": None},
        "statistics": dict(s.versions),
        "statistics_by": dict(s.made_by),
    }
    files = {f"{LAYER}/{name}.safetensors": tensors for name, tensors in layer.items()}
    return build(folder, about, files, provenance=_provenance(shards))


def fold_validation(folder: Path | None, store: Store, shards: Sequence[Shard], kinds: Kinds = None) -> Store:
    """Add the validation to a trained store, from shards that cover the validation text.

    Args:
        folder: Folder of the result, locked by the caller; None for a store in memory.
        store: The trained store.
        shards: In the order of their slices.
        kinds: The statistics that may be folded; None for all that are registered.
    """
    kinds = _common(shards, kinds)
    states = [shard.tensors() for shard in shards]
    statistics, *others = [Filled.from_state(state, "cpu", kinds) for state in states]
    for each in others:
        statistics.merge(each)
    total = merge_validation([_counts(state) for state in states])
    layer = {"validation": {name: getattr(total, name) for name in vars(total)}, **statistics.tensors()}
    files: dict[str, Mapping[str, Tensor]] = {f"{LAYER}/{name}.safetensors": each for name, each in layer.items()}
    kept = dict(store.manifest["files"])
    if folder is None or folder != store.path:
        files |= {name: store.tensors(name.split("/")[1].removesuffix(".safetensors")) for name in kept}
        kept = {}
    first, held = shards[0].about, store.manifest
    about = {
        "identity": first["identity"],
        "model": held["model"],
        "corpus": {**held["corpus"], "validation": first["corpus"]["validation"]},
        "coverage": {**held["coverage"], "validation": first["coverage"]},
        "statistics": {**held["statistics"], **statistics.versions},
        "statistics_by": {**held.get("statistics_by", {}), **statistics.makers},
    }
    provenance = {**held["provenance"], "validation": _provenance(shards)}
    return build(folder, about, files, provenance=provenance, kept=kept)


def training_hash(store: Store) -> str:
    """Return a hash of the class means and the head, on which the decisions of a validation depend."""
    files = store.manifest["files"]
    return sha256_of([files[f"{LAYER}/{name}.safetensors"]["sha256"] for name in ("train", "classifier")])


def statistics_of(shards: Sequence[Shard]) -> EmbeddingStatistics:
    """Return the class statistics of training shards together, as a store of them would give them.

    Args:
        shards: In the order of their slices; they need not cover the text.
    """
    s, head = _folded(shards, _common(shards))
    about = shards[0].about
    return replace(
        s,
        classifier=head["weight"].double(),
        bias=head["bias"].double() if "bias" in head else None,
        n_params=about["model"].get("n_params"),
        dtype=str(about["identity"].get("dtype") or "float32"),
    )


def _folded(shards: Sequence[Shard], kinds: Sequence[type[Statistic]]) -> tuple[EmbeddingStatistics, dict[str, Tensor]]:
    """Return the moments of all shards, and the head's rows of their classes, each from a shard that saw the class."""
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


def usable(kinds: Sequence[type[Statistic]], shard: Shard) -> tuple[list[type[Statistic]], dict[str, str]]:
    """Return the statistics that the installed plugins can continue from a shard, and why not the others."""
    fit, unfit = [], {}
    for kind in kinds:
        held = shard.about["statistics"].get(kind.name)
        if held is None:
            unfit[kind.name] = "did not fill it"
        elif differ := conflict(kind, held, shard.about["statistics_by"].get(kind.name)):
            unfit[kind.name] = differ
        else:
            fit.append(kind)
    return fit, unfit


def check_shards(shards: Sequence[tuple[str, Shard]]) -> list[Shard]:
    """Return the shards of several folders in the order of their slices.

    Args:
        shards: Each with the name of its folder, for messages.

    Raises:
        StoreError: They are of different collections, or overlap.
    """
    ordered = sorted(shards, key=lambda each: (each[1].start, each[1].stop))
    for theirs, other in ordered[1:]:
        mine, first = ordered[0]
        differ = differences(_comparable(first), _comparable(other), sides=("first", "second"))
        if differ:
            raise StoreError(f"{mine} and {theirs} are not parts of one collection: they differ in {'; '.join(differ)}")
    for (mine, first), (theirs, other) in pairwise(ordered):
        if other.start < first.stop:
            shared = (other.start, min(first.stop, other.stop))
            raise StoreError(
                f"{mine} and {theirs} overlap: both hold {first.phase} slices {spans([shared])} of {first.slices}"
            )
    return [shard for _, shard in ordered]


def _comparable(shard: Shard) -> dict[str, Any]:
    about = shard.about
    return {**about["identity"], "slices": about["coverage"], "training": about.get("trained")}


def _common(shards: Sequence[Shard], known: Kinds = None) -> list[type[Statistic]]:
    """Return the known statistics that all shards hold; warn about the others, which are left out."""
    installed = plugins().statistics if known is None else {kind.name: kind for kind in known}
    kinds = []
    for name in sorted({name for shard in shards for name in shard.about["statistics"]}):
        if name not in installed:
            why = "no plugin installed here can merge it"
        else:
            found = ((shard, usable([installed[name]], shard)[1].get(name)) for shard in shards)
            why = next((f"{shard.path} {unfit}" for shard, unfit in found if unfit), "")
        if why:
            log.warning("statistic %s is left out: %s", name, why)
        else:
            kinds.append(installed[name])
    return kinds


def _counts(state: Mapping[str, Tensor]) -> ValidationStatistics:
    return ValidationStatistics(**{name: value for name, value in state.items() if "/" not in name})


def _provenance(shards: Sequence[Shard]) -> dict[str, Any]:
    made = [dict(shard.about["provenance"]) for shard in shards]
    return made[0] if len(made) == 1 else {"merged": now(), "versions": versions(), "parts": made}
