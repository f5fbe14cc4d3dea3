"""Evaluate metrics on statistics. A metric that fails costs only its own numbers.

Shapes: C classes, S validation blocks.
"""

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from jaxtyping import Float
from torch import Tensor

from collapse.core.progress import Report
from collapse.numerics.pairs import Swept, sweep
from collapse.numerics.reducing import Tally, TopPairs
from collapse.numerics.standard_errors import influence_of
from collapse.numerics.statistics import EmbeddingStatistics
from collapse.numerics.values import Values, as_number, as_tensor, plain
from collapse.plugin.filling import conflict
from collapse.plugin.guarding import Failed, described
from collapse.plugin.metrics import Measure, Metric, Noted
from collapse.plugin.names import HELD
from collapse.plugin.plugin_manager import plugins


@dataclass
class Evaluated:
    """What a metric gives.

    Attributes:
        metric, measures: As wanted.
        missing: Why the metric is not available, or None.
        numbers: By measurement, its number, also NaN or infinite; without one, another attribute says why.
        failed: By measurement, why it has no number.
        remark: What the function remarks on its value, or on why there is none.
        added, nan, infinite: How many values of classes or pairs there are; of these, how many are NaN and infinite.
        left_out: By measurement, how many of the values its number excludes.
        undefined: Whether a class has no finite value, shape (C,), for a metric of classes.
        by_class: By measurement, token ids and their values, NaN for a class that the measurement excludes, if wanted.
        top: The pairs of largest value, if wanted.
        influence: Of each validation block, or group of them, shape (S,); or why there is none.
    """

    metric: Metric
    measures: Sequence[Measure]
    missing: str | None = None
    numbers: dict[str, int | float] = field(default_factory=dict)
    failed: dict[str, Failed] = field(default_factory=dict)
    remark: Noted | None = None
    added: int = 0
    nan: int = 0
    infinite: int = 0
    left_out: dict[str, int] = field(default_factory=dict)
    undefined: Tensor | None = None
    by_class: dict[str, tuple[Tensor, Tensor]] = field(default_factory=dict)
    top: TopPairs | None = None
    influence: Float[Tensor, " S"] | Failed | None = None

    def fail(self, error: Failed) -> None:
        """Record that no measurement has a number."""
        self.numbers, self.failed = {}, {measure.name: error for measure in self.measures}


@dataclass(frozen=True)
class Evaluation:
    """What metrics give.

    Attributes:
        metrics: What each gives, in the order in which they were wanted.
        counts: As of :class:`collapse.numerics.pairs.Sweep`.
    """

    metrics: list[Evaluated]
    counts: Mapping[str, int]

    @property
    def influences(self) -> dict[str, Float[Tensor, " S"]]:
        """Influences by measurement with a standard error; one block says nothing of how blocks differ."""
        found = {each.measures[0].name: each.influence for each in self.metrics}
        return {name: each for name, each in found.items() if isinstance(each, Tensor) and len(each) > 1}


def evaluate(
    values: Values,
    chosen: Sequence[tuple[Metric, Sequence[Measure]]],
    *,
    by_class: bool = False,
    top: int = 0,
    progress: Report | None = None,
) -> Evaluation:
    """Evaluate metrics, those of pairs in one sweep.

    Args:
        values: What their functions ask for.
        chosen: Metrics, each with its measures.
        by_class: Also keep the values behind each measurement, one per class.
        top: Also keep so many pairs of largest value of each pair metric.
        progress: Called as progress(what, done, total).
    """
    made = [Evaluated(*each, missing=missing(values.s, each[0])) for each in chosen]
    there = [each for each in made if each.missing is None]
    counts = Counter[str]()
    for each in there:
        try:
            if each.metric.kind == "scalar":
                _scalar(each, values, by_class)
            elif each.metric.kind == "class":
                _classwise(each, values, by_class)
        except Failed as error:
            each.fail(error)
    pairs = [each for each in there if each.metric.kind == "pair"]
    if pairs:
        wanted = [(each.metric, each.measures) for each in pairs]
        swept = sweep(values, wanted, by_class=by_class, top=top, progress=progress)
        counts = swept.counts
        for each, found in zip(pairs, swept.metrics, strict=True):
            _pairwise(each, found, values.s.classes)
    return Evaluation(made, counts)


def missing(s: EmbeddingStatistics, metric: Metric) -> str | None:
    """Say which need of a metric is missing or of another version, or None if the metric is available."""
    for need in metric.needs:
        if not s.has(need):
            advice = "" if need in HELD else ": collect again with the plugin that fills it (--recollect)"
            return s.absent.get(need, f"no {need} in these statistics{advice}")
        kind = plugins().statistics.get(need)
        if kind is None:
            continue
        if need in s.versions and (differ := conflict(kind, s.versions[need], s.made_by.get(need))):
            return f"{need}: the collection {differ}: collect again (--recollect)"
        if s.left_out and not kind.per_class:
            return f"{need} was collected over all classes: not available with --min-count or --classes-of"
    return None


def _value(each: Evaluated, values: Values) -> object:
    found = values.value(each.metric.function)
    each.remark = found if isinstance(found, Noted) else None
    return plain(found)


def _scalar(each: Evaluated, values: Values, by_class: bool) -> None:
    metric, name = each.metric, each.measures[0].name
    value = _value(each, values)
    if value is None:
        if each.remark is None:
            raise Failed(metric.function, "it returned None: return collapse.Noted(None, reason) without a number")
        return
    each.numbers[name] = as_number(metric.function, value)
    if by_class and metric.vector is not None:
        each.by_class[name] = values.value(metric.vector)
    if metric.standard_error and math.isfinite(each.numbers[name]):
        try:
            each.influence = influence_of(values, metric)
        except Failed as error:  # it costs the standard error only
            each.influence = error


def _classwise(each: Evaluated, values: Values, by_class: bool) -> None:
    value, like = _value(each, values), values.s.means[:, 0]
    if value is None and each.remark is not None:
        return
    values_C = as_tensor(each.metric.function, value, like, like.shape)
    try:
        tally = Tally(each.measures, values.s.n_classes, values.s.dim, like.device)
        tally.add(values_C.unsqueeze(0))
    except Exception as error:  # a plugin's measure
        raise Failed(each.metric.function, described(error)) from error
    each.undefined = ~values_C.isfinite()
    if by_class:
        kept = values_C.where(~each.undefined, math.nan)
        each.by_class = {measure.name: (values.s.classes, kept) for measure in each.measures}
    _reduce(each, tally)


def _pairwise(each: Evaluated, swept: Swept, classes: Tensor) -> None:
    if swept.failed is not None:
        each.fail(swept.failed)
        return
    each.remark, each.top = swept.remark, swept.top
    if each.remark is not None and each.remark.value is None:
        return
    _reduce(each, swept.all)
    for measure in each.measures:
        if swept.by_class is not None and measure.name in each.numbers:
            try:
                each.by_class[measure.name] = classes, swept.by_class.numbers(measure.name)
            except Exception as error:  # a plugin's reducer
                _fail(each, measure, error)


def _reduce(each: Evaluated, tally: Tally) -> None:
    each.added, each.nan, each.infinite = tally.added, tally.nan, tally.infinite
    for measure in each.measures:
        try:
            each.left_out[measure.name] = tally.left_out(measure.name)
            each.numbers[measure.name] = tally.number(measure.name)
        except Exception as error:  # a plugin's reducer
            _fail(each, measure, error)


def _fail(each: Evaluated, measure: Measure, error: Exception) -> None:
    each.numbers.pop(measure.name, None)
    each.failed[measure.name] = Failed(type(measure), f"the measure {measure.name}: {described(error)}")
