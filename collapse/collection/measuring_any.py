"""Measure anything: a model, a store, or embeddings in memory."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from collapse.collection.arrays import collect_arrays
from collapse.collection.named_store import Measured, how_to_measure, open_or_collect
from collapse.collection.out_of_distribution import open_ood
from collapse.core.progress import Report, shows_progress
from collapse.core.steps import run_and_step
from collapse.errors import UsageError
from collapse.inputs.accepted_options import NO_PART, accepts
from collapse.inputs.features import integer_labels
from collapse.inputs.held_options import refuse_options
from collapse.inputs.live_model import is_live
from collapse.inputs.source import array_tensor
from collapse.measurement.measuring import Classes, measure_store
from collapse.measurement.rows import Row
from collapse.numerics.statistics import EmbeddingStatistics
from collapse.plugin.registry import Wanted
from collapse.stores.layer_names import TOP

if TYPE_CHECKING:
    from numpy.typing import ArrayLike
    from torch import Tensor


@accepts(part=NO_PART, layers="its row is of the top layer; use collapse.measure_layers()")
@shows_progress
def measure(
    model: Any = None,
    *,
    store: str | Path | None = None,
    metrics: Wanted = None,
    min_count: int = 1,
    classes_of: Classes = (),
    ood_text: Any = None,
    device: str | None = None,
    progress: Report | None = None,
    step: int | None = None,
    features: "Tensor | ArrayLike | None" = None,
    labels: "Tensor | ArrayLike | None" = None,
    classifier: "Tensor | ArrayLike | None" = None,
    bias: "Tensor | ArrayLike | None" = None,
    validation_features: "Tensor | ArrayLike | None" = None,
    validation_labels: "Tensor | ArrayLike | None" = None,
    name: str | None = None,
    **options: Any,
) -> Row:
    """Measure a model, a store, or embeddings in memory, as ``collapse measure`` does.

    Args:
        model: What to measure: a store, its folder or its name on the Hub; an :class:`collapse.EmbeddingStatistics`; a
            model, a features file or a loaded model. If a model has no store, its embeddings are collected first (see
            :func:`collapse.collect`). None to measure ``features``.
        store: Folder of the model's store; None for the local cache.
        metrics: Measurement names or prefixes (``"gnc2"``, ``["nc1.cdnv", "nc2"]``), or functions that are decorated
            as metrics. None means all measurements, except those of opt-in plugins.
        min_count: Keep the classes with at least this many samples; μ̄ is the mean over the kept classes. NC4 is not
            affected.
        classes_of: A store, or several stores. Only classes that each of these stores also has are kept. This makes
            texts of unequal length comparable.
        ood_text: An out-of-distribution text for NC5; the model's embeddings of this text are also collected. Or the
            store or :class:`collapse.EmbeddingStatistics` of such a text.
        device: Device for the model and the computation. None means "auto" for the model, and the device of the
            statistics for the computation.
        progress: Called as progress(what, done, total[, note]).
        step: The model's training step; None for the step in the model's name, if there is one.
        features: Training embeddings, shape (N, d), torch or numpy, instead of a store. Give them with ``labels`` and,
            optionally, ``classifier``, ``bias``, ``validation_features`` and ``validation_labels``, as for
            :func:`collapse.collect_arrays`. Without a classifier, measurements that need one are None, with a note.
        name: Name of the features or of a loaded model in tables.
        {options}

    Returns:
        A row; a measurement that is not available is None, with a note that says why.

    Raises:
        UsageError: A metric or device is unknown, an option does not apply, there is nothing to measure, or both a
            model (or store) and features are given.
        CollapseError: Fewer than two classes are kept, the store is incomplete or was altered, or an array is invalid;
            or as in :func:`collapse.collect`.

    >>> import numpy as np
    >>> labels = np.arange(60) % 3
    >>> features = np.eye(4)[labels] + np.random.default_rng(0).normal(size=(60, 4)) / 100
    >>> row = measure(features=features, labels=labels, classifier=np.eye(3, 4), metrics="nc3.self_duality")
    >>> round(row.measurements["nc3.self_duality"], 1)
    0.8
    """
    arrays = {"features": features, "labels": labels, "classifier": classifier, "bias": bias}
    arrays |= {"validation_features": validation_features, "validation_labels": validation_labels}
    arrays = {key: each for key, each in arrays.items() if each is not None}
    collectable = isinstance(model, str | Path) or is_live(model)
    complete = {"features", "labels"} <= arrays.keys() if model is None else not arrays
    if not complete or not (collectable or store is None):
        raise UsageError("measure() needs one of these: a model, a store, or features with labels")
    how = how_to_measure(metrics, device, min_count=min_count, classes_of=classes_of, progress=progress)
    if model is None:
        refuse_options("features are already embeddings", options)
        opened = _collected(arrays, name or "arrays")
        ood = open_ood(opened, None, ood_text, {}, progress)
    else:
        options |= {"device": device, "name": name}
        opened, ood = open_or_collect(model, ood_text, store=store, progress=progress, **options)
    row = measure_store(opened, others={"ood": (ood, TOP)} if ood else {}, **how)
    if model is None and isinstance(opened, EmbeddingStatistics):
        row = replace(row, model=name or "arrays", step=run_and_step(name or "arrays")[1])
    return row if step is None else replace(row, step=step)


def _collected(given: Mapping[str, Any], name: str) -> Measured:
    """Collect arrays and return their store; without a classifier, return only their EmbeddingStatistics."""
    if "classifier" in given:
        return collect_arrays(**given, name=name)
    if len(given) > 2:
        raise UsageError("bias= and validation_features= need a classifier: give classifier= too")
    h = array_tensor(name, "train_features", given["features"])
    y = integer_labels(array_tensor(name, "train_labels", given["labels"]), name, "train_labels")
    # collect_arrays() needs a classifier: pass zeros, and remove them from the statistics
    ids = torch.unique(y[y >= 0])
    y = torch.where(y < 0, y, torch.searchsorted(ids, y))
    made = collect_arrays(h, y, torch.zeros(max(1, len(ids)), h.shape[-1]), name=name)
    return replace(made.statistics(), classifier=None, validation=None)
