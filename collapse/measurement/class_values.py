"""The values behind the measurements of a store: one per class, and the pairs with the largest values.

Shapes: C classes.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from collapse.core.progress import Report
from collapse.errors import CollapseError, PluginError, UsageError, near_names
from collapse.measurement.measuring import Measurable, row_and_results
from collapse.measurement.rows import Row
from collapse.numerics.reducing import TopPairs
from collapse.numerics.statistics import EmbeddingStatistics
from collapse.plugin.plugin_manager import plugins


def vectors(store: Measurable, name: str, *, min_count: int = 1) -> tuple[Tensor, Tensor]:
    """Return the values behind a measurement, one per class.

    Args:
        store: A store or its folder, or an :class:`collapse.EmbeddingStatistics`.
        name: A measurement. For a measurement of pairs, the value of a class is computed over the pairs that contain
            it. A measurement of the validation text, such as nc4.agreement or val_loss, has a value per label.
        min_count: As in :func:`collapse.measure`.

    Returns:
        Token ids and values, of the same length. The value is nan for a class that the measurement excludes.

    Raises:
        UsageError: There is no such measurement, or it has no value per class.
        CollapseError: The store lacks what the measurement needs.
        PluginError: A plugin's function failed.
    """
    check_name(name, class_measurements(), "a measurement with a value per class")
    row, found = row_and_results(store, metrics=name, min_count=min_count, by_class=True)
    (each,) = found.results
    if name not in each.by_class:
        kind = PluginError if each.failure else CollapseError
        raise kind(f"{name} is not available: {row.notes[0].text}")
    ids, values = each.by_class[name]
    return ids.clone(), values.clone()


@dataclass(frozen=True)
class ClassValues:
    """Measurements of a store, with the values behind them.

    Attributes:
        row: The measurements, as :func:`collapse.measure` returns them.
        statistics: The statistics of the classes that were kept.
        values: One value per class for each available measurement, shape (C,); nan for a class without a value.
        top: For each measurement of a pair metric, the pairs with the largest values.
    """

    row: Row
    statistics: EmbeddingStatistics
    values: Mapping[str, Float[Tensor, " C"]]
    top: Mapping[str, TopPairs]


def measure_classes(
    store: Measurable,
    names: Sequence[str],
    *,
    min_count: int = 1,
    by_class: bool = True,
    top: int = 0,
    progress: Report | None = None,
) -> ClassValues:
    """Measure a store in one sweep over the pairs of classes; also return values of single classes and pairs.

    With ``by_class``, the result has a value per class for the measurements of :func:`class_measurements`. For each
    pair metric, it has the ``top`` pairs with the largest values. Other options are those of :func:`collapse.measure`.

    Raises:
        UsageError: There is no such measurement.
        CollapseError: The store cannot be measured.
    """
    row, found = row_and_results(
        store, metrics=names, min_count=min_count, progress=progress, by_class=by_class, top=top
    )
    values: dict[str, Tensor] = {}
    pairs: dict[str, TopPairs] = {}
    for each in found.results:
        values |= {name: _at(found.s.classes, *given) for name, given in each.by_class.items()}
        pairs |= {measure.name: each.top for measure in each.measures if each.top}
    return ClassValues(row, found.s, values, pairs)


def class_measurements() -> list[str]:
    """Return the measurements that have a value per class, or per label of the validation text."""
    return [name for name, (metric, _) in plugins().measurements().items() if metric.kind != "scalar" or metric.vector]


def pair_measurements() -> list[str]:
    """Return the measurements of pair metrics."""
    return [name for name, (metric, _) in plugins().measurements().items() if metric.kind == "pair"]


def check_name(name: str, known: Sequence[str], what: str) -> None:
    """Raise UsageError if a name is unknown. The message says that the name is not ``what``, and suggests others."""
    if name not in known:
        raise UsageError(f"{name!r} is not {what}; {near_names(name, known)}")


def _at(classes: Tensor, ids: Tensor, values: Tensor) -> Float[Tensor, " C"]:
    """Arrange the values of some ids by class; nan for a class without a value."""
    known = dict(zip(ids.tolist(), values.tolist(), strict=True))
    found = [known.get(each, math.nan) for each in classes.tolist()]
    return torch.tensor(found, dtype=torch.float64, device=classes.device)
