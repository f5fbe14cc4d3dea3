"""Measure a store with metrics, which gives a row. A metric that fails costs only its own measurements, not the run."""

from collections.abc import Iterable, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from collapse.core.precision import exact_arithmetic
from collapse.core.progress import Report
from collapse.errors import CollapseError, PluginError, UsageError, near_names
from collapse.measurement.comparing import about
from collapse.measurement.evaluating import Found, failure, same_texts
from collapse.measurement.results import Row
from collapse.numerics.devices import float64_device, pick_device
from collapse.numerics.memory import in_memory, ran_out
from collapse.numerics.standard_errors import standard_error
from collapse.numerics.statistics import EmbeddingStatistics
from collapse.numerics.values import Values, copied
from collapse.plugin.filling import conflict
from collapse.plugin.guarding import Failed, outside_inference_mode
from collapse.plugin.metrics import Measure, Metric
from collapse.plugin.names import VECTORS
from collapse.plugin.plugin_manager import plugins
from collapse.stores.manifest import shape_of
from collapse.stores.store import Store

Classes = Store | str | Path | Sequence[Store | str | Path]
"""A store or its folder whose classes are kept, or several."""


def measure_store(
    store: Store | EmbeddingStatistics | str | Path,
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
    store: Store | EmbeddingStatistics | str | Path,
    *,
    metrics: str | Iterable[str] | None = None,
    min_count: int = 1,
    classes_of: Classes = (),
    device: str | None = None,
    progress: Report | None = None,
    by_class: bool = False,
    top: int = 0,
) -> tuple[Row, Found]:
    """Measure a store, and return the row with what it was found from.

    Args, Raises: as :func:`measure_store` and :class:`Found`.
    """
    store = _opened(store)
    names = plugins().select(metrics)
    chosen = _by_metric(names)
    kept = (min_count, *_class_set(store, classes_of))
    with _in_memory(store, device):
        lent = _lent(store, kept, device)
        lacking = {id(metric): _lacking(store, lent.s, metric) for metric, _ in chosen}
        found = Found(lent, by_class=by_class, top=top)
        found.measure(chosen, lacking, progress)
    s = lent.s
    notes = found.notes
    of: dict[str, Any] = {"model": "", "revision": None, "corpus": "", "store": "", "dtype": s.dtype}
    if isinstance(store, Store):
        of = about(store)
        notes = [*notes, *same_texts(store)]
    row = Row(
        **of,
        min_count=s.min_count,
        class_set=s.class_set,
        classes=s.n_classes,
        dim=s.dim,
        samples=int(s.counts.sum()),
        measurements={name: found.values.get(name) for name in names},
        versions={measure.name: metric.version for metric, measures in chosen for measure in measures},
        made_by={name: made_by for name in names if (made_by := plugins().made_by("metric", name))},
        excluded=found.excluded,
        notes=tuple(notes),
        standard_errors={name: standard_error(each) for name, each in found.influences.items()},
    )
    return row, found


@outside_inference_mode
@exact_arithmetic()
def vectors(store: Store | EmbeddingStatistics | str | Path, name: str, *, min_count: int = 1) -> tuple[Tensor, Tensor]:
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
    store = _opened(store)
    known = plugins().measurements()
    if not isinstance(name, str):
        raise UsageError(f"the name of a metric must be a text; there is a {type(name).__name__}: {name!r:.40}")
    having = [each for each, (m, _) in known.items() if m.kind != "scalar" or m.vector]
    if name not in known and (inside := [each for each in having if each.startswith(f"{name}.")]):
        raise UsageError(f"{name} is a prefix of several: name one measurement, {' or '.join(sorted(inside))}")
    if name not in known and name not in VECTORS:
        raise UsageError(f"no metric is called {name!r}; {near_names(name, {*known, *VECTORS})}")
    with _in_memory(store, None):
        lent = _lent(store, (min_count,), None)
        s = lent.s
        if name in VECTORS:
            return s.classes, getattr(s, name)
        metric, measure = known[name]
        if lacking := _lacking(store, s, metric):
            raise CollapseError(f"{name} is not available: {lacking}")
        if metric.kind == "scalar" and metric.vector is None:
            raise UsageError(f"{name} is one number, not one a class; {near_names(name, {*having, *VECTORS})}")
        return _vector(metric, measure, lent)


def _vector(metric: Metric, measure: Measure, lent: Values) -> tuple[Tensor, Tensor]:
    """Return the values of a measurement, one per class; raises PluginError if a function fails."""
    if metric.vector is not None:
        try:
            ids, values = lent.value(metric.vector)
        except Failed as error:
            raise PluginError(failure(metric, error)) from error
        return ids, values
    found = Found(lent, by_class=True)
    found.measure([(metric, [measure])], {id(metric): None}, None)
    if measure.name not in found.by_class:
        raise PluginError(found.notes[0].text)
    return found.by_class[measure.name]


def _opened(store: Any) -> Store | EmbeddingStatistics:
    if isinstance(store, str | Path):
        return Store.load(store)
    if not isinstance(store, Store | EmbeddingStatistics):
        raise UsageError(f"there is a {type(store).__name__} where a store, its folder or statistics are needed")
    return store


def _in_memory(store: Store | EmbeddingStatistics, device: str | None) -> AbstractContextManager[None]:
    """Report that memory ran out while a store is measured; a metric's function that does costs only its own value."""
    classes, dim = shape_of(store.manifest) if isinstance(store, Store) else (store.n_classes, store.dim)
    return in_memory(ran_out("the measurements", classes, dim, pick_device(device or "cpu"), "--min-count"))


def _lent(store: Store | EmbeddingStatistics, kept: tuple[Any, ...], device: str | None) -> Values:
    def fresh() -> EmbeddingStatistics:
        s = store.statistics(fresh=True) if isinstance(store, Store) else copied(store)
        s = s.keep(*kept)
        return s.to(float64_device(pick_device(device))) if device else s

    return Values(fresh)


def _class_set(store: Store | EmbeddingStatistics, classes_of: Classes) -> tuple[Tensor | None, str | None]:
    """Return the ids of the classes that all of some stores have, and the stores' digests."""
    given = [classes_of] if isinstance(classes_of, Store | str | Path) else classes_of
    others = [each if isinstance(each, Store) else Store.load(each) for each in given]
    ids: Tensor | None = None
    for other in others:
        theirs, own = (about(each)["tokenizer"] if isinstance(each, Store) else None for each in (other, store))
        if theirs and own and theirs != own:
            raise UsageError(f"{other} has another tokenizer than {store}, so its classes are not the same tokens")
        held = other.tensors("train")["classes"]
        ids = held if ids is None else ids[torch.isin(ids, held)]
    return ids, ",".join(other.digest for other in others) or None


def _lacking(store: Store | EmbeddingStatistics, s: EmbeddingStatistics, metric: Metric) -> str | None:
    """Say which need of a metric is missing or of another version, or None if it can be computed."""
    for need in metric.needs:
        if not s.has(need):
            return _missing(store, need) if isinstance(store, Store) else f"no {need} in these statistics"
        stale = _stale(store, need)
        if stale:
            return stale
        if s.left_out and need in plugins().statistics and not plugins().statistics[need].per_class:
            return f"{need} was collected over all classes: not available with --min-count or --classes-of"
    return s.out_of_scale(metric.needs)


def _stale(store: Store | EmbeddingStatistics, need: str) -> str | None:
    """Say why an existing plugin statistic cannot be read, or None."""
    kind = plugins().statistics.get(need)
    if isinstance(store, Store):
        versions, made_by = store.manifest["statistics"], store.manifest.get("statistics_by", {})
    else:
        versions, made_by = store.versions, store.made_by
    if kind is None or need not in versions:
        return None
    differ = conflict(kind, versions[need], made_by.get(need))
    return f"{need}: the collection {differ}: collect again (--recollect)" if differ else None


def _by_metric(names: Sequence[str]) -> list[tuple[Metric, list[Measure]]]:
    chosen: dict[int, tuple[Metric, list[Measure]]] = {}
    known = plugins().measurements()
    for name in names:
        metric, measure = known[name]
        chosen.setdefault(id(metric), (metric, []))[1].append(measure)
    return list(chosen.values())


def _missing(store: Store, need: str) -> str:
    """Say why something that a metric needs is missing, and which command adds it."""
    if need == "validation":
        validation = store.manifest["coverage"]["validation"]
        if validation is None and "features" in store.identity:
            return "no validation text was given: the features have no validation_features and validation_labels"
        if validation is None and store.manifest["corpus"].get("validation") is None:
            return "no validation text was given: add one with --validation-text"
        local = not (store.identity.get("validation") or {"revision": None}).get("revision")
        # no path: notes are published
        return f"not validated yet: collapse collect MODEL --store STORE{' --validation-text FILES' if local else ''}"
    if need == "n_params":
        return "a features file does not say how many parameters its model has"
    if need in ("classifier", "bias", "means", "counts", "variances"):
        return f"no {need} in this store"
    return f"no {need} in this store: collect again with the plugin that fills it (--recollect)"
