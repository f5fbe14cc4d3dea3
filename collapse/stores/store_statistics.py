"""The statistics of a store's layer, as metrics read them."""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from torch import Tensor

from collapse.numerics.statistics import EmbeddingStatistics, ValidationStatistics
from collapse.stores.layers import TOP
from collapse.stores.manifest import file_of, layer_of, name_of, why_absent

Tensors = Mapping[str, Tensor]


def read_statistics(
    manifest: Mapping[str, Any], layer: str, tensors: Callable[[str, str], Tensors]
) -> EmbeddingStatistics:
    """Return the statistics of a layer.

    ``tensors`` returns the tensors of a file by its name and layer, as :meth:`collapse.Store.tensors` does.
    """
    names = [name_of(file) for file in manifest["files"] if layer_of(file) == layer]
    train = tensors("train", layer)
    head = tensors("classifier", TOP) if file_of("classifier") in manifest["files"] else {}
    return EmbeddingStatistics(
        classes=train["classes"],
        counts=train["counts"],
        means=train["means"],
        variances=train["variances"],
        classifier=head["weight"].double() if head else None,
        bias=head["bias"].double() if "bias" in head else None,
        validation=ValidationStatistics(**tensors("validation", layer)) if "validation" in names else None,
        extra={name: partial(tensors, name, layer) for name in names if name in manifest["statistics"]},
        n_params=manifest["model"].get("n_params"),
        dtype=str(manifest["identity"].get("dtype", "float32")),
        versions=manifest["statistics"],
        makers=manifest.get("statistics_by", {}),
        absent=why_absent(manifest, layer),
    )
