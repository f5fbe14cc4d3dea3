"""Values, notes and exclusions of a measurement run. A metric that fails costs only its own values."""

import math
from collections.abc import Mapping, Sequence
from contextlib import suppress

import torch
from torch import Tensor

from collapse.core.progress import Report
from collapse.errors import PluginError, counted
from collapse.measurement.comparing import SAME_TEXTS
from collapse.measurement.results import Note
from collapse.numerics.lending import Lender
from collapse.numerics.pairs import SweepStopped, sweep
from collapse.numerics.reducing import Taken, Taking
from collapse.numerics.returned import as_class_values, as_influence, as_mask, as_number
from collapse.numerics.statistics import EmbeddingStatistics
from collapse.numerics.top_pairs import TopPairs
from collapse.plugin.asking import asked
from collapse.plugin.guarding import described, truncated
from collapse.plugin.metrics import CoV, Measure, Metric, Noted, limits_of
from collapse.plugin.plugin_manager import plugins
from collapse.plugin.reducers import Moments
from collapse.stores.provenance import without_folders
from collapse.stores.store import Store


class Found:
    """Collects values, notes and exclusions.

    Args:
        lender: Lends the statistics to metrics.
        by_class: Also keep the values behind each measurement, one per class.
        top: Also keep so many pairs of largest value of each pair metric.

    Attributes:
        by_class: By measurement, token ids and their values, nan for a class that the measurement excludes.
        top: By measurement of a pair metric, the pairs.
    """

    def __init__(self, lender: Lender, *, by_class: bool = False, top: int = 0) -> None:
        self.lender = lender
        self._wants_classes, self._most = by_class, top
        self.by_class: dict[str, tuple[Tensor, Tensor]] = {}
        self.top: dict[str, TopPairs] = {}
        self.values: dict[str, float | None] = {}
        self.excluded: dict[str, int] = {}
        self.influences: dict[str, Tensor] = {}
        self.notes: list[Note] = []

    @property
    def s(self) -> EmbeddingStatistics:
        """The statistics."""
        return self.lender.s

    def measure(
        self,
        chosen: Sequence[tuple[Metric, Sequence[Measure]]],
        lacking: Mapping[int, str | None],
        progress: Report | None,
    ) -> None:
        """Compute every measurement; ``lacking`` says why a metric is not available, by the metric's id()."""
        pairwise = []
        for metric, measures in chosen:
            reason = lacking[id(metric)]
            if reason:
                self.nothing(measures, "missing", reason)
            elif metric.kind == "scalar":
                self.scalar(metric, measures[0])
            elif metric.kind == "class":
                self.classwise(metric, measures)
            else:
                pairwise.append((metric, measures))
        if pairwise:
            self.pairwise(pairwise, progress)
        self.remark_on_singletons(chosen)
        self.remark_on_limits(chosen)

    def nothing(self, measures: Sequence[Measure], kind: str, text: str) -> None:
        for measure in measures:
            self.values[measure.name] = None
            self.notes.append(Note(measure.name, kind, text))

    def failed(self, metric: Metric, measures: Sequence[Measure], error: Exception) -> None:
        self.nothing(measures, "error", _failure(metric, metric.called, measures, error))

    def scalar(self, metric: Metric, measure: Measure) -> None:
        try:
            value = self.lender.call(metric.of)
            remark = None
            if isinstance(value, Noted):
                remark, value = Note(measure.name, str(value.kind), truncated(str(value.text))), value.value
            number = None if value is None else as_number(value)
            if number is None and remark is None:
                raise PluginError("it returned None: return collapse.Noted(None, reason) where there is no number")
            if self._wants_classes and metric.vector is not None:
                self.by_class[measure.name] = self.lender.call(metric.vector)
        except Exception as error:  # a plugin's function: it costs its own measurement only
            self.failed(metric, [measure], error)
            return
        if remark:
            self.notes.append(remark)
        self._keep(metric, measure, number)
        self._keep_influence(metric, measure)

    def _keep_influence(self, metric: Metric, measure: Measure) -> None:
        if metric.influence is None or self.values[measure.name] is None:
            return
        try:
            found = as_influence(self.lender.call(metric.influence))
        except Exception as error:  # a plugin's function: it costs the standard error only
            text = _failure(metric, f"influence= of {metric.called}", [measure], error)
            self.notes.append(Note(measure.name, "error", text))
            return
        if len(found) > 1:  # one chunk says nothing of how chunks differ
            self.influences[measure.name] = found

    def classwise(self, metric: Metric, measures: Sequence[Measure]) -> None:
        try:
            values_C = as_class_values(self.lender.call(metric.of), self.s.means)
            included_C = included(metric, values_C, self.lender)
            if callable(metric.over):
                self._remark_on_classes(measures, "over", ~included_C, "left out by over=")
            elif metric.over != "all":
                self._remark_on_zero_means(measures)
                without = self.s.has_direction & ~included_C
                self._remark_on_classes(measures, "zero_row", without, "with a classifier row of zero left out")
            some = values_C[included_C]
            taking = Taking(measures, self.s)
            if len(some):
                taking.add(some.unsqueeze(0), None)
            self._take(metric, measures, taking.taken(len(some)), self.s.n_classes, "class")
            if self._wants_classes:
                kept = values_C.where(included_C, math.nan)
                self.by_class |= {measure.name: (self.s.classes, kept) for measure in measures}
        except Exception as error:  # as above
            self.failed(metric, measures, error)

    def pairwise(self, wanted: Sequence[tuple[Metric, Sequence[Measure]]], progress: Report | None) -> None:
        while True:
            try:
                swept = sweep(self.s, wanted, by_class=self._wants_classes, top=self._most, progress=progress)
                break
            except SweepStopped as stopped:  # a metric changed the statistics: repeat the sweep without it
                self.lender.renew()
                metric, measures = stopped.wanted
                self.failed(metric, measures, stopped.error)
                wanted = [each for each in wanted if each[0] is not metric]
        for (metric, measures), result in zip(wanted, swept.metrics, strict=True):
            if isinstance(result, Exception):
                self.failed(metric, measures, result)
                continue
            if result.cast:
                text = f"{metric.called} returned {result.cast}, taken as float64: the numbers have its rounding"
                self.notes.extend(Note(measure.name, "cast", text) for measure in measures)
            if isinstance(metric.over, str) and metric.over not in ("all", "distinct"):
                self._remark_on_zero_means(measures)
            if result.by_class:
                self._keep_classes(measures, result.by_class)
            self.top |= {measure.name: result.top for measure in measures if result.top}
            for measure in self._take(metric, measures, result.taken, math.comb(self.s.n_classes, 2), "pair"):
                if metric.over == "distinct" and swept.close_pairs:
                    pairs = "pair of means is" if swept.close_pairs == 1 else "pairs of means are"
                    text = f"{swept.close_pairs:,} {pairs} closer than the rounding of {self.s.dtype} embeddings"
                    self.notes.append(Note(measure.name, "close", text))
                if rounded := swept.rounded.get(str(metric.over)):
                    text = f"{counted(rounded, 'pair')} left out that differ by no more than the rounding of float64"
                    self.notes.append(Note(measure.name, "rounded", text))

    def _keep_classes(self, measures: Sequence[Measure], by_class: Taken) -> None:
        for measure in measures:
            with suppress(Exception):  # a plugin's factor, whose failure _take() reports
                self.by_class[measure.name] = self.s.classes, by_class.numbers[measure.name] * self._factor(measure)

    def remark_on_singletons(self, chosen: Sequence[tuple[Metric, Sequence[Measure]]]) -> None:
        alone = int((self.s.counts == 1).sum())
        if not alone:
            return
        share = f"{alone:,} of {counted(self.s.n_classes, 'class')} ({alone / self.s.n_classes:.1%})"
        text = f"{share} have one sample, hence variance 0: rare classes look collapsed (see --min-count)"
        said = {note.measurement for note in self.notes if note.kind == "singletons"}  # their metric leaves them out
        for metric, measures in chosen:
            if "variances" in metric.needs:
                having = [m.name for m in measures if self.values.get(m.name) is not None and m.name not in said]
                self.notes.extend(Note(name, "singletons", text) for name in having)

    def remark_on_limits(self, chosen: Sequence[tuple[Metric, Sequence[Measure]]]) -> None:
        for metric, measures in chosen:
            for measure in measures:
                _, problem = limits_of(metric, measure, self.s.n_classes, self.s.dim)
                if problem:
                    self.notes.append(Note(measure.name, "error", problem))

    def _remark_on_zero_means(self, measures: Sequence[Measure]) -> None:
        without = ~self.s.has_direction
        self._remark_on_classes(measures, "zero_mean", without, "with a centred mean of zero left out")

    def _remark_on_classes(self, measures: Sequence[Measure], kind: str, which_C: Tensor, what: str) -> None:
        if classes := int(which_C.sum()):
            text = f"{counted(classes, 'class')} {what}"
            self.notes.extend(Note(measure.name, kind, text) for measure in measures)

    def _take(self, metric: Metric, measures: Sequence[Measure], taken: Taken, there: int, noun: str) -> list[Measure]:
        """Keep the numbers of measures over ``there`` classes or pairs; return the measures that have a number."""
        having = []
        for measure in measures:
            try:
                left_out = taken.left_out(measure.name)
            except Exception as error:  # a plugin's reducer
                self.failed(metric, [measure], error)
                continue
            if left_out:
                self.excluded[measure.name] = left_out
            if left_out == taken.values:
                kind = {"class": "no_classes", "pair": "no_pairs"}[noun]
                self.nothing([measure], kind, f"{counted(there, noun)}, of which none is left")
                continue
            try:
                number = taken.number(measure.name) * self._factor(measure)
            except Exception as error:  # a plugin's function
                self.failed(metric, [measure], error)
                continue
            reducer = taken.reducers[measure.name]
            if isinstance(measure, CoV) and isinstance(reducer, Moments):
                self._check_cov(measure, float(reducer.result()), float(reducer.std()))
            self._keep(metric, measure, number, _not_finite(taken, noun))
            having.append(measure)
        return having

    def _factor(self, measure: Measure) -> float:
        return 1.0 if measure.times is None else float(as_number(self.lender.call(asked(measure.times))))

    def _check_cov(self, measure: Measure, mean: float, std: float) -> None:
        if mean == 0:
            self.notes.append(Note(measure.name, "zero", "the mean is 0, so there is no std/mean: read the std"))
        elif abs(mean) < std / 50:
            text = f"the mean, {mean:.3g}, is nearly 0 beside the std, {std:.3g}: read the std"
            self.notes.append(Note(measure.name, "near_zero_mean", text))

    def _keep(self, metric: Metric, measure: Measure, value: float | int | None, why: str = "") -> None:
        if value is not None and not math.isfinite(value) and value != measure.towards:
            said = [note.kind for note in self.notes if note.measurement == measure.name]
            explained = "zero" in said or (said and metric.kind == "scalar")
            if not explained:  # other notes, such as of a dtype, say nothing of a missing number
                plugin, _ = plugins().blamed("metric", measure.name)
                text = without_folders(f"{plugin}came out as {value} in {metric.called}{why}")
                if metric.kind == "scalar":
                    text += ", which can say why: collapse.Noted(None, reason)"
                self.notes.append(Note(measure.name, "not_finite", text))
            value = None
        self.values[measure.name] = value


def _not_finite(taken: Taken, noun: str) -> str:
    """Say how many values are not numbers, and what leaves them out."""
    wrong, values = round(taken.not_finite), round(taken.weight)
    if not wrong:
        return ""
    return f": {wrong:,} of {counted(values, noun)} NaN or infinite (0/0?); over= can leave them out"


def _failure(metric: Metric, called: str, measures: Sequence[Measure], error: Exception) -> str:
    plugin, remedy = plugins().blamed("metric", measures[0].name)
    # notes are published with their numbers
    return without_folders(f"{plugin}{called} failed: {described(error)}{remedy}")


def same_texts(store: Store) -> list[Note]:
    """Return the note of a row whose validation text is its training text, or no note."""
    corpus = store.identity.get("corpus")
    if not corpus or corpus != store.identity.get("validation"):  # a features file has no texts
        return []
    return [Note("*", "same_texts", SAME_TEXTS)]


def included(metric: Metric, values_C: Tensor, lender: Lender) -> Tensor:
    """Return which classes a class metric's measures include, as its ``over`` declares; bool, shape (C,)."""
    if callable(metric.over):
        return as_mask(lender.call(metric.over), values_C)
    if metric.over == "all":
        return torch.ones_like(values_C, dtype=torch.bool)
    return lender.s.has_direction & ~(values_C.isnan() & (metric.over == "dual_directions"))
