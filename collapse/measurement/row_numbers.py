"""Compute the numbers, notes and exclusions of a row from the results of its metrics."""

import math
from dataclasses import dataclass, field

import torch
from torch import Tensor

from collapse.errors import counted
from collapse.measurement.comparable import MATCHED_IN_ORDER, SAME_TEXTS, same_texts
from collapse.measurement.rows import Note
from collapse.numerics.evaluating_metrics import Evaluation
from collapse.numerics.reducing import MetricResult, Tally
from collapse.numerics.statistics import EmbeddingStatistics
from collapse.plugin.guarding import Failed
from collapse.plugin.measures import CoV, Measure
from collapse.plugin.metrics import Metric
from collapse.plugin.plugin_manager import plugins
from collapse.stores.provenance import without_folders
from collapse.stores.store import Store

_DIRECTIONS = {"cosine", "unit_sqdist"}
"""Fields of pairs that are NaN if a centred mean is zero."""

_EXPLAINED = {*_DIRECTIONS, "sqdist", "distance", "uncentred_unit_sqdist"}
"""Fields of pairs for which a note can say why a value is missing."""

_NEAR_ZERO = 50
"""A coefficient of variation above this is not informative, because the mean is nearly 0."""


@dataclass
class Numbers:
    """The numbers of a row.

    Attributes:
        values: One number per measurement, or None.
        excluded: By measurement, the number of excluded pairs. For a class metric, the number of classes that its
            measure skips although they have a finite value (a mean of logarithms skips zeros).
        notes: Remarks on measurements.
    """

    values: dict[str, int | float | None] = field(default_factory=dict)
    excluded: dict[str, int] = field(default_factory=dict)
    notes: list[Note] = field(default_factory=list)

    def note(self, name: str, kind: str, text: str) -> None:
        """Add a note on the measurement ``name``; ``kind`` is a keyword, such as "missing"."""
        self.notes.append(Note(name, kind, text))


def numbers_of(found: Evaluation) -> Numbers:
    """Return the numbers of an evaluation with their notes."""
    made = Numbers()
    for each in found.results:
        reasons = _reasons_left_out(each, found)
        for measure in each.measures:
            name = measure.name
            made.values[name] = _number(made, each, measure, reasons)
            if each.error_failure is not None:
                made.note(name, "error", f"no standard error: {_failure(each.metric, each.error_failure)}")
    _note_singletons(made, found)
    return made


def _number(made: Numbers, each: MetricResult, measure: Measure, reasons: dict[str, str]) -> int | float | None:
    """Return a measurement's number. If the measurement has no number, return None, and add a note that says why."""
    name = measure.name
    if each.failure is not None:
        made.note(name, "error", _failure(each.metric, each.failure))
        return None
    if each.remark is not None:
        made.note(name, str(each.remark.kind), each.remark.text)
    if name not in each.numbers:
        return None
    for kind, text in reasons.items():
        made.note(name, kind, text)
    number = each.numbers[name]
    if each.tally is not None:
        _record_excluded(made, name, each.tally, each.left_out[name], each.metric.kind)
        if each.left_out[name] == each.tally.added:
            return None
    if isinstance(measure, CoV) and math.isnan(number):
        made.note(name, "zero", "the mean is 0, so std/mean is undefined: use the std")
        return None
    if isinstance(measure, CoV) and abs(number) > _NEAR_ZERO:
        made.note(name, "near_zero_mean", f"the mean is nearly 0, 1/{abs(number):,.0f} of the std: use the std")
    if math.isfinite(number) or number == measure.towards:  # a logarithm may be −∞ at full collapse
        return number
    if each.tally is None and each.remark is not None:  # its own remark already says why
        return None
    advice = ": let it return collapse.Noted(None, reason) instead" if each.tally is None else ""
    text = f"plugin {plugins().owner(each.metric.module).name}: {each.metric.called} gave {number}{advice}"
    made.note(name, "not_finite", without_folders(text))
    return None


def _record_excluded(made: Numbers, name: str, tally: Tally, left_out: int, metric_kind: str) -> None:
    """Record how many classes or pairs a number excludes; if it excludes all, add a note.

    ``tally`` has the number of all values, and of those that are NaN or infinite. ``left_out`` is how many of the
    values the number excludes. ``metric_kind`` is "class" or "pair".
    """
    # for a class metric, a note already counts the classes without a finite value
    if excluded := left_out - (tally.nan + tally.infinite if metric_kind == "class" else 0):
        made.excluded[name] = excluded
    if left_out == tally.added:
        kind = "no_classes" if metric_kind == "class" else "no_pairs"
        made.note(name, kind, f"none of {counted(tally.added, metric_kind)} has a value")


def _reasons_left_out(each: MetricResult, found: Evaluation) -> dict[str, str]:
    """Return why classes or pairs have no finite value: the texts of the notes that say so, by the kind of note."""
    if each.tally is None:
        return {}
    s = found.s
    if each.undefined is not None:
        return _classes_left_out(each.tally, each.undefined, s)
    fields, said = each.metric.reads & _EXPLAINED, dict[str, str]()
    if each.tally.nan + each.tally.infinite:
        if fields & _DIRECTIONS and (zero := int((s.norms == 0).sum())):
            said["zero_mean"] = f"{counted(zero, 'class')} with a centred mean of zero excluded"
        if rounded := max((found.pair_counts[name] for name in fields), default=0):
            said["rounded"] = f"{counted(rounded, 'pair')} excluded as equal up to float64 rounding"
        if not fields:
            said["left_out"] = _of_other_values(each.tally, "pair")
    return said


def _classes_left_out(tally: Tally, without_C: Tensor, s: EmbeddingStatistics) -> dict[str, str]:
    said, zero_mean_C = {}, without_C & (s.norms == 0)
    if number := int(zero_mean_C.sum()):
        said["zero_mean"] = f"{counted(number, 'class')} with a centred mean of zero excluded"
    others_C = without_C & ~zero_mean_C
    if s.classifier is not None and (number := int((others_C & ~s.classifier.any(dim=1)).sum())):
        said["zero_row"] = f"{counted(number, 'class')} with a classifier row of zero excluded"
        others_C &= s.classifier.any(dim=1)
    if bool(others_C.any()):
        said["left_out"] = _of_other_values(tally, "class")
    return said


def _of_other_values(tally: Tally, noun: str) -> str:
    parts = [f"{number:,} {what}" for number, what in ((tally.nan, "NaN"), (tally.infinite, "infinite")) if number]
    return f"{counted(tally.nan + tally.infinite, noun)} excluded: {', '.join(parts)}"


def _note_singletons(made: Numbers, found: Evaluation) -> None:
    if not (alone := int((found.s.counts == 1).sum())):
        return
    said = {note.measurement for note in made.notes if note.kind == "singletons"}  # the metric itself excludes them
    share = f"{alone:,} of {counted(found.s.n_classes, 'class')} ({alone / found.s.n_classes:.1%})"
    text = f"{share} have one sample, so variance 0: rare classes look collapsed (see --min-count)"
    for each in found.results:
        for measure in each.measures if "variances" in each.metric.needs else ():
            if made.values[measure.name] is not None and measure.name not in said:
                made.note(measure.name, "singletons", text)


def _failure(metric: Metric, error: Failed) -> str:
    """Return the text of a note on a failure: the plugin, its function, and what the user can do.

    Paths keep only their last part, because notes are published.
    """
    plugin = plugins().owner(error.module)
    if not plugin.origin:  # the function is of another module, or of torch
        plugin = plugins().owner(metric.module)
    return without_folders(plugin.blamed(str(error)))


def note_store(numbers: Numbers, store: Store) -> None:
    """Add notes on what is special in a store, such as equal training and validation texts, or capped logits."""
    identity, provenance, head = store.identity, store.manifest["provenance"], store.identity.get("head", {})
    if same_texts(identity):
        numbers.note("*", "same_texts", SAME_TEXTS)
    made = provenance.get("parts", [provenance])[0]
    if pairs := made.get("matched_in_order"):
        numbers.note("*", "matched_in_order", MATCHED_IN_ORDER % pairs)
    added = made.get("special_tokens")
    if identity.get("corpus") and added and "ignore_tokens" not in identity:
        each = "line" if identity["corpus"].get("lines") else "text"
        text = (
            f"the tokenizer adds {counted(added, 'special token')} to each {each}, which count as classes and samples: "
            "see --no-special-tokens and --ignore-tokens"
        )
        numbers.note("*", "special_tokens", text)
    if (dtype := identity.get("dtype")) in ("bfloat16", "float16"):
        rounding = torch.finfo(getattr(torch, dtype)).eps / 2
        text = f"{dtype} rounds each entry of an embedding by up to {rounding:.2%}: compare only rows of one dtype"
        numbers.note("*", "low_precision", text)
    if scale := head.get("scale"):
        text = f"the model multiplies its logits by {scale:.6g}; the classifier here includes this factor"
        numbers.note("*", "logit_scale", text)
    if cap := head.get("cap"):
        text = f"the model caps its logits at {cap:g}; val_loss and perplexity include the cap, decisions do not change"
        numbers.note("*", "logit_cap", text)
