"""Measure a store with metrics, which gives a row. A metric that fails costs only its own measurements, not the run."""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from collapse.core.precision import exact_arithmetic
from collapse.core.progress import Report
from collapse.errors import CollapseError, PluginError, UsageError, near_names
from collapse.measurement.noting import numbers_of, same_texts
from collapse.measurement.results import Row
from collapse.numerics.devices import float64_device, is_out_of_memory, pick_device, ran_out
from collapse.numerics.evaluating import Evaluation, evaluate
from collapse.numerics.statistics import EmbeddingStatistics
from collapse.numerics.values import Values, copied
from collapse.plugin.guarding import outside_inference_mode
from collapse.plugin.metrics import Measure, Metric
from collapse.plugin.names import VECTORS
from collapse.plugin.plugin_manager import plugins
from collapse.stores.described import about
from collapse.stores.manifest import shape_of
from collapse.stores.store import Store

Measurable = Store | EmbeddingStatistics | str | Path
"""A store or its folder, or bare statistics."""

Classes = Store | str | Path | Sequence[Store | str | Path]
"""A store or its folder whose classes are kept, or several."""


def measure_store(
    store: Measurable,
    *,
    metrics: str | Iterable[str] | None = None,
    min_count: int = 1,
    classes_of: Classes = (),
    device: str | None = None,
    progress: Report | None = None,
) -> Row:
    """Measure a store with the registered metrics.

    Args:
        store: A store or its folder, or bare statistics.
        metrics: Measurement names or prefixes (``"gnc2"``, ``["nc1.cdnv", "nc2"]``); None means all.
        min_count: Keep the classes with at least this many samples; μ̄ is over the classes kept. NC4 is not affected.
        classes_of: Keep the classes that this store, or each of several, also has.
        device: Device for the computation; None for the device of the statistics.
        progress: Called as progress(what, done, total).

    Returns:
        A row; an unavailable measurement is None, with a note that says why.

    Raises:
        UsageError: An unknown metric or device.
        CollapseError: Fewer than two classes are left, or the store is incomplete or was altered.
    """
    how: dict[str, Any] = {"metrics": metrics, "min_count": min_count, "classes_of": classes_of, "device": device}
    return measured(store, progress=progress, **how)[0]


@outside_inference_mode
@exact_arithmetic()
def measured(
    store: Measurable,
    *,
    metrics: str | Iterable[str] | None = None,
    min_count: int = 1,
    classes_of: Classes = (),
    device: str | None = None,
    progress: Report | None = None,
    by_class: bool = False,
    top: int = 0,
) -> tuple[Row, Evaluation]:
    """Measure a store; return the row, and what the metrics gave of which statistics.

    Args, Raises: as :func:`measure_store` and :func:`collapse.numerics.evaluating.evaluate`.
    """
    names = plugins().select(metrics)
    options = {"by_class": by_class, "top": top, "progress": progress}
    opened, found = _evaluated(store, by_metric(names), min_count, classes_of, device, **options)
    made, s = numbers_of(found), found.s
    notes = (*made.notes, *(same_texts(opened) if isinstance(opened, Store) else ()))
    of = about(opened) if isinstance(opened, Store) else {"model": "", "revision": None, "corpus": "", "store": ""}
    row = Row(
        **{**of, "dtype": of.get("dtype", s.dtype)},
        min_count=s.min_count,
        class_set=s.class_set,
        classes=s.n_classes,
        dim=s.dim,
        samples=int(s.counts.sum()),
        measurements={name: made.values[name] for name in names},
        versions={measure.name: each.metric.version for each in found.metrics for measure in each.measures},
        made_by=plugins().made_by(names),
        excluded=made.excluded,
        notes=notes,
        standard_errors={
            each.measures[0].name: each.standard_error for each in found.metrics if each.standard_error is not None
        },
    )
    return row, found


@outside_inference_mode
@exact_arithmetic()
def vectors(store: Measurable, name: str, *, min_count: int = 1) -> tuple[Tensor, Tensor]:
    """Return the values behind a measurement, one per class.

    Args:
        store: A store or its folder, or bare statistics.
        name: A measurement of a class metric, a pair metric (its mean, std, ... over each class's pairs) or one
            that declares a vector (nc4.agreement, val_loss: one a label of the validation text); or
            ``counts``, ``variances``.
        min_count: As in :func:`collapse.measure`.

    Returns:
        Token ids and values, both of the same length; nan for a class that the measurement excludes.

    Raises:
        UsageError: There is no such measurement, or it is only one number.
        CollapseError: The store lacks what it needs, or a plugin's function failed.
    """
    known = plugins().measurements()
    if not isinstance(name, str):
        raise UsageError(f"the name of a metric must be a text; there is a {type(name).__name__}: {name!r:.40}")
    having = [each for each, (m, _) in known.items() if m.kind != "scalar" or m.vector]
    if name not in known and (inside := [each for each in having if each.startswith(f"{name}.")]):
        raise UsageError(f"{name} is a prefix of several: name one measurement, {' or '.join(sorted(inside))}")
    if name not in known and name not in VECTORS:
        raise UsageError(f"no metric is called {name!r}; {near_names(name, {*known, *VECTORS})}")
    if name in known and name not in having:
        raise UsageError(f"{name} is one number, not one a class; {near_names(name, {*having, *VECTORS})}")
    metric, measure = known.get(name, (None, None))
    chosen = [(metric, [measure])] if metric and measure else []
    _, evaluation = _evaluated(store, chosen, min_count, by_class=True)
    if metric is None:
        return evaluation.s.classes.clone(), getattr(evaluation.s, name).clone()
    (found,) = evaluation.metrics
    if found.remark and found.remark.kind == "missing":
        raise CollapseError(f"{name} is not available: {found.remark.text}")
    if name not in found.by_class:
        raise PluginError(numbers_of(evaluation).notes[0].text)
    ids, values = found.by_class[name]
    return ids.clone(), values.clone()


def _evaluated(
    store: Any,
    chosen: Sequence[tuple[Metric, Sequence[Measure]]],
    min_count: int,
    classes_of: Classes = (),
    device: str | None = None,
    **options: Any,
) -> tuple[Store | EmbeddingStatistics, Evaluation]:
    """Evaluate metrics on some classes of a store; return the store opened, and what they gave.

    Raises:
        CollapseError: Memory ran out outside of a metric's function, which costs only its own value.
    """
    opened = Store.load(store) if isinstance(store, str | Path) else store
    if not isinstance(opened, Store | EmbeddingStatistics):
        raise UsageError(f"there is a {type(store).__name__} where a store, its folder or statistics are needed")
    classes, dim = shape_of(opened.manifest) if isinstance(opened, Store) else opened.means.shape
    ids, class_set = _class_set(classes_of, opened.identity.get("tokenizer") if isinstance(opened, Store) else None)

    @torch.inference_mode()  # torch tells of a write to tensors that are made here
    def fresh() -> Values:
        s = opened.statistics(fresh=True) if isinstance(opened, Store) else copied(opened)
        s = s.keep(min_count, ids, class_set)
        return Values(s.to(float64_device(pick_device(device))) if device else s)

    try:
        return opened, evaluate(fresh, chosen, **options)
    except Exception as error:
        if not is_out_of_memory(error):
            raise
        message = ran_out("the measurements", classes, dim, pick_device(device or "cpu"), "--min-count")
        raise CollapseError(message) from error


def _class_set(classes_of: Classes, tokenizer: str | None) -> tuple[Tensor | None, str | None]:
    """Return the ids of the classes that all of some stores have, and the stores' digests."""
    given = [classes_of] if isinstance(classes_of, Store | str | Path) else classes_of
    others = [each if isinstance(each, Store) else Store.load(each) for each in given]
    ids: Tensor | None = None
    for other in others:
        theirs = other.identity.get("tokenizer")
        if theirs and tokenizer and theirs != tokenizer:
            raise UsageError(f"{other} has another tokenizer than the store, so its classes are not the same tokens")
        held = other.tensors("train")["classes"]
        ids = held if ids is None else ids[torch.isin(ids, held)]
    return ids, ",".join(other.digest for other in others) or None


def by_metric(names: Sequence[str]) -> list[tuple[Metric, list[Measure]]]:
    """Group measurements by their metrics."""
    chosen: dict[int, tuple[Metric, list[Measure]]] = {}
    known = plugins().measurements()
    for name in names:
        metric, measure = known[name]
        chosen.setdefault(id(metric), (metric, []))[1].append(measure)
    return list(chosen.values())
