"""Values, notes and exclusions of a measurement run. A metric that fails costs only its own values."""

import math
from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from collapse.core.progress import Report
from collapse.errors import counted
from collapse.measurement.comparing import SAME_TEXTS
from collapse.measurement.results import Note
from collapse.numerics.pairs import Sweep, Swept, sweep
from collapse.numerics.reducing import Tally
from collapse.numerics.statistics import EmbeddingStatistics
from collapse.numerics.tiles import NEAR
from collapse.numerics.top_pairs import TopPairs
from collapse.numerics.values import Values, as_number, as_tensor
from collapse.plugin.guarding import Failed, described, truncated
from collapse.plugin.metrics import CoV, Measure, Metric, Noted, limits_of
from collapse.plugin.plugin_manager import plugins
from collapse.stores.provenance import without_folders
from collapse.stores.store import Store

_DIRECTIONS = {"cosine", "unit_sqdist"}
"""Fields that are NaN for a centred mean of zero."""

Chosen = Sequence[tuple[Metric, Sequence[Measure]]]


class Found:
    """Collects values, notes and exclusions.

    Args:
        lent: The values that metrics ask for.
        by_class: Also keep the values behind each measurement, one per class.
        top: Also keep so many pairs of largest value of each pair metric.

    Attributes:
        by_class: By measurement, token ids and their values, nan for a class that the measurement excludes.
        top: By measurement of a pair metric, the pairs.
        influences: By measurement with a standard error, the influence of each validation chunk or group.
    """

    def __init__(self, lent: Values, *, by_class: bool = False, top: int = 0) -> None:
        self.lent = lent
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
        return self.lent.s

    def measure(self, chosen: Chosen, lacking: Mapping[int, str | None], progress: Report | None) -> None:
        """Compute every measurement; ``lacking`` says why a metric is not available, by the metric's id()."""
        pairwise = []
        for metric, measures in chosen:
            reason = lacking[id(metric)]
            try:
                if reason:
                    self._nothing(measures, "missing", reason)
                elif metric.kind == "scalar":
                    self._scalar(metric, measures[0])
                elif metric.kind == "class":
                    self._classwise(metric, measures)
                else:
                    pairwise.append((metric, measures))
            except Failed as error:  # it costs its own measurements only
                self.failed(metric, measures, error)
        if pairwise:
            swept = sweep(self.lent, pairwise, by_class=self._wants_classes, top=self._most, progress=progress)
            for each in swept.metrics:
                self._pairwise(each, swept)
        self._remark_on_singletons(chosen)
        self._remark_on_limits(chosen)

    def _nothing(self, measures: Sequence[Measure], kind: str, text: str) -> None:
        for measure in measures:
            self.values[measure.name] = None
            self.notes.append(Note(measure.name, kind, text))

    def failed(self, metric: Metric, measures: Sequence[Measure], error: Failed) -> None:
        """Report that a function failed; its measurements have no value."""
        self._nothing(measures, "error", failure(metric, error))

    def _remark(self, measures: Sequence[Measure], remark: Noted) -> None:
        text, kind = truncated(str(remark.text)), str(remark.kind)
        self.notes.extend(Note(measure.name, kind, text) for measure in measures)

    def _scalar(self, metric: Metric, measure: Measure) -> None:
        value = self.lent.value(metric.function)
        remark = value if isinstance(value, Noted) else None
        value = value.value if isinstance(value, Noted) else value
        if value is None and remark is None:
            raise Failed(metric.function, "it returned None: return collapse.Noted(None, reason) without a number")
        number = None if value is None else as_number(metric.function, value)
        if self._wants_classes and metric.vector is not None:
            self.by_class[measure.name] = self.lent.value(metric.vector)
        if remark:
            self._remark([measure], remark)
        self._keep(metric, measure, number)
        if metric.standard_error and self.values[measure.name] is not None:
            try:
                influence = self.lent.influence(metric)
            except Failed as error:  # it costs the standard error only
                self.notes.append(Note(measure.name, "error", f"no standard error: {failure(metric, error)}"))
                return
            if influence is not None and len(influence) > 1:  # one chunk says nothing of how chunks differ
                self.influences[measure.name] = influence

    def _classwise(self, metric: Metric, measures: Sequence[Measure]) -> None:
        value = self.lent.value(metric.function)
        if isinstance(value, Noted):
            if value.value is None:
                self._nothing(measures, value.kind, value.text)
                return
            self._remark(measures, value)
            value = value.value
        like = self.s.means[:, 0]
        values_C = as_tensor(metric.function, value, like, like.shape)
        tally = self._tally(metric, measures, values_C)
        finite_C = values_C.isfinite()
        if not bool(finite_C.all()):
            self._remark_on_classes(measures, ~finite_C, tally)
        self._take(metric, measures, tally, "class")
        if self._wants_classes:
            kept = values_C.where(finite_C, math.nan)
            self.by_class |= {measure.name: (self.s.classes, kept) for measure in measures}

    def _tally(self, metric: Metric, measures: Sequence[Measure], values_C: Tensor) -> Tally:
        try:
            tally = Tally(measures, self.s.n_classes, self.s.dim, values_C.device)
            tally.add(values_C.unsqueeze(0))
        except Exception as error:  # a plugin's measure
            raise Failed(metric.function, described(error)) from error
        return tally

    def _remark_on_classes(self, measures: Sequence[Measure], without_C: Tensor, tally: Tally) -> None:
        """Say which classes have no finite value: those whose centred mean or classifier row is zero, and others."""
        zero_mean_C = without_C & (self.s.norms == 0)
        rows = self.s.classifier
        zero_row_C = torch.zeros_like(without_C) if rows is None else without_C & ~zero_mean_C & ~rows.any(dim=1)
        known = {
            "zero_mean": (zero_mean_C, "with a centred mean of zero"),
            "zero_row": (zero_row_C, "with a classifier row of zero"),
        }
        for kind, (which_C, what) in known.items():
            if number := int(which_C.sum()):
                text = f"{counted(number, 'class')} {what} left out"
                self.notes.extend(Note(measure.name, kind, text) for measure in measures)
        others = int((without_C & ~zero_mean_C & ~zero_row_C).sum())
        self._remark_on_others(measures, others, tally, "class")

    def _remark_on_others(self, measures: Sequence[Measure], others: int, tally: Tally, noun: str) -> None:
        if others > 0:
            parts = [
                f"{number:,} {what}" for number, what in ((tally.nan, "NaN"), (tally.infinite, "infinite")) if number
            ]
            text = f"{counted(tally.nan + tally.infinite, noun)} left out: {', '.join(parts)}"
            self.notes.extend(Note(measure.name, "left_out", text) for measure in measures)

    def _pairwise(self, swept: Swept, found: Sweep) -> None:
        metric, measures, tally = swept.metric, swept.measures, swept.all
        if swept.failed is not None:
            self.failed(metric, measures, swept.failed)
            return
        if swept.remark is not None:
            if swept.remark.value is None:
                self._nothing(measures, swept.remark.kind, swept.remark.text)
                return
            self._remark(measures, swept.remark)
        if swept.by_class is not None:
            for measure in measures:
                self.by_class[measure.name] = self.s.classes, swept.by_class.numbers(measure.name)
        self.top |= {measure.name: swept.top for measure in measures if swept.top}
        having = self._take(metric, measures, tally, "pair")
        self._remark_on_pairs(metric, having, tally, found)

    def _remark_on_pairs(self, metric: Metric, measures: Sequence[Measure], tally: Tally, found: Sweep) -> None:
        """Say which pairs have no finite value, and which are closer than what can be told apart."""
        fields = metric.reads & {*NEAR, *_DIRECTIONS} | ({"sqdist"} if "distance" in metric.reads else set())
        left_out, explained = tally.nan + tally.infinite, 0
        C, zero = self.s.n_classes, int((self.s.norms == 0).sum())
        if left_out and zero and fields & _DIRECTIONS:
            text = f"{counted(zero, 'class')} with a centred mean of zero left out"
            self.notes.extend(Note(measure.name, "zero_mean", text) for measure in measures)
            explained += math.comb(C, 2) - math.comb(C - zero, 2)
        for name in fields & {*NEAR}:
            explained += found.zeros[name]
            if (rounded := found.rounded[name]) and left_out:
                text = f"{counted(rounded, 'pair')} left out that differ by no more than the rounding of float64"
                self.notes.extend(Note(measure.name, "rounded", text) for measure in measures)
        if "sqdist" in fields and found.close_pairs:
            pairs = "pair of means is" if found.close_pairs == 1 else "pairs of means are"
            text = f"{found.close_pairs:,} {pairs} closer than the rounding of {self.s.dtype} embeddings"
            self.notes.extend(Note(measure.name, "close", text) for measure in measures)
        self._remark_on_others(measures, left_out - explained, tally, "pair")

    def _remark_on_singletons(self, chosen: Chosen) -> None:
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

    def _remark_on_limits(self, chosen: Chosen) -> None:
        for metric, measures in chosen:
            for measure in measures:
                _, problem = limits_of(metric, measure, self.s.n_classes, self.s.dim)
                if problem:
                    self.notes.append(Note(measure.name, "error", problem))

    def _take(self, metric: Metric, measures: Sequence[Measure], tally: Tally, noun: str) -> list[Measure]:
        """Keep the numbers of measures; return the measures that have a number."""
        having = []
        for measure in measures:
            try:
                left_out, number = tally.left_out(measure.name), tally.number(measure.name)
            except Exception as error:  # a plugin's measure
                text = f"the measure {measure.name}: {described(error)}"
                self.failed(metric, [measure], Failed(type(measure), text))
                continue
            # the notes on a class metric say which classes have no finite value
            if counted_out := left_out if noun == "pair" else left_out - tally.nan - tally.infinite:
                self.excluded[measure.name] = counted_out
            if left_out == tally.added:
                there = counted(tally.added, noun)
                self._nothing(
                    [measure], {"class": "no_classes", "pair": "no_pairs"}[noun], f"{there}, of which none is left"
                )
                continue
            if isinstance(measure, CoV):
                n, mean, squares = tally.state(measure.name)[:, 0].tolist()
                self._check_cov(measure, mean, math.sqrt(squares / n))
            self._keep(metric, measure, number)
            having.append(measure)
        return having

    def _check_cov(self, measure: Measure, mean: float, std: float) -> None:
        if mean == 0:
            self.notes.append(Note(measure.name, "zero", "the mean is 0, so there is no std/mean: read the std"))
        elif abs(mean) < std / 50:
            text = f"the mean, {mean:.3g}, is nearly 0 beside the std, {std:.3g}: read the std"
            self.notes.append(Note(measure.name, "near_zero_mean", text))

    def _keep(self, metric: Metric, measure: Measure, value: float | int | None) -> None:
        if value is not None and not math.isfinite(value) and value != measure.towards:
            said = [note.kind for note in self.notes if note.measurement == measure.name]
            explained = "zero" in said or (said and metric.kind == "scalar")
            if not explained:  # other notes say nothing of a missing number
                plugin, _ = plugins().blamed(metric.module)
                text = without_folders(f"{plugin}came out as {value} in {metric.called}")
                if metric.kind == "scalar":
                    text += ", which can say why: collapse.Noted(None, reason)"
                self.notes.append(Note(measure.name, "not_finite", text))
            value = None
        self.values[measure.name] = value


def failure(metric: Metric, error: Failed) -> str:
    """Describe a failure: plugin, function and remedy; notes are published, so without folders."""
    plugin, remedy = plugins().blamed(error.module)
    if not plugin:  # a function of another module, or of torch
        plugin, remedy = plugins().blamed(metric.module)
    return without_folders(f"{plugin}{error}{remedy}")


def same_texts(store: Store) -> list[Note]:
    """Return the note of a row whose validation text is its training text, or no note."""
    corpus = store.identity.get("corpus")
    if not corpus or corpus != store.identity.get("validation"):  # a features file has no texts
        return []
    return [Note("*", "same_texts", SAME_TEXTS)]
