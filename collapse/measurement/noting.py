"""The numbers, notes and exclusions of a row, from what its metrics gave."""

import math
from dataclasses import dataclass, field

from torch import Tensor

from collapse.errors import counted
from collapse.measurement.comparing import SAME_TEXTS
from collapse.measurement.rows import Note
from collapse.numerics.evaluating import Evaluated, Evaluation
from collapse.numerics.statistics import EmbeddingStatistics
from collapse.plugin.guarding import Failed, truncated
from collapse.plugin.metrics import CoV, Measure, Metric, limits_of
from collapse.plugin.plugin_manager import plugins
from collapse.stores.provenance import without_folders
from collapse.stores.store import Store

_DIRECTIONS = {"cosine", "unit_sqdist"}
"""Fields that are NaN for a centred mean of zero."""

_EXPLAINED = {*_DIRECTIONS, "sqdist", "distance", "uncentred_unit_sqdist"}
"""Fields for which a pair has no value for a known reason."""

_NEAR_ZERO = 50
"""A coefficient of variation above it says little: the mean is nearly 0."""


@dataclass
class Numbers:
    """The numbers of a row.

    Attributes:
        values: One number per measurement, or None.
        excluded: Number of excluded classes or pairs of classes, by measurement, if there are any.
        notes: Remarks on measurements.
    """

    values: dict[str, int | float | None] = field(default_factory=dict)
    excluded: dict[str, int] = field(default_factory=dict)
    notes: list[Note] = field(default_factory=list)

    def note(self, name: str, kind: str, text: str) -> None:
        """Add a note on a measurement."""
        self.notes.append(Note(name, kind, text))


def numbers_of(found: Evaluation, s: EmbeddingStatistics) -> Numbers:
    """Return the numbers of an evaluation with their notes."""
    made = Numbers()
    for each in found.metrics:
        reasons = _left_out(each, found, s)
        for measure in each.measures:
            made.values[measure.name] = _number(made, each, measure, reasons)
            if isinstance(each.influence, Failed):
                text = f"no standard error: {failure(each.metric, each.influence)}"
                made.note(measure.name, "error", text)
            _, problem = limits_of(each.metric, measure, s.n_classes, s.dim)
            if problem:
                made.note(measure.name, "error", problem)
    _note_singletons(made, found, s)
    return made


def _number(made: Numbers, each: Evaluated, measure: Measure, reasons: dict[str, str]) -> int | float | None:
    """Return a measurement's number, or None if it has none, and note why."""
    name, metric = measure.name, each.metric
    if each.missing is not None:
        made.note(name, "missing", each.missing)
        return None
    if name in each.failed:
        made.note(name, "error", failure(metric, each.failed[name]))
        return None
    if each.remark is not None:
        made.note(name, str(each.remark.kind), truncated(str(each.remark.text)))
    if name not in each.numbers:
        return None
    for kind, text in reasons.items():
        made.note(name, kind, text)
    number, noun = each.numbers[name], metric.kind
    if metric.kind != "scalar":
        # the notes on a class metric say which classes have no finite value
        excluded = each.left_out[name] - (each.nan + each.infinite if noun == "class" else 0)
        if excluded:
            made.excluded[name] = excluded
        if each.left_out[name] == each.added:
            kind = "no_classes" if noun == "class" else "no_pairs"
            made.note(name, kind, f"{counted(each.added, noun)}, of which none is left")
            return None
        if isinstance(measure, CoV) and (math.isnan(number) or abs(number) > _NEAR_ZERO):
            return _cov_about_zero(made, name, number)
    if math.isfinite(number) or number == measure.towards:
        return number
    if metric.kind != "scalar" or each.remark is None:
        plugin, _ = plugins().blamed(metric.module)
        advice = ", which can say why: collapse.Noted(None, reason)" if metric.kind == "scalar" else ""
        made.note(name, "not_finite", without_folders(f"{plugin}came out as {number} in {metric.called}") + advice)
    return None


def _cov_about_zero(made: Numbers, name: str, number: int | float) -> int | float | None:
    if math.isnan(number):
        made.note(name, "zero", "the mean is 0, so there is no std/mean: read the std")
        return None
    made.note(name, "near_zero_mean", f"the mean is nearly 0, 1/{abs(number):,.0f} of the std: read the std")
    return number


def _left_out(each: Evaluated, found: Evaluation, s: EmbeddingStatistics) -> dict[str, str]:
    """Say which classes or pairs have no finite value, and which pairs are closer than can be told apart, by kind."""
    if each.undefined is not None:
        return _classes_left_out(each, each.undefined, s)
    if each.metric.kind != "pair":
        return {}
    fields, said = each.metric.reads & _EXPLAINED, dict[str, str]()
    zero = int((s.norms == 0).sum())
    if each.nan + each.infinite:
        if zero and fields & _DIRECTIONS:
            said["zero_mean"] = f"{counted(zero, 'class')} with a centred mean of zero left out"
        if rounded := max((found.counts[name] for name in fields), default=0):
            said["rounded"] = f"{counted(rounded, 'pair')} left out that differ by no more than the rounding of float64"
        if not fields:
            said["left_out"] = _of_other_values(each, "pair")
    if fields & {"sqdist", "distance"} and (close := found.counts["close"]):
        pairs = "pair of means is" if close == 1 else "pairs of means are"
        said["close"] = f"{close:,} {pairs} closer than the rounding of {s.dtype} embeddings"
    return said


def _classes_left_out(each: Evaluated, without_C: Tensor, s: EmbeddingStatistics) -> dict[str, str]:
    if not bool(without_C.any()):
        return {}
    said, zero_mean_C = {}, without_C & (s.norms == 0)
    if number := int(zero_mean_C.sum()):
        said["zero_mean"] = f"{counted(number, 'class')} with a centred mean of zero left out"
    others_C = without_C & ~zero_mean_C
    if s.classifier is not None and (number := int((others_C & ~s.classifier.any(dim=1)).sum())):
        said["zero_row"] = f"{counted(number, 'class')} with a classifier row of zero left out"
        others_C &= s.classifier.any(dim=1)
    if bool(others_C.any()):
        said["left_out"] = _of_other_values(each, "class")
    return said


def _of_other_values(each: Evaluated, noun: str) -> str:
    parts = [f"{number:,} {what}" for number, what in ((each.nan, "NaN"), (each.infinite, "infinite")) if number]
    return f"{counted(each.nan + each.infinite, noun)} left out: {', '.join(parts)}"


def _note_singletons(made: Numbers, found: Evaluation, s: EmbeddingStatistics) -> None:
    alone = int((s.counts == 1).sum())
    said = {note.measurement for note in made.notes if note.kind == "singletons"}  # their metric leaves them out
    share = f"{alone:,} of {counted(s.n_classes, 'class')} ({alone / s.n_classes:.1%})"
    for each in found.metrics:
        for measure in each.measures:
            name = measure.name
            if alone and "variances" in each.metric.needs and made.values[name] is not None and name not in said:
                text = f"{share} have one sample, hence variance 0: rare classes look collapsed (see --min-count)"
                made.note(name, "singletons", text)


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
