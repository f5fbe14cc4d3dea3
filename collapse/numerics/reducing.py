"""Compute measures of values with their reducers; measures with equal reducers share one.

Shapes: G groups, n values per group.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from jaxtyping import Float
from torch import Tensor

from collapse.errors import PluginError
from collapse.numerics.statistics import EmbeddingStatistics
from collapse.plugin.guarding import described
from collapse.plugin.measures import Measure, name_of
from collapse.plugin.reducers import Reducer


@dataclass(frozen=True)
class Taken:
    """Computed measures.

    Attributes:
        numbers: By the measure's name, one number per group, shape (G,); nan for a group without values.
        reducers: The reducers, by the measure's name.
        weight: Total weight of the added values.
        values: Number of values, including those that were not added.
        not_finite: Weight of the values that are NaN or infinite, counted once a state is NaN.
    """

    numbers: dict[str, Float[Tensor, " G"]]
    reducers: dict[str, Reducer]
    weight: float
    values: int
    not_finite: float = 0.0

    def number(self, name: str) -> float:
        """Return the number of the only group."""
        return float(self.numbers[name])

    def left_out(self, name: str) -> int:
        """Return how many values a number excludes: values that were not added, or zeros of a mean logarithm."""
        own = self.reducers[name].left_out()
        return self.values - round(self.weight) + (0 if own is None else round(float(own.sum())))


class Taking:
    """The reducers of some measures of one metric, while values are added.

    Args:
        measures: The measures.
        s: The statistics from which the values are computed.
        groups: 1, or C for one number per class.

    Raises:
        PluginError: A measure's ``reducer`` does not return a :class:`Reducer`.
    """

    def __init__(self, measures: Sequence[Measure], s: EmbeddingStatistics, *, groups: int = 1) -> None:
        self.measures = measures
        self.weight = self.not_finite = 0.0
        self._groups = groups
        self._shared: dict[object, Reducer] = {}
        self._keys = {}
        for measure in measures:
            empty = _empty(measure, s)
            self._keys[measure.name] = empty.key
            self._shared.setdefault(empty.key, empty.of(groups, s.means.device))

    def add(self, values: Float[Tensor, "G n"], weights: Float[Tensor, "G n"] | None, run: slice | None = None) -> None:
        """Add n values per group, or per group of a run; None means weight 1."""
        for reducer in self._shared.values():
            part = reducer if run is None else reducer.rows(run)
            part.add(values, weights)
            if run is not None:
                reducer.put(run, part)
        self.weight += values.numel() if weights is None else float(weights.sum())
        if any(_has_nan(reducer) for reducer in self._shared.values()):  # cheaper than a look at every tile
            wrong = ~values.isfinite()
            self.not_finite += float((wrong if weights is None else weights * wrong).sum())

    def taken(self, values: int) -> Taken:
        """Return the measures of the values added so far; ``values`` is the total number of values."""
        reducers = {measure.name: self._shared[self._keys[measure.name]] for measure in self.measures}
        numbers = {}
        for measure in self.measures:
            with _named(measure):
                numbers[measure.name] = measure.of(reducers[measure.name]).double()
        for name, number in numbers.items():
            if number.shape != (self._groups,):
                raise PluginError(
                    f"{type(reducers[name]).__name__} gives {tuple(number.shape)} numbers for {name}: "
                    f"give one per group, shape {(self._groups,)}"
                )
        return Taken(numbers, reducers, self.weight, values, self.not_finite)


def _has_nan(reducer: Reducer) -> bool:
    return any(isinstance(held, Tensor) and bool(held.isnan().any()) for held in vars(reducer).values())


@contextmanager
def _named(measure: Measure) -> Iterator[None]:
    """Run a measure's own code; an error names the measure, because it costs all measures of the metric."""
    try:
        yield
    except Exception as error:
        raise PluginError(f"the measure {measure.name} failed: {described(error)}") from error


def _empty(measure: Measure, s: EmbeddingStatistics) -> Reducer:
    with _named(measure):
        empty = measure.reducer(s.n_classes, s.dim)
    if not isinstance(empty, Reducer):
        raise PluginError(
            f"{name_of(type(measure))}.reducer() of {measure.name} must give a collapse.plugin.reducers.Reducer, not "
            f"{type(empty).__name__}"
        )
    return empty
