"""What a plugin declares: metrics of three kinds, the measures taken of them, analyses.

A *measurement* is one named number. A plain metric is one measurement; a class metric gives a value a
class and a pair metric a value a pair of classes, of which one or more *measures* (mean, standard deviation,
...) are measurements. The decorators leave the function as it was and hang its declaration on it, so that it can
be called, tested and doctested like any other function. Nothing here imports torch.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import EllipsisType, NoneType
from typing import Any, Literal, TypeVar, get_args

from collapse.errors import PluginError, near_names
from collapse.measures import CoV as CoV
from collapse.measures import Limit, Measure, check_measures, limit_at, name_of
from collapse.measures import LogMeanExp as LogMeanExp
from collapse.measures import Mean as Mean
from collapse.measures import MeanLog as MeanLog
from collapse.measures import Std as Std

PairOver = Literal["all", "distinct", "directions", "distinct_directions", "distinct_uncentred_directions"]
Over = PairOver | Literal["dual_directions"]
Function = TypeVar("Function", bound=Callable[..., Any])

_DECLARATION = "__collapse_declaration__"
_OVER = {"scalar": ("all",), "class": ("all", "directions", "dual_directions"), "pair": get_args(PairOver)}
_ABOUT: dict[str, tuple[type, ...]] = {
    "version": (int,),
    "source": (str,),
    "equation": (str,),
    "property_name": (str,),
    "scale": (int, float, NoneType),
    "translation": (bool,),
    "rotation": (bool,),
}


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
    def called(self) -> str:
        """The function's full name, for messages."""
        return f"{self.module}.{name_of(self.function)}"

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
        measures = (Measure(name, towards=towards, reachable=reachable),)
        return _attach(function, "scalar", needs, measures, vector=vector, better=better, **about)

    return declare


def class_metric(
    *, needs: Sequence[str], measures: Sequence[Measure], over: Over = "all", **about: Any
) -> Callable[[Function], Function]:
    """Declare ``f(statistics) -> (C,)``: a value a class, and the measures taken of it.

    Args:
        needs: What it reads (see :func:`metric`).
        measures: The measurements: ``Mean("nc3.self_duality", towards=1.0)`` and so on.
        over: "all", "directions" to leave out classes whose centred mean is zero, or "dual_directions" to leave out
            those whose classifier row is zero too: their value is nan.
        **about: version, source, equation, property_name, scale, translation, rotation.
    """
    return lambda function: _attach(function, "class", needs, measures, over=over, **about)


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
    return lambda function: _attach(function, "pair", needs, measures, over=over, **about)


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
    if not isinstance(found, Metric | Analysis):
        name = getattr(function, "__qualname__", None) or f"{function!r:.60}"
        raise PluginError(f"{name} is not declared: decorate it with @metric, @class_metric, @pair_metric or @analysis")
    return found


def limits_of(
    metric: Metric, measure: Measure, classes: int, dim: int, measured: Mapping[str, float | None] | None = None
) -> tuple[dict[str, float | None], str | None]:
    """Both limits of a measure, by keyword, and what is wrong with one; such a limit is None.

    ``measured`` is a row's measurements, for a limit that depends on them.

    Returns:
        ``{"towards": …, "reachable": …}``, and an error in a line or None.
    """
    limits, problem = {}, None
    for keyword in ("towards", "reachable"):
        try:
            limits[keyword] = limit_at(getattr(measure, keyword), classes, dim, measured)
        except PluginError as error:
            limits[keyword] = None
            problem = f"{keyword}= of {measure.name} ({metric.called}) is not shown: {error}"
    return limits, problem


def _attach(function: Function, kind: Any, needs: Sequence[str], measures: Any, **about: Any) -> Function:
    called = f"{getattr(function, '__module__', '?')}.{name_of(function)}"
    try:
        check_measures(kind, measures)
        _check_about(kind, needs, about)
    except PluginError as error:
        raise PluginError(f"the declaration of {called} is wrong: {error}") from error
    setattr(function, _DECLARATION, Metric(kind, function, tuple(needs), tuple(measures), **about))
    return function


def _check_about(kind: str, needs: Any, about: dict[str, Any]) -> None:
    if isinstance(needs, str) or not all(isinstance(need, str) for need in needs):
        raise PluginError(f"needs={needs!r:.60}: give a list of names, such as ['means']")
    choices = {"over": _OVER[kind], "better": ("lower", "higher", None)}
    for keyword, allowed in choices.items():
        if keyword in about and about[keyword] not in allowed:
            near = near_names(str(about[keyword]), [each for each in allowed if each])
            raise PluginError(f"{keyword}={about[keyword]!r:.40}: there is no such choice; {near}")
    for keyword, kinds in _ABOUT.items():
        if keyword in about and (type(about[keyword]) not in kinds):
            raise PluginError(f"{keyword}={about[keyword]!r:.40}: give {' or '.join(kind.__name__ for kind in kinds)}")
    if about.get("vector") is not None and not callable(about["vector"]):
        raise PluginError(f"vector={about['vector']!r:.40}: give a function of the statistics")
