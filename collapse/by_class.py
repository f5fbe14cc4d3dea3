"""A measure of a pair metric taken for each class alone, over the pairs of this class with the others."""

from collections.abc import Callable
from dataclasses import replace

from jaxtyping import Float
from torch import Tensor

from collapse.errors import UsageError
from collapse.metrics import CoV, LogMeanExp, Mean, MeanLog, Measure, Metric, Std
from collapse.pairs import Swept, sweep
from collapse.returned import as_tile
from collapse.statistics import EmbeddingStatistics
from collapse.tiles import Pair


def measure_by_class(s: EmbeddingStatistics, metric: Metric, measure: Measure) -> Float[Tensor, " C"]:
    """Mean, std, CoV or mean log over each class's pairs; nan for a class without a pair.

    A mean log leaves out pairs of value 0, as it does over all pairs.

    Raises:
        UsageError: The measure is a power mean, which has no value a class.
    """
    if isinstance(measure, LogMeanExp):
        raise UsageError(f"{measure.name} is a power mean over all pairs, which has no value a class")
    if isinstance(measure, MeanLog):
        logs = _swept(s, metric, lambda values: values.log().masked_fill_(values == 0, 0)).rows
        return logs / _swept(s, metric, lambda values: (values != 0).to(values.dtype)).rows
    plain = _swept(s, metric, lambda values: values)
    if not isinstance(measure, Std | CoV):
        return plain.rows
    # about the mean of all pairs, which is near that of each class: little is lost in the difference
    squares = _swept(s, metric, lambda values: (values - plain.mean).square()).rows
    std = (squares - (plain.rows - plain.mean).square()).clamp(min=0).sqrt()
    return std if isinstance(measure, Std) else std / plain.rows


def _swept(s: EmbeddingStatistics, metric: Metric, change: Callable[[Tensor], Tensor]) -> Swept:
    def changed(pair: Pair) -> Tensor:
        return change(as_tile(metric.function(pair), pair.gram))

    changed.__name__ = getattr(metric.function, "__name__", "pair metric")
    (swept,) = sweep(s, [(replace(metric, function=changed), [Mean("mean")])]).metrics
    if isinstance(swept, Exception):
        raise swept
    return swept
