"""What a plugin declares: metrics of three kinds, the measures taken of them, analyses.

A *measurement* is one named number. A plain metric is one measurement; a class metric gives a value a
class and a pair metric a value a pair of classes, of which one or more *measures* (mean, standard deviation,
...) are measurements. The decorators leave the function as it was and hang its declaration on it, so that it can
be called, tested and doctested like any other function. Nothing here imports torch.
"""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from types import EllipsisType
from typing import Any, Literal, TypeVar

from collapse.errors import PluginError

Limit = float | Callable[[int, int], float | None] | None
"""A number, or a function of (C, d), or None where there is none."""

Over = Literal["all", "distinct", "directions", "distinct_directions", "distinct_uncentred_directions"]
Function = TypeVar("Function", bound=Callable[..., Any])

_NAME = re.compile(r"[a-z][a-z0-9_]*(\.[a-z0-9_]+)*")
_DECLARATION = "__collapse_declaration__"


@dataclass(frozen=True)
class Measure:
    """One named number taken of the values of a class or pair metric.

    Attributes:
        name: Its measurement name, such as ``nc2.interference``.
        towards: Its value at full collapse: a number, a function of (C, d), or None.
        reachable: What C classes in d dimensions can reach, where that differs: a number or a function of (C, d).
        scale: How it answers h → s·h: it becomes s**scale times itself; None where it follows no power.
            ``...`` takes what the metric declares.
        times: Multiplies the measure by a function of the statistics, such as the mean squared norm.
    """

    name: str
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


@dataclass(frozen=True)
class LogMeanExp(Measure):
    """(1/s)·log mean exp(s·x): a power mean that cannot overflow.

    Attributes:
        exponent: s as a function of (C, d); the measure is null where s ≤ 0.
    """

    exponent: Callable[[int, int], float] = field(default=lambda classes, dim: 1.0)


@dataclass(frozen=True)
class Noted:
    """A metric's number with a remark that belongs beside it; None for a number that cannot be had."""

    value: Any
    text: str
    kind: str = "note"


@dataclass(frozen=True)
class Metric:
    """A declared metric: a function and everything the tables, tests and docs need to know of it."""

    kind: Literal["scalar", "class", "pair"]
    function: Callable[..., Any]
    needs: tuple[str, ...]
    measures: tuple[Measure, ...]
    over: Over = "all"
    version: int = 1
    source: str = ""
    equation: str = ""
    property_name: str = ""
    scale: float | None = 0.0
    translation: bool = True
    rotation: bool = True
    vector: Callable[[Any], Any] | None = None
    better: Literal["lower", "higher"] | None = None

    @property
    def module(self) -> str:
        """Where it is defined, for messages."""
        return self.function.__module__

    @property
    def summary(self) -> str:
        """The first line of its docstring."""
        return (self.function.__doc__ or "").strip().split("\n")[0]

    def property_of(self, name: str) -> str:
        """The property a measurement belongs to: NC1 of ``nc1.cdnv``, or as declared."""
        return self.property_name or (name.split(".")[0].upper() if "." in name else "other")

    def equation_of(self, measure: Measure) -> str:
        """How a measurement comes about, in a line: what is taken of which equation, or of what."""
        of = self.equation or self.summary.rstrip(".")
        if self.kind == "scalar":
            return of
        factor = (measure.times.__doc__ or "a factor").split("\n")[0].rstrip(".") if measure.times else ""
        return f"{type(measure).__name__} of {of}" + (f" · {factor}" if factor else "")

    def scale_of(self, measure: Measure) -> float | None:
        """The exponent with which a measure follows the scale of h, or None."""
        return self.scale if isinstance(measure.scale, EllipsisType) else measure.scale


@dataclass(frozen=True)
class Analysis:
    """A declared function of a results table."""

    name: str
    function: Callable[..., Any]

    @property
    def summary(self) -> str:
        """The first line of its docstring."""
        return (self.function.__doc__ or "").strip().split("\n")[0]

    def __call__(self, results: Any, **options: Any) -> Any:
        """Run it on a results table."""
        return self.function(results, **options)


def metric(
    name: str,
    *,
    needs: Sequence[str],
    towards: Limit = None,
    reachable: Limit = None,
    vector: Callable[[Any], Any] | None = None,
    better: Literal["lower", "higher"] | None = None,
    **about: Any,
) -> Callable[[Function], Function]:
    """Declare ``f(statistics) -> number``: one measurement.

    Args:
        name: The measurement's name.
        needs: What it reads: counts, means, variances, classifier, validation, n_params, or a statistic's name.
        towards: Its value at full collapse (a number, a function of (C, d), or None).
        reachable: What can be reached with C classes in d dimensions, where that differs.
        vector: ``g(statistics) -> (ids, values)``, its value a class, for :func:`collapse.vectors`.
        better: Which way is better, for measurements that collapse says nothing of (val_loss: lower).
        **about: version, source, equation, property_name, scale, translation, rotation.
    """

    def declare(function: Function) -> Function:
        measures = (Measure(name, towards, reachable),)
        return _attach(function, "scalar", needs, measures, vector=vector, better=better, **about)

    return declare


def class_metric(
    *, needs: Sequence[str], measures: Sequence[Measure], over: Over = "all", **about: Any
) -> Callable[[Function], Function]:
    """Declare ``f(statistics) -> (C,)``: a value a class, and the measures taken of it.

    Args:
        needs: What it reads (see :func:`metric`).
        measures: The measurements: ``Mean("nc3.self_duality", towards=1.0)`` and so on.
        over: "all", or "directions" to leave out classes whose centred mean is zero.
        **about: version, source, equation, property_name, scale, translation, rotation.
    """
    return lambda function: _attach(function, "class", needs, tuple(measures), over=over, **about)


def pair_metric(
    *, needs: Sequence[str], measures: Sequence[Measure], over: Over, **about: Any
) -> Callable[[Function], Function]:
    """Declare ``f(pair) -> tile``: a value a pair of classes, elementwise, symmetric and pure.

    Args:
        needs: What it reads (see :func:`metric`).
        measures: The measurements.
        over: "all", "distinct" (pairs of exactly equal means are left out), "directions" (pairs with a class whose
            centred mean is zero are left out), "distinct_directions" (and equal unit vectors too),
            "distinct_uncentred_directions" (the same without centring).
        **about: version, source, equation, property_name, scale, translation, rotation.
    """
    return lambda function: _attach(function, "pair", needs, tuple(measures), over=over, **about)


def analysis(name: str) -> Callable[[Function], Function]:
    """Declare ``f(results, *, options...)``: its annotated keyword parameters become command-line options."""

    def declare(function: Function) -> Function:
        setattr(function, _DECLARATION, Analysis(name, function))
        return function

    return declare


def declaration(function: Any) -> Any:
    """The :class:`Metric` or :class:`Analysis` that a decorator hung on a function.

    Raises:
        PluginError: It was not declared.
    """
    found = getattr(function, _DECLARATION, None)
    if found is None:
        name = getattr(function, "__qualname__", repr(function))
        raise PluginError(f"{name} is not declared: decorate it with @metric, @class_metric, @pair_metric or @analysis")
    return found


def limit_at(limit: Limit, classes: int, dim: int) -> float | None:
    """The value of a limit for C classes in d dimensions.

    >>> limit_at(lambda classes, dim: -1 / (classes - 1), 5, 2)
    -0.25
    """
    return limit(classes, dim) if callable(limit) else limit


def _attach(
    function: Function, kind: Any, needs: Sequence[str], measures: tuple[Measure, ...], **about: Any
) -> Function:
    for measure in measures:
        if not _NAME.fullmatch(measure.name):
            raise PluginError(
                f"{measure.name!r} is no measurement name: use lower-case letters, digits, _ and dots, as in nc2.norm"
            )
    setattr(function, _DECLARATION, Metric(kind, function, tuple(needs), measures, **about))
    return function
