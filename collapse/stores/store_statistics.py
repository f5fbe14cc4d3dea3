"""The statistics of a store's layer, as metrics read them."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache
from typing import Any

from torch import Tensor

from collapse.numerics.statistics import EmbeddingStatistics, ValidationStatistics
from collapse.stores.layers import TOP
from collapse.stores.manifest import file_of, layer_of, name_of, why_absent

Tensors = Mapping[str, Tensor]


class _WhenRead(Mapping[str, Tensors]):
    """Plugin statistics that are read, and if necessary downloaded, only when a metric asks for them."""

    def __init__(self, names: Sequence[str], read: Callable[[str], Tensors]) -> None:
        self._names, self._read = tuple(names), cache(read)

    def __getitem__(self, name: str) -> Tensors:
        if name not in self._names:
            raise KeyError(name)
        return self._read(name)

    def __contains__(self, name: object) -> bool:  # without reading it
        return name in self._names

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)


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
        extra=_WhenRead([each for each in names if each in manifest["statistics"]], lambda name: tensors(name, layer)),
        n_params=manifest["model"].get("n_params"),
        dtype=str(manifest["identity"].get("dtype", "float32")),
        versions=manifest["statistics"],
        makers=manifest.get("statistics_by", {}),
        absent=why_absent(manifest, layer),
    )
