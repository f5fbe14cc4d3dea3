"""Store × metrics → a row. A metric that fails costs its own measurements and a note, never the run."""

import math
from collections.abc import Iterable, Sequence
from typing import Any

import torch
from torch import Tensor

from collapse.errors import CollapseError, UsageError, near_names
from collapse.metrics import CoV, LogMeanExp, MeanLog, Measure, Metric, Noted
from collapse.pairs import reduced, sweep
from collapse.plugin_manager import plugins
from collapse.provenance import without_folders
from collapse.reporting import Report
from collapse.results import Note, Row
from collapse.statistics import EmbeddingStatistics
from collapse.store import Store

_RAW = ("counts", "variances")


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
        UsageError: An unknown metric.
        CollapseError: Fewer than two classes are left, or the store is not whole or was altered.
    """
    names = plugins().select(metrics)
    s = store if isinstance(store, EmbeddingStatistics) else store.statistics()
    s = s.keep(min_count)
    if device:
        s = s.to(device)
    found = _Found(s)
    chosen = _by_metric(names)
    for need in {need for metric, _ in chosen if not _lacking(store, s, metric) for need in metric.needs}:
        if need in s.extra:
            s.statistic(need)  # read before anything is computed: an altered file is no metric's failure
    for metric, measures in chosen:
        reason = _lacking(store, s, metric)
        if reason:
            found.nothing(measures, "missing", reason)
        elif metric.kind == "scalar":
            found.scalar(metric, measures[0])
        elif metric.kind == "class":
            found.classwise(metric, measures)
    pairwise = [(m, measures) for m, measures in chosen if m.kind == "pair" and not _lacking(store, s, m)]
    if pairwise:
        found.pairwise(pairwise, progress)
    found.remark_on_singletons(chosen)
    about: dict[str, Any] = {"model": "", "revision": None, "corpus": "", "store": ""}
    if isinstance(store, Store):
        about = {
            "model": store.model,
            "revision": store.revision,
            "corpus": store.corpus,
            "store": store.digest,
        }
    return Row(
        **about,
        min_count=min_count,
        classes=s.n_classes,
        dim=s.dim,
        samples=int(s.counts.sum()),
        measurements={name: found.values.get(name) for name in names},
        versions={measure.name: metric.version for metric, measures in chosen for measure in measures},
        excluded=found.excluded,
        notes=tuple(found.notes),
    )


def vectors(store: Store | EmbeddingStatistics, name: str, *, min_count: int = 1) -> tuple[Tensor, Tensor]:
    """The values behind a measurement, one a class.

    Args:
        store: A store, or bare statistics.
        name: A measurement of a class metric, a pair metric (the mean over the other classes) or one that declares a
            vector (nc4.agreement, val_loss: one a label of the validation text); or ``counts``, ``variances``.
        min_count: As in :func:`measure`.

    Returns:
        Token ids and values, both of the same length.

    Raises:
        UsageError: There is no such measurement, or it is one number only.
        CollapseError: The store lacks what it needs.
    """
    s = (store if isinstance(store, EmbeddingStatistics) else store.statistics()).keep(min_count)
    if name in _RAW:
        return s.classes, getattr(s, name)
    known = plugins().measurements()
    if name not in known:
        raise UsageError(f"no metric is called {name!r}; {near_names(name, {*known, *_RAW})}")
    metric, measure = known[name]
    lacking = _lacking(store, s, metric)
    if lacking:
        raise CollapseError(f"{name} cannot be had: {lacking}")
    if metric.kind == "class":
        return s.classes, metric.function(s)
    if metric.kind == "pair":
        swept = sweep(s, [(metric, [measure])]).metrics[0]
        if isinstance(swept, Exception):
            raise swept
        return s.classes, swept.rows
    if metric.vector is None:
        having = [each for each, (m, _) in known.items() if m.kind != "scalar" or m.vector]
        raise UsageError(f"{name} is one number, not one a class; {near_names(name, {*having, *_RAW})}")
    ids, values = metric.vector(s)
    return ids, values


def _lacking(store: Store | EmbeddingStatistics, s: EmbeddingStatistics, metric: Metric) -> str | None:
    """Why a metric cannot be computed, or None: what it needs is not there, or of another version."""
    for need in metric.needs:
        if not s.has(need):
            return store.missing(need) if isinstance(store, Store) else f"no {need} in these statistics"
        kind = plugins().statistics.get(need)
        if kind is None or not isinstance(store, Store):
            continue
        held = store.manifest["statistics"].get(need)
        if held != kind.version:
            return f"the store holds {need} version {held}, the plugin is at version {kind.version}: use --recollect"
    return None


class _Found:
    """Values, notes and exclusions as they are found."""

    def __init__(self, s: EmbeddingStatistics) -> None:
        self.s = s
        self.values: dict[str, float | None] = {}
        self.excluded: dict[str, int] = {}
        self.notes: list[Note] = []

    def nothing(self, measures: Sequence[Measure], kind: str, text: str) -> None:
        for measure in measures:
            self.values[measure.name] = None
            self.notes.append(Note(measure.name, kind, text))

    def failed(self, metric: Metric, measures: Sequence[Measure], error: Exception) -> None:
        kind = "" if isinstance(error, CollapseError) else f"{type(error).__name__}: "
        text = without_folders(str(error).strip().split("\n")[0])  # notes are published with their numbers
        self.nothing(measures, "error", f"{metric.module}.{metric.function.__name__} failed: {kind}{text}")

    def scalar(self, metric: Metric, measure: Measure) -> None:
        try:
            value = metric.function(self.s)
            if isinstance(value, Noted):
                self.notes.append(Note(measure.name, value.kind, value.text))
                value = value.value
            number = None if value is None else value if isinstance(value, int) else float(value)
        except Exception as error:  # a plugin's function: it costs its own measurement only
            self.failed(metric, [measure], error)
            return
        self._keep(measure, number)

    def classwise(self, metric: Metric, measures: Sequence[Measure]) -> None:
        try:
            values_C = metric.function(self.s)
            if not isinstance(values_C, Tensor) or values_C.shape != (self.s.n_classes,):
                shape = tuple(values_C.shape) if isinstance(values_C, Tensor) else type(values_C).__name__
                raise CollapseError(f"a class metric must return shape ({self.s.n_classes},), not {shape}")
            if metric.over != "all":
                kept = self.s.has_direction
                if not bool(kept.all()):
                    self._remark_on_zero_means(measures)
                    values_C = values_C[kept]
            for measure in measures:
                mean, std = float(values_C.double().mean()), float(values_C.double().std(correction=0))
                self._reduce(measure, values_C.double(), mean, std)
        except Exception as error:  # as above
            self.failed(metric, measures, error)

    def pairwise(self, wanted: Sequence[tuple[Metric, Sequence[Measure]]], progress: Report | None) -> None:
        swept = sweep(self.s, wanted, progress=progress)
        for (metric, measures), result in zip(wanted, swept.metrics, strict=True):
            if isinstance(result, Exception):
                self.failed(metric, measures, result)
                continue
            self.excluded |= result.left_out
            if metric.over not in ("all", "distinct") and not bool(self.s.has_direction.all()):
                self._remark_on_zero_means(measures)
            for measure in measures:
                value = result.values[measure.name]
                if measure.times is not None:
                    value *= float(measure.times(self.s))
                if isinstance(measure, CoV):
                    self._check_cov(measure, result.mean, result.std)
                self._keep(measure, value)
                if metric.over == "distinct" and swept.close_pairs:
                    pairs = "pair of means is" if swept.close_pairs == 1 else "pairs of means are"
                    text = f"{swept.close_pairs:,} {pairs} closer than the rounding of {self.s.dtype} embeddings"
                    self.notes.append(Note(measure.name, "close", text))

    def remark_on_singletons(self, chosen: Sequence[tuple[Metric, Sequence[Measure]]]) -> None:
        alone = int((self.s.counts == 1).sum())
        if not alone:
            return
        share = f"{alone:,} of {self.s.n_classes:,} classes ({alone / self.s.n_classes:.1%})"
        text = f"{share} have one sample, hence variance 0: rare classes look collapsed (see --min-count)"
        for metric, measures in chosen:
            if "variances" in metric.needs:
                self.notes.extend(
                    Note(m.name, "singletons", text) for m in measures if self.values.get(m.name) is not None
                )

    def _remark_on_zero_means(self, measures: Sequence[Measure]) -> None:
        zero = int((~self.s.has_direction).sum())
        text = f"{zero:,} class{'es' if zero > 1 else ''} with a centred mean of zero left out"
        self.notes.extend(Note(measure.name, "zero_mean", text) for measure in measures)

    def _reduce(self, measure: Measure, values_C: Tensor, mean: float, std: float) -> None:
        if isinstance(measure, CoV):
            self._check_cov(measure, mean, std)
        if isinstance(measure, MeanLog):
            positive = values_C[values_C != 0]
            if len(positive) < len(values_C):
                self.excluded[measure.name] = len(values_C) - len(positive)
            value = float(positive.log().mean())
        elif isinstance(measure, LogMeanExp):
            s = measure.exponent(self.s.n_classes, self.s.dim)
            total = float(torch.logsumexp(values_C * s, dim=0)) - math.log(len(values_C))
            value = total / s if s > 0 else math.nan
        else:
            value = reduced(measure, mean, std)
        if measure.times is not None:
            value *= float(measure.times(self.s))
        self._keep(measure, value)

    def _check_cov(self, measure: Measure, mean: float, std: float) -> None:
        if mean == 0:
            self.notes.append(Note(measure.name, "zero", "the mean is 0, so there is no std/mean: read the std"))
        elif abs(mean) < std / 50:
            text = f"the mean, {mean:.3g}, is nearly 0 beside the std, {std:.3g}: read the std"
            self.notes.append(Note(measure.name, "near_zero_mean", text))

    def _keep(self, measure: Measure, value: float | int | None) -> None:
        if value is not None and not math.isfinite(value) and value != measure.towards:
            if not any(note.measurement == measure.name for note in self.notes):
                self.notes.append(Note(measure.name, "not_finite", f"came out as {value}"))
            value = None
        self.values[measure.name] = value


def _by_metric(names: Sequence[str]) -> list[tuple[Metric, list[Measure]]]:
    chosen: dict[int, tuple[Metric, list[Measure]]] = {}
    known = plugins().measurements()
    for name in names:
        metric, measure = known[name]
        chosen.setdefault(id(metric), (metric, []))[1].append(measure)
    return list(chosen.values())
