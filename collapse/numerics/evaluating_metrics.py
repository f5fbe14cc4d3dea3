"""Evaluate metrics on statistics. A metric that fails does not affect the others.

Shapes: C classes, S validation blocks.
"""

import math
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from jaxtyping import Float
from torch import Tensor

from collapse.core.progress import Report
from collapse.numerics.pair_sweep import sweep
from collapse.numerics.reducing import MetricResult, Tally, TopPairs, merge_ranks
from collapse.numerics.standard_errors import influence_of, standard_error
from collapse.numerics.statistics import EmbeddingStatistics
from collapse.numerics.values import Values, as_number, as_tensor, plain
from collapse.plugin.guarding import Failed, Wrote
from collapse.plugin.metrics import Measure, Metric, Noted
from collapse.plugin.parameter_names import HELD
from collapse.plugin.plugin_manager import plugins
from collapse.plugin.plugin_statistics import conflict


@dataclass(frozen=True)
class Evaluation:
    """The results of metrics.

    Attributes:
        results: One result per metric, in the given order.
        s: The statistics that the metrics were evaluated on.
        pair_counts: By the name of a field of pairs, such as "sqdist": the number of pairs whose field was set to 0,
            because the two points differ only by float64 rounding.
    """

    results: list[MetricResult]
    s: EmbeddingStatistics
    pair_counts: Counter[str] = field(default_factory=Counter)

    @property
    def influences(self) -> dict[str, Float[Tensor, " S"]]:
        """The influence of each validation block on each measurement that has a standard error."""
        having = [each for each in self.results if each.standard_error is not None]
        return {each.measures[0].name: each.influence for each in having if each.influence is not None}


def evaluate(
    new_values: Callable[[], Values],
    chosen: Sequence[tuple[Metric, Sequence[Measure]]],
    *,
    by_class: bool = False,
    top_pairs: int = 0,
    tile_side: int | None = None,
    progress: Report | None = None,
) -> Evaluation:
    """Evaluate metrics; all pair metrics share one sweep.

    If a metric writes to a shared tensor, it fails, and all other metrics are evaluated again.

    Args:
        new_values: Function that returns new :class:`Values`, whose tensors nothing else uses.
        chosen: Metrics, each with its measures.
        by_class: Also keep the values behind each measurement, one per class.
        top_pairs: Also keep this many pairs with the largest values of each pair metric.
        tile_side: Number of rows, and of columns, of a tile of pairs; None for the default of
            :func:`collapse.numerics.pair_sweep.sweep`.
        progress: Called as progress(what, done, total[, note]).
    """
    wrote: dict[int, Failed | None] = {}
    while True:  # each iteration except the last excludes at least one more metric that wrote to a shared tensor
        values = new_values()
        made = [
            MetricResult(metric, measures, remark=missing(values.s, metric), failure=wrote.get(id(metric)))
            for metric, measures in chosen
        ]
        running = [each for each in made if each.remark is None and each.failure is None]
        counts = _evaluate_all(running, values, by_class, top_pairs, tile_side, progress)
        writers = [each for each in running if isinstance(each.failure, Wrote)]
        if not writers:
            return Evaluation(made, values.s, counts)
        wrote |= {id(each.metric): each.failure for each in writers}


def _evaluate_all(
    wanted: Sequence[MetricResult],
    values: Values,
    by_class: bool,
    top_pairs: int,
    tile_side: int | None,
    progress: Report | None,
) -> Counter[str]:
    """Evaluate the metrics of the results ``wanted``, and fill in these results.

    The statistics must have everything that the metrics need.

    Returns:
        The ``pair_counts`` of :class:`Evaluation`.
    """
    pairs, counts = [], Counter[str]()
    for each in wanted:
        with each.recording_failure():
            if each.metric.kind == "scalar":
                _scalar(each, values, by_class)
                continue
            each.tally = _tally(each, values)
            if each.metric.kind == "class":
                _classwise(each, each.tally, values, by_class)
            else:
                each.class_tally = _tally(each, values, groups=values.s.n_classes) if by_class else None
                each.top_pairs = TopPairs(top_pairs, values.s.means.device) if top_pairs else None
                pairs.append(each)
    if pairs and not any(isinstance(each.failure, Wrote) for each in wanted):  # else all are evaluated again
        counts = sweep(values, pairs, side=tile_side, progress=progress)
    counts = merge_ranks(wanted, counts)
    for each in pairs:
        with each.recording_failure():
            has_values = each.remark is None or each.remark.value is not None  # else the remark says why
            if has_values and not each.failure:
                each.reduce()
                if each.class_tally is not None:
                    of_class = each.class_tally.numbers
                    each.by_class = {one.name: (values.s.classes, of_class(one.name)) for one in each.measures}
    return counts


def missing(s: EmbeddingStatistics, metric: Metric) -> Noted | None:
    """Return a remark if the statistics lack something that a metric needs, else None.

    A plugin statistic also counts as missing in two cases: it was filled by another version or by another plugin, or it
    includes classes that are now excluded.
    """
    text = ""
    for need in metric.needs:
        kind = plugins().statistics.get(need)
        if not s.has(need):
            advice = "" if need in HELD else ": collect again with the plugin that fills it (--recollect)"
            text = s.absent.get(need, f"no {need} in these statistics{advice}")
        elif kind and need in s.versions and (differ := conflict(kind, s.versions[need], s.makers.get(need))):
            text = f"{need}: the collection {differ}; collect again with --recollect"
        elif kind and s.left_out and not kind.per_class:
            whole = ", ".join(name for name, each in kind.state.items() if not each.per_class)
            text = (
                f"{need} covers all classes, because it has no row per class ({whole}): not available with "
                "--min-count, --classes-of or --group-by"
            )
        if text:
            return Noted(None, text, "missing")
    return None


def _tally(each: MetricResult, values: Values, groups: int = 1) -> Tally:
    return Tally(each.measures, values.s.n_classes, values.s.dim, values.s.means.device, groups)


def _value(each: MetricResult, values: Values) -> object:
    found = values.value(each.metric.function)
    each.remark = found if isinstance(found, Noted) else None
    return plain(found)


def _scalar(each: MetricResult, values: Values, by_class: bool) -> None:
    metric, name = each.metric, each.measures[0].name
    value = _value(each, values)
    if value is None:
        if each.remark is None:
            raise Failed(metric.function, "it returned None: return collapse.Noted(None, reason) if there is no number")
        return
    each.numbers[name] = as_number(metric.function, value)
    if by_class and metric.vector is not None and (vector := plain(values.value(metric.vector))) is not None:
        each.by_class[name] = vector
    if metric.standard_error and math.isfinite(each.numbers[name]):
        try:
            each.influence = influence_of(values, metric)
        except Failed as error:  # the number itself is kept
            each.error_failure = error
            return
        if len(each.influence) > 1:  # one block does not show how blocks differ
            each.standard_error = standard_error(each.influence)


def _classwise(each: MetricResult, tally: Tally, values: Values, by_class: bool) -> None:
    value, like = _value(each, values), values.s.means[:, 0]
    if value is None and each.remark is not None:
        return
    values_C = as_tensor(each.metric.function, value, like, like.shape)
    tally.add(values_C.unsqueeze(0))
    each.undefined = ~values_C.isfinite()
    if by_class:
        kept = values_C.where(~each.undefined, math.nan)
        each.by_class = {measure.name: (values.s.classes, kept) for measure in each.measures}
    each.reduce()
