"""Class moments as the files of a store, and back."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from torch import Tensor

from collapse.numerics.accumulate import ClassMoments
from collapse.numerics.statistics import EmbeddingStatistics
from collapse.plugin.statistic import Statistic
from collapse.stores.building import build
from collapse.stores.manifest import LAYER
from collapse.stores.store import Store


def build_trained(
    path: Path | None,
    trained: EmbeddingStatistics,
    classifier: Mapping[str, Tensor],
    *,
    about: Mapping[str, Any],
    provenance: Mapping[str, Any],
) -> Store:
    """Make the store of a training pass, without a validation.

    Args:
        path: Folder of the store, locked by the caller; None for a store in memory.
        trained: The class statistics, and those of plugins.
        classifier: ``weight``, shape (C, d), and ``bias``, shape (C,), if there is one: rows of these classes.
        about: identity, model, corpus and coverage of the manifest.
        provenance: Device, batch size, times, command.
    """
    moments = {name: getattr(trained, name) for name in ("classes", "counts", "means", "variances")}
    layer: dict[str, Mapping[str, Tensor]] = {"train": moments, "classifier": classifier, **trained.extra}
    files = {f"{LAYER}/{name}.safetensors": tensors for name, tensors in layer.items()}
    about = {**about, "statistics": dict(trained.versions), "statistics_by": dict(trained.made_by)}
    return build(path, about, files, provenance=provenance)


def moments_of(store: Store, kinds: Sequence[type[Statistic]]) -> ClassMoments:
    """Return a store's class moments and plugin statistics, to which another part's can be added."""
    train = store.tensors("train")
    state = {name: train[name] for name in ("classes", "counts", "means")}
    state["squares"] = train["variances"] * train["counts"]
    for kind in kinds:
        state |= {f"{kind.name}/{key}": value for key, value in store.tensors(kind.name).items()}
    return ClassMoments.from_state(state, "cpu", kinds)
