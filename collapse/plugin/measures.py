"""Measures, each with a name, that reduce the values of a metric; and their limits. Does not import torch."""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field
from inspect import signature
from types import EllipsisType
from typing import TYPE_CHECKING, Any

from collapse.errors import PluginError
from collapse.plugin.guarding import described

if TYPE_CHECKING:
    from torch import Tensor

    from collapse.plugin.reducers import Reducer

Limit = float | Callable[..., float | None] | None
"""A number, or a function of what it asks for (C, d and measured), or None if there is no limit."""

_NAME = re.compile(r"[a-z][a-z0-9_]*(\.[a-z0-9_]+)*")


@dataclass(frozen=True)
class Measure:
    """One named number computed from the values of a class or pair metric.

    Attributes:
        name: Its measurement name, such as ``nc2.interference``.
        towards: Its value at full collapse: a number, a function of (C, d), or None.
        reachable: The value that C classes in d dimensions can reach, if it differs: a number or a function of (C, d).
            It may ask for C, d and ``measured``, the row's measurements by name; {} if there are none.
        reached_by: What attains ``reachable`` if that is no bound, such as "uniform random points"; notes name it.
        scale: Exponent of its change under h → s·h: it is multiplied by s**scale; None if it follows no power.
            ``...`` means the metric's own.
        times: Multiplies the measure by a function of the statistics, such as the mean squared norm.
        headline: Whether ``collapse measure`` prints it by default; of a property without headlines, the measure whose
            name is first in the alphabet.
    """

    name: str
    _: KW_ONLY
    towards: Limit = None
    reachable: Limit = None
    reached_by: str = ""
    scale: float | EllipsisType | None = ...
    times: Callable[[Any], Any] | None = None
    headline: bool = False

    def reducer(self, classes: int, dim: int) -> "Reducer":
        """Return the reducer of the values; measures whose reducers have equal keys share one."""
        raise PluginError(f"{type(self).__name__} says no way to reduce values: use Mean, Std, … of collapse")

    def of(self, reducer: Any) -> "Tensor":
        """Return the number of each group of such a reducer, shape (G,)."""
        return reducer.result()


class Mean(Measure):
    """The arithmetic mean over classes or pairs."""

    def reducer(self, classes: int, dim: int) -> "Reducer":
        """See :meth:`Measure.reducer`."""
        from collapse.plugin.reducers import Moments

        return Moments()


class Std(Mean):
    """The population standard deviation (ddof 0) over classes or pairs."""

    def of(self, reducer: Any) -> "Tensor":
        """See :meth:`Measure.of`."""
        return reducer.std()


class CoV(Mean):
    """The coefficient of variation, std / mean, with the mean's sign; nan where the mean is 0."""

    def of(self, reducer: Any) -> "Tensor":
        """See :meth:`Measure.of`."""
        mean = reducer.result()
        return (reducer.std() / mean).where(mean != 0, mean.new_full((), float("nan")))


class MeanLog(Measure):
    """The mean natural logarithm; values of exactly 0 are skipped and counted."""

    def reducer(self, classes: int, dim: int) -> "Reducer":
        """See :meth:`Measure.reducer`."""
        from collapse.plugin.reducers import Logs

        return Logs()


@dataclass(frozen=True)
class LogMeanExp(Measure):
    """(1/s)·log mean exp(s·x): a power mean that cannot overflow.

    Attributes:
        exponent: s as a function of (C, d); the measure is null if s ≤ 0.
    """

    _: KW_ONLY
    exponent: Callable[..., float] = field(default=lambda: 1.0)

    def reducer(self, classes: int, dim: int) -> "Reducer":
        """See :meth:`Measure.reducer`."""
        from collapse.plugin.reducers import PowerMean

        return PowerMean(limit_at(self.exponent, classes, dim) or 0.0)


class Min(Measure):
    """The smallest value."""

    def reducer(self, classes: int, dim: int) -> "Reducer":
        """See :meth:`Measure.reducer`."""
        from collapse.plugin.reducers import Extreme

        return Extreme(-1)


class Max(Measure):
    """The largest value."""

    def reducer(self, classes: int, dim: int) -> "Reducer":
        """See :meth:`Measure.reducer`."""
        from collapse.plugin.reducers import Extreme

        return Extreme(1)


def limit_at(
    limit: Limit, classes: int, dim: int | float, measured: Mapping[str, float | None] | None = None
) -> float | None:
    """Return the value of a limit for C classes in d dimensions, and for a row's measurements if it takes them.

    Raises:
        PluginError: The function raised an exception, or did not return a number.

    >>> limit_at(lambda C: -1 / (C - 1), 5, 2)
    -0.25
    """
    if not callable(limit):
        return limit
    try:
        known = {"C": classes, "d": dim, "measured": measured or {}}
        value = limit(**{name: known[name] for name in signature(limit).parameters})
        return None if value is None else float(_real(value))
    except Exception as error:  # a plugin's function
        name = f"{getattr(limit, '__module__', '?')}.{name_of(limit)}"
        raise PluginError(f"{name}({classes}, {dim}) failed: {described(error)}") from error


def check_measures(kind: str, measures: Any) -> None:
    """Refuse measures that a metric cannot declare; raises PluginError."""
    if not isinstance(measures, Sequence) or isinstance(measures, str) or not measures:
        raise PluginError("measures must be a list of at least one, such as [Mean('mine.distance')]")
    for measure in measures:
        check_reduces(kind, measure)
        if not isinstance(measure.name, str) or not _NAME.fullmatch(measure.name):
            raise PluginError(
                f"{measure.name!r} is not a measurement name: use lower-case letters, digits, _ and dots: nc2.norm"
            )
        for keyword in ("towards", "reachable"):
            limit = getattr(measure, keyword)
            if limit is not None and not callable(limit) and not is_real(limit):
                raise PluginError(
                    f"{keyword}={limit!r:.40} of {measure.name}: give a number, a function of C and d, or None"
                )
            _check_asks(f"{keyword}= of {measure.name}", limit)
        for keyword in ("times", "exponent"):
            function = getattr(measure, keyword, None)
            if function is not None and not callable(function):
                raise PluginError(f"{keyword}={function!r:.40} of {measure.name}: give a function")
        _check_asks(f"exponent= of {measure.name}", getattr(measure, "exponent", None))
        if not isinstance(measure.headline, bool):
            raise PluginError(f"headline={measure.headline!r:.40} of {measure.name}: give True or False")
        if not (measure.scale is None or measure.scale is ... or is_real(measure.scale)):
            raise PluginError(f"scale={measure.scale!r:.40} of {measure.name}: give a number or None")
    names = [measure.name for measure in measures]
    if len(set(names)) < len(names):
        raise PluginError(f"two measures have one name: {', '.join(names)}")


def _check_asks(what: str, limit: Limit) -> None:
    """Refuse a limit that asks for something else than C, d and measured."""
    for name in signature(limit).parameters if callable(limit) else ():
        if name not in ("C", "d", "measured"):
            raise PluginError(f"{what} asks for {name!r}: a limit may ask for C, d and measured")


def check_reduces(kind: str, measure: Any) -> None:
    """Raise PluginError for a measure without a reducer, or for a reducing measure of a metric that is one number."""
    if not isinstance(measure, Measure):
        raise PluginError(f"{type(measure).__name__} is not a measure: give a list of Mean, Std, … of collapse")
    reduces = type(measure).reducer is not Measure.reducer
    if kind == "scalar" and reduces:
        raise PluginError(f"{type(measure).__name__} is of many values, and @metric has one number")
    if kind != "scalar" and not reduces:
        raise PluginError(
            f"{type(measure).__name__} says no way to reduce values: use Mean, Std, CoV, MeanLog, LogMeanExp, Min "
            "or Max of collapse, or write reducer(classes, dim)"
        )


def _real(value: Any) -> Any:
    if isinstance(value, str | bytes | bool):
        raise PluginError(f"it returned {value!r:.40}, which is not a number")
    return value


def is_real(value: Any) -> bool:
    """Whether a declared value is a number that a float can hold, and not nan."""
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) <= float("inf")


def name_of(function: Any) -> str:
    """Return a function's name for messages."""
    return str(getattr(function, "__name__", type(function).__name__))
