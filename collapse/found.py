"""What is found as metrics are measured: values, notes and exclusions. A metric that fails costs its own only."""

import math
from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from collapse.errors import PluginError
from collapse.guarding import Wrote, described, shortened
from collapse.lending import Lender
from collapse.metrics import CoV, LogMeanExp, MeanLog, Measure, Metric, Noted, limit_at, limits_of
from collapse.pairs import SweepStopped, reduced, sweep
from collapse.provenance import without_folders
from collapse.reporting import Report
from collapse.results import Note
from collapse.returned import as_class_values, as_number
from collapse.statistics import EmbeddingStatistics


class Found:
    """Values, notes and exclusions as they are found.

    Args:
        lender: Lends the statistics to metrics.
        closely: Compare what the statistics hold after every metric.
    """

    def __init__(self, lender: Lender, *, closely: bool = False) -> None:
        self.lender, self.closely = lender, closely
        self.values: dict[str, float | None] = {}
        self.excluded: dict[str, int] = {}
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
        """Take every measurement; ``lacking`` says why one is not available, by the id of its metric."""
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
                continue
            self._look(metric, measures)
        for group in [[each] for each in pairwise] if self.closely else [pairwise]:
            if group:
                self.pairwise(group, progress)
                self._look(*group[0])
        self.remark_on_singletons(chosen)
        self.remark_on_limits(chosen)

    def _look(self, metric: Metric, measures: Sequence[Measure]) -> None:
        """Where we look closely, let a metric fail that wrote to the statistics behind torch's back."""
        written = self.lender.overwritten() if self.closely else []
        if written:
            self.lender.renew()
            names = {measure.name for measure in measures}
            self.notes = [note for note in self.notes if note.measurement not in names]
            self.failed(metric, measures, Wrote(written))

    def nothing(self, measures: Sequence[Measure], kind: str, text: str) -> None:
        for measure in measures:
            self.values[measure.name] = None
            self.notes.append(Note(measure.name, kind, text))

    def failed(self, metric: Metric, measures: Sequence[Measure], error: Exception) -> None:
        text = without_folders(described(error))  # notes are published with their numbers
        self.nothing(measures, "error", f"{metric.called} failed: {text}")

    def scalar(self, metric: Metric, measure: Measure) -> None:
        try:
            value = self.lender.call(metric.function)
            remark = None
            if value is None:
                raise PluginError("it returned None: return collapse.Noted(None, reason) where there is no number")
            if isinstance(value, Noted):
                remark, value = Note(measure.name, str(value.kind), shortened(str(value.text))), value.value
            number = None if value is None else as_number(value)
        except Exception as error:  # a plugin's function: it costs its own measurement only
            self.failed(metric, [measure], error)
            return
        if remark:
            self.notes.append(remark)
        self._keep(measure, number)

    def classwise(self, metric: Metric, measures: Sequence[Measure]) -> None:
        try:
            values_C = as_class_values(self.lender.call(metric.function), self.s.means)
            if metric.over != "all":
                kept = self.s.has_direction
                if not bool(kept.all()):
                    self._remark_on_zero_means(measures)
                if metric.over == "dual_directions" and bool((lacking := kept & values_C.isnan()).any()):
                    kept = kept & ~lacking
                    text = f"{counted(int(lacking.sum()), 'class')} with a classifier row of zero left out"
                    self.notes.extend(Note(measure.name, "zero_row", text) for measure in measures)
                values_C = values_C[kept]
            if not len(values_C):
                self.nothing(measures, "no_classes", f"{counted(self.s.n_classes, 'class')}, of which none is left")
                return
            for measure in measures:
                self._reduce(measure, values_C, float(values_C.mean()), float(values_C.std(correction=0)))
        except Exception as error:  # as above
            self.failed(metric, measures, error)

    def pairwise(self, wanted: Sequence[tuple[Metric, Sequence[Measure]]], progress: Report | None) -> None:
        while True:
            try:
                swept = sweep(self.s, wanted, progress=progress)
                break
            except SweepStopped as stopped:  # the sweep's statistics are spoiled: again, without who did it
                self.lender.renew()
                metric, measures = stopped.wanted
                self.failed(metric, measures, stopped.error)
                wanted = [each for each in wanted if each[0] is not metric]
        for (metric, measures), result in zip(wanted, swept.metrics, strict=True):
            if isinstance(result, Exception):
                self.failed(metric, measures, result)
                continue
            self.excluded |= result.left_out
            if result.cast:
                text = f"{metric.called} returned {result.cast}, taken as float64: the numbers have its rounding"
                self.notes.extend(Note(measure.name, "cast", text) for measure in measures)
            if metric.over not in ("all", "distinct") and not bool(self.s.has_direction.all()):
                self._remark_on_zero_means(measures)
            all_pairs = math.comb(self.s.n_classes, 2)
            for measure in measures:
                if result.left_out.get(measure.name, 0) >= all_pairs:
                    self.nothing([measure], "no_pairs", f"{counted(all_pairs, 'pair')}, of which none is left")
                    continue
                try:
                    value = result.values[measure.name] * self._factor(measure)
                except Exception as error:  # a plugin's function
                    self.failed(metric, [measure], error)
                    continue
                if isinstance(measure, CoV):
                    self._check_cov(measure, result.mean, result.std)
                self._keep(measure, value)
                if metric.over == "distinct" and swept.close_pairs:
                    pairs = "pair of means is" if swept.close_pairs == 1 else "pairs of means are"
                    text = f"{swept.close_pairs:,} {pairs} closer than the rounding of {self.s.dtype} embeddings"
                    self.notes.append(Note(measure.name, "close", text))
                if rounded := swept.rounded.get(metric.over):
                    text = f"{counted(rounded, 'pair')} left out that differ by no more than the rounding of float64"
                    self.notes.append(Note(measure.name, "rounded", text))

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

    def remark_on_limits(self, chosen: Sequence[tuple[Metric, Sequence[Measure]]]) -> None:
        for metric, measures in chosen:
            for measure in measures:
                _, problem = limits_of(metric, measure, self.s.n_classes, self.s.dim)
                if problem:
                    self.notes.append(Note(measure.name, "error", problem))

    def _remark_on_zero_means(self, measures: Sequence[Measure]) -> None:
        text = f"{counted(int((~self.s.has_direction).sum()), 'class')} with a centred mean of zero left out"
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
            s = limit_at(measure.exponent, self.s.n_classes, self.s.dim) or 0.0
            total = float(torch.logsumexp(values_C * s, dim=0)) - math.log(len(values_C))
            value = total / s if s > 0 else math.nan
        else:
            value = reduced(measure, mean, std)
        self._keep(measure, value * self._factor(measure))

    def _factor(self, measure: Measure) -> float:
        return 1.0 if measure.times is None else float(as_number(self.lender.call(measure.times)))

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


def counted(number: int, noun: str) -> str:
    """A number and its noun.

    >>> counted(1, "pair"), counted(2000, "class")
    ('1 pair', '2,000 classes')
    """
    plural = "es" if noun.endswith("s") else "s"
    return f"{number:,} {noun}{'' if number == 1 else plural}"
