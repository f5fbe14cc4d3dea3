"""Collect arrays into a store in memory, with the same passes as for a model."""

from collections.abc import Sequence

from numpy.typing import ArrayLike
from torch import Tensor

from collapse.collection.passes import Collection
from collapse.core.precision import exact_arithmetic
from collapse.inputs.features import source_of
from collapse.inputs.source import array_tensor
from collapse.plugin.guarding import outside_inference_mode
from collapse.plugin.plugin_manager import plugins
from collapse.plugin.registry import check_declared
from collapse.plugin.statistic import Statistic
from collapse.stores.store import Store


@outside_inference_mode
@exact_arithmetic()
def collect_arrays(
    features: Tensor | ArrayLike,
    labels: Tensor | ArrayLike,
    classifier: Tensor | ArrayLike,
    *,
    bias: Tensor | ArrayLike | None = None,
    validation_features: Tensor | ArrayLike | None = None,
    validation_labels: Tensor | ArrayLike | None = None,
    name: str = "arrays",
    statistics: Sequence[type[Statistic]] | None = None,
) -> Store:
    """Collect the statistics of your own embeddings into a store in memory, for :func:`collapse.measure`.

    The numbers equal those of a features file with the same tensors. ``store.save(folder)`` writes the store to disk.

    Args:
        features: Training embeddings, shape (N, d), torch or numpy.
        labels: The class of each embedding, integers, shape (N,). Samples with the label −100 are skipped.
        classifier: Weights, one row per class, shape (C, d).
        bias: One value per class, shape (C,); None if the classifier has no bias.
        validation_features, validation_labels: Samples for NC4 and the loss, shapes (n, d) and (n,); both or neither.
        name: Name of the model in tables.
        statistics: Plugin statistics to collect; None for all that are registered.

    Raises:
        CollapseError: An array is empty, is not finite, or has the wrong shape or dtype; a label has no row in the
            classifier; or only one of ``validation_features`` and ``validation_labels`` is given.

    >>> import numpy as np
    >>> draw = np.random.default_rng(0)
    >>> store = collect_arrays(draw.normal(size=(60, 4)), draw.integers(3, size=60), draw.normal(size=(3, 4)))
    >>> store.statistics().n_classes
    3
    """
    given = {
        "train_features": features,
        "train_labels": labels,
        "classifier": classifier,
        "classifier_bias": bias,
        "validation_features": validation_features,
        "validation_labels": validation_labels,
    }
    tensors = {key: array_tensor(name, key, each) for key, each in given.items() if each is not None}
    source = source_of(tensors, name, model=name, corpus=name)
    statistic_types = list(plugins().statistics.values()) if statistics is None else statistics
    for kind in statistic_types:
        check_declared(kind)
    store = Collection(source, None, statistic_types).run()
    assert isinstance(store, Store)  # not a Part, because no part was requested
    return store
