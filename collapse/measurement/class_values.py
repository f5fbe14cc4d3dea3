"""The values behind the measurements of a store, one per class.

Shapes: C classes.
"""

import math
from collections.abc import Sequence

import torch
from jaxtyping import Float
from torch import Tensor

from collapse.errors import CollapseError, PluginError, UsageError, near_names
from collapse.measurement.measuring import Measurable, row_and_results
from collapse.numerics.evaluating_metrics import Evaluation
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


def values_by_class(found: Evaluation) -> dict[str, Float[Tensor, " C"]]:
    """Return the values behind each measurement that was evaluated ``by_class``; nan for a class without a value."""
    classes, made = found.s.classes.tolist(), dict[str, Tensor]()
    for each in found.results:
        for name, (ids, values) in each.by_class.items():
            known = dict(zip(ids.tolist(), values.tolist(), strict=True))
            made[name] = torch.tensor([known.get(token, math.nan) for token in classes], dtype=torch.float64)
    return made


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
