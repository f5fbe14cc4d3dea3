"""Measures: named numbers, their limits, and how the values of a metric become one number. Does not import torch."""

import re
from collections.abc import Callable, Mapping
from dataclasses import KW_ONLY, dataclass
from inspect import signature
from typing import TYPE_CHECKING, Any, Literal

from collapse.errors import PluginError, near_names
from collapse.plugin.guarding import called, described
from collapse.plugin.names import OF_LIMITS

if TYPE_CHECKING:
    from torch import Tensor

    from collapse.plugin.reducers import Reducer

Limit = int | float | Callable[..., float | None] | None
"""A number, or a function with any of the parameters C, d and measured, or None if there is no limit."""

Scale = int | float | Literal["log"] | None
"""How a value changes under h → s·h: by s to this power, by log s added ("log"), or in another way (None)."""

_NAME = re.compile(r"[a-z][a-z0-9_]*(\.[a-z0-9_]+)*")


@dataclass(frozen=True)
class Measure:
    """One named number; a subclass says how the values of a class or pair metric become it.

    Attributes:
        name: Its measurement name, such as ``nc2.interference``.
        towards: Its value at full collapse: a number, a function such as ``lambda C: -1 / (C - 1)``, or None.
        reachable: The value that C classes in d dimensions can reach, if it differs: likewise.
        reached_by: What attains ``reachable`` if that is no bound, such as "uniform random points"; notes name it.
        headline: Whether ``collapse measure`` prints it by default; of a property without headlines, the measure whose
            name is first in the alphabet.
    """

    name: str
    _: KW_ONLY
    towards: Limit = None
    reachable: Limit = None
    reached_by: str = ""
    headline: bool = False

    def __post_init__(self) -> None:
        if not isinstance(self.name, str) or not _NAME.fullmatch(self.name):
            raise PluginError(
                f"{self.name!r} is not a measurement name: use lower-case letters, digits, _ and dots: nc2.norm"
            )
        for keyword in ("towards", "reachable"):
            _check_limit(f"{keyword}= of {self.name}", getattr(self, keyword), OF_LIMITS)

    def scale_of(self, scale: Scale) -> float | None:
        """Return the exponent of its change under h → s·h, from how the values change; None if it follows no power."""
        return None if scale is None or isinstance(scale, str) else float(scale)

    def reducer(self, C: int, d: int) -> "Reducer":
        """Return the empty reducer of the values; measures whose reducers are alike share one."""
        raise PluginError(f"{type(self).__name__} says no way to reduce values: use Mean, Std, … of collapse")

    def of(self, reducer: Any) -> "Tensor":
        """Return the number of each group of such a reducer, shape (G,)."""
        return reducer.result()


class Mean(Measure):
    """The arithmetic mean over classes or pairs."""

    def reducer(self, C: int, d: int) -> "Reducer":
        """See :meth:`Measure.reducer`."""
        from collapse.plugin.reducers import Moments

        return Moments()


class Std(Mean):
    """The population standard deviation (ddof 0) over classes or pairs."""

    def scale_of(self, scale: Scale) -> float | None:
        """That of the values; 0 of logarithms."""
        return 0.0 if isinstance(scale, str) else super().scale_of(scale)

    def of(self, reducer: Any) -> "Tensor":
        """See :meth:`Measure.of`."""
        return reducer.std()


class CoV(Mean):
    """The coefficient of variation, std / mean, with the mean's sign; nan where the mean is 0."""

    def scale_of(self, scale: Scale) -> float | None:
        """0 of values that follow a power."""
        return None if scale is None or isinstance(scale, str) else 0.0

    def of(self, reducer: Any) -> "Tensor":
        """See :meth:`Measure.of`."""
        mean = reducer.result()
        return (reducer.std() / mean).where(mean != 0, mean.new_full((), float("nan")))


class _OfLogs(Measure):
    """A measure of logarithms, or of what is added to them: invariant only if the values are."""

    def scale_of(self, scale: Scale) -> float | None:
        """0 of values that do not change."""
        return 0.0 if scale == 0 else None


class MeanLog(_OfLogs):
    """The mean natural logarithm; values of exactly 0 are skipped and counted."""

    def reducer(self, C: int, d: int) -> "Reducer":
        """See :meth:`Measure.reducer`."""
        from collapse.plugin.reducers import Logs

        return Logs()


@dataclass(frozen=True)
class LogMeanExp(_OfLogs):
    """(1/s)·log mean exp(s·x): a power mean that cannot overflow.

    Attributes:
        exponent: s, a number or a function of C and d; the measure is null if s ≤ 0.
    """

    _: KW_ONLY
    exponent: int | float | Callable[..., float] = 1.0

    def reducer(self, C: int, d: int) -> "Reducer":
        """See :meth:`Measure.reducer`."""
        from collapse.plugin.reducers import PowerMean

        return PowerMean(limit_at(self.exponent, C, d) or 0.0)


class Min(Measure):
    """The smallest value."""

    def reducer(self, C: int, d: int) -> "Reducer":
        """See :meth:`Measure.reducer`."""
        from collapse.plugin.reducers import Extreme

        return Extreme(-1)


class Max(Measure):
    """The largest value."""

    def reducer(self, C: int, d: int) -> "Reducer":
        """See :meth:`Measure.reducer`."""
        from collapse.plugin.reducers import Extreme

        return Extreme(1)


def limit_at(
    limit: Limit, classes: int, dim: int | float, measured: Mapping[str, float | None] | None = None
) -> float | None:
    """Return the value of a limit for C classes in d dimensions, and for a row's measurements if it asks for them.

    Raises:
        PluginError: The function raised an exception, or did not return a number.

    >>> limit_at(lambda C: -1 / (C - 1), 5, 2)
    -0.25
    """
    if not callable(limit):
        return None if limit is None else float(limit)
    given = {"C": classes, "d": dim, "measured": measured or {}}
    try:
        value = limit(**{name: given[name] for name in signature(limit).parameters if name in given})
        return None if value is None else float(value)
    except Exception as error:  # a plugin's function
        raise PluginError(f"{called(limit)} of C = {classes}, d = {dim} failed: {described(error)}") from error


def _check_limit(what: str, limit: Any, known: Mapping[str, str]) -> None:
    if limit is None or (isinstance(limit, int | float) and limit == limit):
        return
    if not callable(limit):
        raise PluginError(f"{what} is {limit!r:.40}: give a number, a function of C and d, or None")
    for each in signature(limit).parameters.values():
        if each.name not in known and each.default is each.empty:
            raise PluginError(f"{what} asks for {each.name!r}, which no limit gets; {near_names(each.name, known)}")
