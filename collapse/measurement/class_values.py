"""Measure a store, and keep the values behind its measurements: one per class, and the pairs of largest value.

Shapes: C classes.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from collapse.core.progress import Report
from collapse.errors import UsageError, near_names
from collapse.measurement.measuring import measured
from collapse.measurement.rows import Row
from collapse.numerics.statistics import EmbeddingStatistics
from collapse.numerics.top_pairs import TopPairs
from collapse.plugin.plugin_manager import plugins
from collapse.stores.store import Store


@dataclass(frozen=True)
class ClassValues:
    """Measurements of a store, with the values behind them.

    Attributes:
        row: The measurements, as :func:`collapse.measure` returns them.
        statistics: The statistics of the classes that were kept.
        values: By measurement, one value per class, nan without one, shape (C,); none for one that is not available.
        top: By measurement of a pair metric, the pairs of largest value.
    """

    row: Row
    statistics: EmbeddingStatistics
    values: Mapping[str, Float[Tensor, " C"]]
    top: Mapping[str, TopPairs]


def measure_classes(
    store: Store | EmbeddingStatistics | str | Path,
    names: Sequence[str],
    *,
    min_count: int = 1,
    by_class: bool = True,
    top: int = 0,
    progress: Report | None = None,
) -> ClassValues:
    """Measure a store, and keep each class's values, in one sweep over the pairs of classes for all measurements.

    Args:
        store: A store or its folder, or bare statistics.
        names: Measurements; :func:`class_measurements` lists those that have a value per class.
        min_count: As in :func:`collapse.measure`.
        by_class: Keep each class's values.
        top: Keep so many pairs of largest value of each pair metric.
        progress: Called as progress(what, done, total).

    Raises:
        UsageError: There is no such measurement.
        CollapseError: The store cannot be measured.
    """
    row, found = measured(store, metrics=names, min_count=min_count, progress=progress, by_class=by_class, top=top)
    values = {name: _at(found.s.classes, *each) for name, each in found.by_class.items()}
    return ClassValues(row, found.s, values, found.top)


def class_measurements() -> list[str]:
    """Return the measurements that have a value per class, or per label of the validation text."""
    return [name for name, (metric, _) in plugins().measurements().items() if metric.kind != "scalar" or metric.vector]


def pair_measurements() -> list[str]:
    """Return the measurements of pair metrics."""
    return [name for name, (metric, _) in plugins().measurements().items() if metric.kind == "pair"]


def check_name(name: Any, known: Sequence[str], what: str) -> str:
    """Return a name that is known; raises UsageError with similar names for another."""
    if isinstance(name, str) and name not in known and name in plugins().measurements() and "count" in known:
        near = near_names(name, known, see="collapse metrics")
        raise UsageError(f"{name} is one number of the whole store, not one a class; {near}")
    if not isinstance(name, str) or name not in known:
        raise UsageError(f"{what} is called {name!r:.60}; {near_names(str(name), known)}")
    return name


def _at(classes: Tensor, ids: Tensor, values: Tensor) -> Float[Tensor, " C"]:
    """Return the values of some ids at the classes; nan for a class without one."""
    made = torch.full(classes.shape, math.nan, dtype=torch.float64, device=classes.device)
    if len(ids):
        ids, order = ids.to(classes.device).sort()
        values = values.to(classes.device)[order].double()
        at = torch.searchsorted(ids, classes).clamp_max(len(ids) - 1)
        there = ids[at] == classes
        made[there] = values[at[there]]
    return made
