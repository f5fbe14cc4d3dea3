"""Store × metrics → a row. A metric that fails costs its own measurements and a note, never the run."""

from collections.abc import Iterable, Sequence
from typing import Any

from torch import Tensor

from collapse.by_class import measure_by_class
from collapse.comparing import about
from collapse.errors import CollapseError, UsageError, near_names
from collapse.filling import conflict
from collapse.found import Found
from collapse.guarding import outside_inference_mode
from collapse.lending import Lender, copied
from collapse.metrics import Measure, Metric
from collapse.models import pick_device
from collapse.plugin_manager import plugins
from collapse.precision import exact_arithmetic
from collapse.reporting import Report
from collapse.results import Row
from collapse.returned import as_class_values, as_number
from collapse.statistics import EmbeddingStatistics
from collapse.store import Store

_RAW = ("counts", "variances")


@outside_inference_mode
@exact_arithmetic()
def measure(
    store: Store | EmbeddingStatistics,
    *,
    metrics: Iterable[str] | None = None,
    min_count: int = 1,
    device: str | None = None,
    progress: Report | None = None,
) -> Row:
    """Measure a store with the registered metrics.

    Args:
        store: A store, or bare statistics.
        metrics: Measurement names or prefixes (``gnc2``); None means all.
        min_count: Keep the classes with at least this many samples; μ̄ is over the classes kept. NC4 is not touched.
        device: Where to compute; None for where the statistics are.
        progress: Called as progress(what, done, total).

    Returns:
        A row; a measurement that cannot be had is None, with a note that says why.

    Raises:
        UsageError: An unknown metric or device.
        CollapseError: Fewer than two classes are left, or the store is not whole or was altered.
    """
    names = plugins().select(metrics)
    chosen = _by_metric(names)
    lender = _lender(store, min_count, device, [metric for metric, _ in chosen])
    lacking = {id(metric): _lacking(store, lender.s, metric) for metric, _ in chosen}
    found = Found(lender)
    found.measure(chosen, lacking, progress)
    # behind torch's back, by whom is not known, or perhaps before another's open write: once more, looking after each
    if lender.renewed or lender.overwritten():
        lender.renew()
        found = Found(lender, closely=True)
        found.measure(chosen, lacking, progress)
    s = lender.s
    of: dict[str, Any] = {"model": "", "revision": None, "corpus": "", "store": "", "dtype": s.dtype}
    if isinstance(store, Store):
        of = about(store)
    return Row(
        **of,
        min_count=s.min_count,
        classes=s.n_classes,
        dim=s.dim,
        samples=int(s.counts.sum()),
        measurements={name: found.values.get(name) for name in names},
        versions={measure.name: metric.version for metric, measures in chosen for measure in measures},
        excluded=found.excluded,
        notes=tuple(found.notes),
    )


@outside_inference_mode
@exact_arithmetic()
def vectors(store: Store | EmbeddingStatistics, name: str, *, min_count: int = 1) -> tuple[Tensor, Tensor]:
    """The values behind a measurement, one a class.

    Args:
        store: A store, or bare statistics.
        name: A measurement of a class metric, a pair metric (its mean, std, ... over each class's pairs) or one
            that declares a vector (nc4.agreement, val_loss: one a label of the validation text); or
            ``counts``, ``variances``.
        min_count: As in :func:`measure`.

    Returns:
        Token ids and values, both of the same length.

    Raises:
        UsageError: There is no such measurement, or it is one number only.
        CollapseError: The store lacks what it needs.
    """
    known = plugins().measurements()
    if name not in known and name not in _RAW:
        raise UsageError(f"no metric is called {name!r}; {near_names(name, {*known, *_RAW})}")
    lender = _lender(store, min_count, None, [] if name in _RAW else [known[name][0]])
    s = lender.s
    if name in _RAW:
        return s.classes, getattr(s, name)
    metric, measure = known[name]
    lacking = _lacking(store, s, metric)
    if lacking:
        raise CollapseError(f"{name} cannot be had: {lacking}")
    if metric.kind == "class":
        return s.classes, as_class_values(lender.call(metric.function), s.means)
    if metric.kind == "pair":
        values = measure_by_class(s, metric, measure)
        if measure.times is not None:
            values = values * float(as_number(lender.call(measure.times)))
        return s.classes, values
    if metric.vector is None:
        having = [each for each, (m, _) in known.items() if m.kind != "scalar" or m.vector]
        raise UsageError(f"{name} is one number, not one a class; {near_names(name, {*having, *_RAW})}")
    ids, values = lender.call(metric.vector)
    return ids, values


def _lender(
    store: Store | EmbeddingStatistics, min_count: int, device: str | None, metrics: Sequence[Metric]
) -> Lender:
    def fresh() -> EmbeddingStatistics:
        s = store.statistics(fresh=True) if isinstance(store, Store) else copied(store)
        s = s.keep(min_count)
        return s.to(pick_device(device)) if device else s

    return Lender(fresh, [need for metric in metrics for need in metric.needs if not _stale(store, need)])


def _lacking(store: Store | EmbeddingStatistics, s: EmbeddingStatistics, metric: Metric) -> str | None:
    """Why a metric cannot be computed, or None: what it needs is not there, or of another version."""
    for need in metric.needs:
        if not s.has(need):
            return store.missing(need) if isinstance(store, Store) else f"no {need} in these statistics"
        stale = _stale(store, need)
        if stale:
            return stale
        if s.left_out and need in plugins().statistics and not plugins().statistics[need].per_class:
            return f"{need} was collected over all classes: not available with --min-count"
    return s.out_of_scale(metric.needs)


def _stale(store: Store | EmbeddingStatistics, need: str) -> str | None:
    """Why a plugin statistic cannot be read although it is there, or None."""
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
