"""Measure a store, or embeddings in memory."""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from collapse.collection.arrays import array_tensor, collect_arrays
from collapse.core.progress import Report, shows_progress
from collapse.core.steps import run_and_step
from collapse.errors import UsageError
from collapse.measurement.measuring import Classes, measure_store
from collapse.measurement.rows import Row
from collapse.numerics.statistics import EmbeddingStatistics
from collapse.stores.store import Store

if TYPE_CHECKING:
    from numpy.typing import ArrayLike
    from torch import Tensor


@shows_progress
def measure(
    store: Store | EmbeddingStatistics | str | Path | None = None,
    *,
    metrics: str | Iterable[str] | None = None,
    min_count: int = 1,
    classes_of: Classes = (),
    device: str | None = None,
    progress: Report | None = None,
    step: int | None = None,
    features: "Tensor | ArrayLike | None" = None,
    labels: "Tensor | ArrayLike | None" = None,
    classifier: "Tensor | ArrayLike | None" = None,
    bias: "Tensor | ArrayLike | None" = None,
    validation_features: "Tensor | ArrayLike | None" = None,
    validation_labels: "Tensor | ArrayLike | None" = None,
    name: str = "arrays",
) -> Row:
    """Measure a store, or embeddings in memory, with the registered metrics.

    Args:
        store: A store or its folder, or bare statistics; None to measure ``features``.
        metrics: Measurement names or prefixes (``"gnc2"``, ``["nc1.cdnv", "nc2"]``); None means all.
        min_count: Keep the classes with at least this many samples; μ̄ is the mean over the kept classes. NC4 is not
            affected.
        classes_of: Keep only classes that this store, or each of several stores, also has, to compare texts of unequal
            length.
        device: Device for the computation; None for the device of the statistics.
        progress: Called as progress(what, done, total).
        step: The model's training step; None for the step in the model's name, if there is one.
        features: Training embeddings, shape (N, d), torch or numpy, instead of a store. Give them with ``labels`` and,
            optionally, ``classifier``, ``bias``, ``validation_features``, ``validation_labels`` and ``name``, as for
            :func:`collapse.collect_arrays`. Without a classifier, measurements that need one are None, with a note.

    Returns:
        A row; a measurement that is not available is None, with a note that says why.

    Raises:
        UsageError: A metric or device is unknown, or not exactly one of a store and features is given.
        CollapseError: Fewer than two classes are left, the store is incomplete or was altered, or an array is wrong.

    >>> import numpy as np
    >>> labels = np.arange(60) % 3
    >>> features = np.eye(4)[labels] + np.random.default_rng(0).normal(size=(60, 4)) / 100
    >>> row = measure(features=features, labels=labels, classifier=np.eye(3, 4), metrics="nc3.self_duality")
    >>> round(row.measurements["nc3.self_duality"], 1)
    0.8
    """
    arrays = {"features": features, "labels": labels, "classifier": classifier, "bias": bias}
    arrays |= {"validation_features": validation_features, "validation_labels": validation_labels}
    measured = _collected(store, {key: each for key, each in arrays.items() if each is not None}, name)
    how: dict[str, Any] = {"metrics": metrics, "min_count": min_count, "classes_of": classes_of, "device": device}
    row = measure_store(measured, progress=progress, **how)
    if store is None and isinstance(measured, EmbeddingStatistics):
        row = replace(row, model=name, step=run_and_step(name)[1])
    return row if step is None else replace(row, step=step)


def _collected(
    store: Store | EmbeddingStatistics | str | Path | None, given: Mapping[str, Any], name: str
) -> Store | EmbeddingStatistics | str | Path:
    """Return what to measure: the given store, or a store of the arrays; without a classifier, bare statistics."""
    if (store is None) != ({"features", "labels"} <= given.keys()) or (store is not None and given):
        raise UsageError("measure() takes a store, or features with labels")
    if store is not None:
        return store
    if "classifier" in given:
        return collect_arrays(**given, name=name)
    if len(given) > 2:
        raise UsageError("measure() needs a classifier for a bias or validation features: give classifier=")
    h = array_tensor(name, "train_features", given["features"])
    # a classifier of zeros, which nothing reads, with a row per class
    ids, y = torch.unique(array_tensor(name, "train_labels", given["labels"]), return_inverse=True)
    made = collect_arrays(h, y, torch.zeros(len(ids), h.shape[-1]), name=name)
    return replace(made.statistics(), classifier=None, validation=None)
