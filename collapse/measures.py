"""What is taken of the values of a metric: measures, each with a name, and their limits. Nothing here imports torch."""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field
from inspect import signature
from types import EllipsisType
from typing import Any

from collapse.errors import PluginError, near_names
from collapse.guarding import Guest, described

Limit = float | Callable[..., float | None] | None
"""A number, or a function of (C, d), or None where there is none."""

_NAME = re.compile(r"[a-z][a-z0-9_]*(\.[a-z0-9_]+)*")


@dataclass(frozen=True)
class Measure:
    """One named number taken of the values of a class or pair metric.

    Attributes:
        name: Its measurement name, such as ``nc2.interference``.
        towards: Its value at full collapse: a number, a function of (C, d), or None.
        reachable: What C classes in d dimensions can reach, where that differs: a number or a function of (C, d). A
            function with a parameter ``measured`` gets the row's measurements too, by name; {} where there are none.
        scale: How it answers h → s·h: it becomes s**scale times itself; None where it follows no power.
            ``...`` takes what the metric declares.
        times: Multiplies the measure by a function of the statistics, such as the mean squared norm.
    """

    name: str
    _: KW_ONLY
    towards: Limit = None
    reachable: Limit = None
    scale: float | EllipsisType | None = ...
    times: Callable[[Any], Any] | None = None


class Mean(Measure):
    """The arithmetic mean over classes or pairs."""


class Std(Measure):
    """The population standard deviation (ddof 0) over classes or pairs."""


class CoV(Measure):
    """The coefficient of variation, std / mean, with the mean's sign."""


class MeanLog(Measure):
    """The mean natural logarithm; values of exactly 0 are left out and counted."""


@dataclass(frozen=True, kw_only=True)
class LogMeanExp(Measure):
    """(1/s)·log mean exp(s·x): a power mean that cannot overflow.

    Attributes:
        exponent: s as a function of (C, d); the measure is null where s ≤ 0.
    """

    exponent: Callable[[int, int], float] = field(default=lambda classes, dim: 1.0)


REDUCERS = (Mean, Std, CoV, MeanLog, LogMeanExp)
"""What can be taken of the values of a class or pair metric; nothing else is understood, not even a subclass."""


def limit_at(limit: Limit, classes: int, dim: int, measured: Mapping[str, float | None] | None = None) -> float | None:
    """The value of a limit for C classes in d dimensions, and for a row's measurements where it asks for them.

    Raises:
        PluginError: The function raised, or returned no number.

    >>> limit_at(lambda classes, dim: -1 / (classes - 1), 5, 2)
    -0.25
    """
    if not callable(limit):
        return limit
    try:
        with Guest():
            more = {"measured": measured or {}} if "measured" in signature(limit).parameters else {}
            value = limit(classes, dim, **more)
            return None if value is None else float(_real(value))
    except Exception as error:  # a plugin's function
        name = f"{getattr(limit, '__module__', '?')}.{name_of(limit)}"
        raise PluginError(f"{name}({classes}, {dim}) failed: {described(error)}") from error


def check_measures(kind: str, measures: Any) -> None:
    """Refuse measures that a metric cannot declare; raises PluginError."""
    if not isinstance(measures, Sequence) or isinstance(measures, str) or not measures:
        raise PluginError("measures must be a list of at least one, such as [Mean('mine.distance')]")
    for measure in measures:
        allowed = (Measure,) if kind == "scalar" else REDUCERS
        if type(measure) not in allowed:
            name = type(measure).__name__
            raise PluginError(f"{name} is no measure; {near_names(name, [each.__name__ for each in REDUCERS])}")
        if not isinstance(measure.name, str) or not _NAME.fullmatch(measure.name):
            raise PluginError(
                f"{measure.name!r} is no measurement name: use lower-case letters, digits, _ and dots, as in nc2.norm"
            )
        for keyword in ("towards", "reachable"):
            limit = getattr(measure, keyword)
            if limit is not None and not callable(limit) and not is_real(limit):
                raise PluginError(
                    f"{keyword}={limit!r:.40} of {measure.name}: give a number, a function of (C, d) or None"
                )
        for keyword in ("times", "exponent"):
            function = getattr(measure, keyword, None)
            if function is not None and not callable(function):
                raise PluginError(f"{keyword}={function!r:.40} of {measure.name}: give a function")
        if not (measure.scale is None or measure.scale is ... or is_real(measure.scale)):
            raise PluginError(f"scale={measure.scale!r:.40} of {measure.name}: give a number or None")
    names = [measure.name for measure in measures]
    if len(set(names)) < len(names):
        raise PluginError(f"two measures have one name: {', '.join(names)}")


def _real(value: Any) -> Any:
    if isinstance(value, str | bytes | bool):
        raise PluginError(f"it returned {value!r:.40}, which is no number")
    return value


def is_real(value: Any) -> bool:
    """Whether a declared value is a number that a float can hold, and not nan."""
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) <= float("inf")


def name_of(function: Any) -> str:
    """What to call a function in a message."""
    return str(getattr(function, "__name__", type(function).__name__))
