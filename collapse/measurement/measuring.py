"""Measure a store with metrics: return a row with one number per measurement, or one value per class.

If a metric fails, only its own measurements are missing.

cli/measure.py → collection/named_store.py (opens the store, or collects it) → collection/measuring_layers.py (a row for
each layer) → ``measure_store`` → ``row_and_results`` → numerics/evaluating_metrics.py (all metrics; numerics/values.py
calls their functions) → numerics/pair_sweep.py (pair metrics) → row_numbers.py (numbers and notes) → ``Row``.

Shapes: C classes.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from collapse.core.precision import exact_arithmetic
from collapse.core.progress import Report
from collapse.errors import CollapseError, PluginError, UsageError, near_names
from collapse.measurement.row_numbers import note_store, numbers_of
from collapse.measurement.rows import Row
from collapse.numerics.devices import explaining_out_of_memory, float64_device, out_of_memory_message, pick_device
from collapse.numerics.evaluating_metrics import Evaluation, evaluate
from collapse.numerics.statistics import EmbeddingStatistics
from collapse.numerics.values import Values, copied
from collapse.plugin.guarding import outside_inference_mode
from collapse.plugin.metrics import Measure, Metric
from collapse.plugin.plugin_manager import plugins
from collapse.plugin.registry import Chosen, Wanted
from collapse.stores.layer_names import TOP
from collapse.stores.manifest import shape_of
from collapse.stores.store import Store
from collapse.stores.store_columns import row_columns

if TYPE_CHECKING:
    import pandas as pd

Measurable = Store | EmbeddingStatistics | str | Path
"""A store or its folder, or statistics without a store."""

Classes = Store | str | Path | Sequence[Store | str | Path]
"""One or several stores, or their folders. Only the classes that all of them have are kept."""

Other = tuple[Store | EmbeddingStatistics, str]
"""A second store (or statistics) that metrics read in addition to the measured store, and the layer to read."""


def measure_store(store: Measurable, **options: Any) -> Row:
    """Measure a store with the registered metrics; see :func:`row_and_results` for options and exceptions."""
    return row_and_results(store, **options)[0]


@outside_inference_mode
@exact_arithmetic()
def row_and_results(
    store: Measurable,
    *,
    layer: str = TOP,
    metrics: Wanted = None,
    min_count: int = 1,
    classes_of: Classes = (),
    group: tuple[str, Tensor] | None = None,
    others: Mapping[str, Other | None] = {},
    device: str | None = None,
    progress: Report | None = None,
    by_class: bool = False,
    top_pairs: int = 0,
) -> tuple[Row, Evaluation]:
    """Measure a store as :func:`collapse.measure` does; return the row, and the results of the metrics.

    Args:
        layer: The layer of a store, one of :attr:`collapse.Store.layers`.
        group: The name of a group of classes, and the ids of the classes in the group. Keep only these classes.
        others: Other stores that metrics read: for each name in :data:`collapse.plugin.parameter_names.OF_OTHERS`, a
            store and its layer, or None if the store is not available.
        device: Device for the computation; None for the device of the statistics.
        by_class, top_pairs: As in :func:`collapse.numerics.evaluating_metrics.evaluate`.

    Raises:
        UsageError: A metric or device is unknown, or a store of ``classes_of`` has another tokenizer.
        CollapseError: Fewer than two classes are left; the store lacks the layer, is incomplete or was altered; or
            memory ran out. (If it runs out in a metric's function, only this metric has no value.)
    """
    wanted = plugins().chosen(metrics, others)
    opened = open_measurable(store)
    classes, dim = shape_of(opened.manifest) if isinstance(opened, Store) else opened.means.shape
    needed = {name for metric, _ in wanted.values() for name in metric.needs}
    read = {name: other for name, other in others.items() if other and name in needed}
    ids, class_set = _class_set(classes_of, opened.identity.get("tokenizer") if isinstance(opened, Store) else None)

    @torch.no_grad()
    def new_values() -> Values:
        beside: dict[str, Any] = {name: _read(*other) for name, other in read.items()}
        s = replace(_read(opened, layer), **beside).keep(min_count, ids, class_set)
        s = s.group(group[1]) if group else s
        return Values(s.to(float64_device(pick_device(device))) if device else s)

    message = out_of_memory_message("the measurements", classes, dim, pick_device(device or "cpu"), "--min-count")
    with explaining_out_of_memory(message):
        found = evaluate(new_values, by_metric(wanted), by_class=by_class, top_pairs=top_pairs, progress=progress)
    asked = {"group": group and group[0], "ood": _name_of(others.get("ood"))}
    return _row(opened, layer, wanted, found, asked), found


def _row(
    opened: Store | EmbeddingStatistics, layer: str, wanted: Chosen, found: Evaluation, asked: Mapping[str, Any]
) -> Row:
    """Return the row of a layer; ``asked`` has the row's fields ``group`` and ``ood``."""
    made, s = numbers_of(found), found.s
    if isinstance(opened, Store):
        note_store(made, opened)
        about = row_columns(opened, layer)
    else:
        about = {"model": "", "revision": None, "corpus": "", "store": "", "dtype": s.dtype}
    return Row(
        **about,
        **asked,
        min_count=s.min_count,
        class_set=s.class_set,
        classes=s.n_classes,
        dim=s.dim,
        samples=int(s.counts.sum()),
        measurements={name: made.values[name] for name in wanted},
        versions={measure.name: each.metric.version for each in found.results for measure in each.measures},
        made_by=plugins().made_by(wanted),
        excluded=made.excluded,
        notes=tuple(made.notes),
        standard_errors={
            each.measures[0].name: each.standard_error for each in found.results if each.standard_error is not None
        },
    )


class Vector(NamedTuple):
    """Token ids, and one value for each id."""

    ids: Tensor
    values: Tensor

    def frame(self) -> "pd.DataFrame":
        """Return a pandas DataFrame with the columns ``id`` and ``value``."""
        import pandas as pd

        return pd.DataFrame({"id": self.ids.cpu().numpy(), "value": self.values.cpu().numpy()})


def vectors(store: Measurable, name: str, *, min_count: int = 1) -> Vector:
    """Return the values behind a measurement, one per class.

    Args:
        store: A store or its folder, or an :class:`collapse.EmbeddingStatistics`.
        name: A measurement. For a measurement of pairs, the value of a class is computed over the pairs that contain
            it. A measurement of the validation text, such as nc4.agreement or val_loss, has a value per label.
        min_count: As in :func:`collapse.measure`.

    Returns:
        Token ids and values, of the same length. Unpack them, or call ``.frame()``. The value is nan for a class that
        the measurement excludes.

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
    return Vector(ids.clone(), values.clone())


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


def check_name(name: str, known: Sequence[str], what: str) -> None:
    """Raise UsageError if a name is unknown. The message says that the name is not ``what``, and suggests others."""
    if name not in known:
        raise UsageError(f"{name!r} is not {what}; {near_names(name, known)}")


def open_measurable(given: Any, kinds: Any = Store | EmbeddingStatistics) -> Any:
    """Open the store in a folder, or return an object of one of the types ``kinds``.

    Raises:
        UsageError: ``given`` is another object, such as a loaded model.
        StoreError: The folder holds no store that can be opened.
    """
    opened = Store.load(given) if isinstance(given, str | Path) else given
    if not isinstance(opened, kinds):
        raise UsageError(
            f"an object of {type(given).__name__} is neither a store nor a path: give one of them; "
            "collect a loaded model with collapse.collect"
        )
    return opened


def _read(opened: Store | EmbeddingStatistics, layer: str) -> EmbeddingStatistics:
    """Read the statistics of a layer of a store; for statistics without a store, return a copy of them."""
    return opened.statistics(layer) if isinstance(opened, Store) else copied(opened)


def _name_of(other: Other | None) -> str | None:
    """Return the name of another store's text; "statistics" if statistics are given, None if nothing is given."""
    return None if other is None else other[0].corpus if isinstance(other[0], Store) else "statistics"


def _class_set(classes_of: Classes, tokenizer: str | None) -> tuple[Tensor | None, str | None]:
    """Return the ids of the classes that all given stores have, and the stores' digests.

    Return (None, None) if no store is given.

    Raises:
        UsageError: A store has another tokenizer than ``tokenizer``.
    """
    given = [classes_of] if isinstance(classes_of, Store | str | Path) else classes_of
    others = [each if isinstance(each, Store) else Store.load(each) for each in given]
    ids: Tensor | None = None
    for other in others:
        theirs = other.identity.get("tokenizer")
        if theirs and tokenizer and theirs != tokenizer:
            raise UsageError(
                f"{other} has another tokenizer, so its classes are different tokens: choose another store"
            )
        held = other.tensors("train")["classes"]
        ids = held if ids is None else ids[torch.isin(ids, held)]
    return ids, ",".join(other.digest for other in others) or None


def by_metric(measurements: Chosen) -> list[tuple[Metric, list[Measure]]]:
    """Group measurements by their metrics."""
    chosen: dict[int, tuple[Metric, list[Measure]]] = {}
    for metric, measure in measurements.values():
        chosen.setdefault(id(metric), (metric, []))[1].append(measure)
    return list(chosen.values())
