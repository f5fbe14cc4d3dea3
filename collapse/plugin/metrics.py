"""Declarations of a plugin: metrics of three kinds with their measures, and analyses.

A *measurement* is one named number. A scalar metric is one measurement. A class metric gives one value per class, and a
pair metric one value per pair of classes; one or more *measures* (mean, standard deviation, ...) turn these values into
measurements. The decorators return the function unchanged except for an attribute with its declaration, so that it can
be called, tested and doctested like any other function. Does not import torch.
"""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from inspect import signature
from types import EllipsisType, NoneType
from typing import Any, Literal, TypedDict, TypeVar, Unpack, get_args

from collapse.errors import PluginError, near_names
from collapse.plugin.analysis_options import check_parameters
from collapse.plugin.measures import CoV as CoV
from collapse.plugin.measures import Limit, Measure, check_measures, limit_at, name_of
from collapse.plugin.measures import LogMeanExp as LogMeanExp
from collapse.plugin.measures import Max as Max
from collapse.plugin.measures import Mean as Mean
from collapse.plugin.measures import MeanLog as MeanLog
from collapse.plugin.measures import Min as Min
from collapse.plugin.measures import Std as Std

PairOver = Literal["all", "distinct", "directions", "distinct_directions", "distinct_uncentred_directions"]
Over = PairOver | Literal["dual_directions"]
Function = TypeVar("Function", bound=Callable[..., Any])

_DECLARATION = "__collapse_declaration__"
FILE_PREFIX = "collapse_plugin_"
"""Begins the module name of a plugin that is a file."""
_OVER = {"scalar": ("all",), "class": ("all", "directions", "dual_directions"), "pair": get_args(PairOver)}
_KINDS: dict[str, tuple[type, ...]] = {
    "version": (int,),
    "source": (str,),
    "equation": (str,),
    "scale": (int, float, NoneType),
    "translation": (bool,),
}


class About(TypedDict, total=False):
    """Keywords of all three decorators.

    Attributes:
        version: Increased when the numbers change; recorded in every row.
        source: Where the definition is published, for tables.
        equation: The equation, for tables.
        scale: Exponent of its change under h → s·h; None if it follows no power.
        translation: Whether it is invariant when a vector is added to all embeddings.
    """

    version: int
    source: str
    equation: str
    scale: float | None
    translation: bool


@dataclass(frozen=True)
class Noted:
    """A metric's number with a remark; None for a number that is not available."""

    value: Any
    text: str
    kind: str = "note"


@dataclass(frozen=True)
class Metric:
    """A declared metric: a function, and everything that tables, tests and docs need."""

    kind: Literal["scalar", "class", "pair"]
    function: Callable[..., Any]
    needs: tuple[str, ...]
    measures: tuple[Measure, ...]
    over: Over | Callable[[Any], Any] = "all"
    version: int = 1
    source: str = ""
    equation: str = ""
    scale: float | None = 0.0
    translation: bool = True
    vector: Callable[[Any], Any] | None = None
    influence: Callable[[Any], Any] | None = None
    better: Literal["lower", "higher"] | None = None

    @property
    def module(self) -> str:
        """The function's module, for messages."""
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
        """Return the property of a measurement: NC1 for ``nc1.cdnv``; of a name without a dot, its file."""
        return name.split(".")[0].upper() if "." in name else self.module.split(".")[-1].removeprefix(FILE_PREFIX)

    def equation_of(self, measure: Measure) -> str:
        """Describe a measurement in one line: the measure, and the equation or summary of its values."""
        of = self.equation or self.summary.rstrip(".")
        if self.kind == "scalar":
            return of
        factor = (measure.times.__doc__ or "a factor").split("\n")[0].rstrip(".") if measure.times else ""
        return f"{type(measure).__name__} of {of}" + (f" · {factor}" if factor else "")

    def scale_of(self, measure: Measure) -> float | None:
        """Return the exponent of a measure's change under h → s·h, or None."""
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
    reached_by: str = "",
    vector: Callable[[Any], Any] | None = None,
    influence: Callable[[Any], Any] | None = None,
    better: Literal["lower", "higher"] | None = None,
    headline: bool = False,
    **about: Unpack[About],
) -> Callable[[Function], Function]:
    """Declare ``f(statistics) -> number``: one measurement.

    Args:
        name: The measurement's name.
        needs: What it reads: counts, means, variances, classifier, validation, n_params, or a statistic's name.
        towards: Its value at full collapse (a number, a function of (C, d), or None).
        reachable: The value that C classes in d dimensions can reach, if it differs.
        reached_by: What attains it if it is no bound, such as "uniform random points".
        vector: ``g(statistics) -> (ids, values)``, its values per class, for :func:`collapse.vectors`.
        influence: ``g(statistics) -> (S,)``, of each validation block on it, for its standard error: docs/plugins.md.
        better: Which direction is better, for measurements without a value at collapse (val_loss: lower).
        headline: Whether ``collapse measure`` prints it by default.
        **about: version, source, equation, scale and translation, as in docs/plugins.md.
    """

    def declare(function: Function) -> Function:
        measures = (Measure(name, towards=towards, reachable=reachable, reached_by=reached_by, headline=headline),)
        own = {"vector": vector, "influence": influence, "better": better}
        return _attach(function, "scalar", needs, measures, {**own, **about})

    return declare


def class_metric(
    *,
    needs: Sequence[str],
    measures: Sequence[Measure],
    over: Over | Callable[[Any], Any] = "all",
    **about: Unpack[About],
) -> Callable[[Function], Function]:
    """Declare ``f(statistics) -> (C,)``: one value per class, and the measures of these values.

    Args:
        needs: What it reads (see :func:`metric`).
        measures: The measurements, such as ``Mean("nc3.self_duality", towards=1.0)``.
        over: "all"; "directions" to exclude classes whose centred mean is zero; or "dual_directions" to exclude also
            those whose classifier row is zero. The value of an excluded class is nan. Or a function of the statistics
            that returns the classes to include, bool of shape (C,).
        **about: version, source, equation, scale and translation, as in docs/plugins.md.
    """
    return lambda function: _attach(function, "class", needs, measures, {"over": over, **about})


def pair_metric(
    *, needs: Sequence[str], measures: Sequence[Measure], over: Over | Callable[[Any], Any], **about: Unpack[About]
) -> Callable[[Function], Function]:
    """Declare ``f(pair) -> tile``: one value per pair of classes, elementwise, symmetric and pure.

    Args:
        needs: What it reads (see :func:`metric`).
        measures: The measurements.
        over: "all"; "distinct" (excludes pairs of equal means); "directions" (excludes pairs with a class whose centred
            mean is zero); "distinct_directions" (excludes equal unit vectors too); "distinct_uncentred_directions" (the
            same without centring). Or a function of the pair that returns the pairs to include, bool of the tile's
            shape.
        **about: version, source, equation, scale and translation, as in docs/plugins.md.
    """
    return lambda function: _attach(function, "pair", needs, measures, {"over": over, **about})


def analysis(name: str) -> Callable[[Function], Function]:
    """Declare ``f(results, *, options...)``: its annotated keyword parameters become command-line options."""

    def declare(function: Function) -> Function:
        check_parameters(function)
        setattr(function, _DECLARATION, Analysis(name, function))
        return function

    return declare


def declaration(function: Any) -> Any:
    """Return the :class:`Metric` or :class:`Analysis` that a decorator attached to a function.

    Raises:
        PluginError: The function was not declared.
    """
    found = getattr(function, _DECLARATION, None)
    if not isinstance(found, Metric | Analysis):
        name = getattr(function, "__qualname__", None) or f"{function!r:.60}"
        raise PluginError(f"{name} is not declared: decorate it with @metric, @class_metric, @pair_metric or @analysis")
    return found


def limits_of(
    metric: Metric, measure: Measure, classes: int, dim: int, measured: Mapping[str, float | None] | None = None
) -> tuple[dict[str, float | None], str | None]:
    """Return both limits of a measure by keyword, None for one that fails, and the error.

    ``measured`` is a row's measurements, for a limit that depends on them.

    Returns:
        ``{"towards": …, "reachable": …}``, and a one-line error or None.
    """
    limits, problem = {}, None
    for keyword in ("towards", "reachable"):
        try:
            limits[keyword] = limit_at(getattr(measure, keyword), classes, dim, measured)
        except PluginError as error:
            limits[keyword] = None
            problem = f"{keyword}= of {measure.name} ({metric.called}) is not shown: {error}"
    return limits, problem


def _attach(function: Function, kind: Any, needs: Any, measures: Any, about: dict[str, Any]) -> Function:
    called = f"{getattr(function, '__module__', '?')}.{name_of(function)}"
    try:
        check_measures(kind, measures)
        _check_about(kind, needs, about)
    except PluginError as error:
        raise PluginError(f"the declaration of {called} is wrong: {error}") from error
    setattr(function, _DECLARATION, Metric(kind, function, tuple(needs), tuple(measures), **about))
    return function


def _check_about(kind: str, needs: Any, about: dict[str, Any]) -> None:
    own = {"scalar": {"vector", "influence", "better"}}.get(kind, {"over"})
    for keyword in sorted(about.keys() - _KINDS.keys() - own):
        if keyword in ("towards", "reachable", "times", "headline"):
            raise PluginError(f"{keyword}= belongs to a measure, such as Mean(name, {keyword}=…)")
        decorators: dict[str, Callable[..., Any]] = {"scalar": metric, "class": class_metric, "pair": pair_metric}
        named = [
            each.name for each in signature(decorators[kind]).parameters.values() if each.kind is each.KEYWORD_ONLY
        ]
        raise PluginError(f"it has no keyword {keyword}=; {near_names(keyword, {*_KINDS, *named})}")
    if isinstance(needs, str) or not isinstance(needs, Iterable) or not all(isinstance(need, str) for need in needs):
        raise PluginError(f"needs={needs!r:.60}: give a list of names, such as ['means']")
    choices = {"over": _OVER[kind], "better": ("lower", "higher", None)}
    for keyword, allowed in choices.items():
        if keyword == "over" and kind != "scalar" and callable(about.get("over")):
            continue
        if keyword in about and about[keyword] not in allowed:
            near = near_names(str(about[keyword]), [each for each in allowed if each])
            raise PluginError(f"{keyword}={about[keyword]!r:.40}: there is no such choice; {near}")
    for keyword, kinds in _KINDS.items():
        if keyword in about and (type(about[keyword]) not in kinds):
            raise PluginError(f"{keyword}={about[keyword]!r:.40}: give {' or '.join(kind.__name__ for kind in kinds)}")
    if about.get("scale") is not None and not math.isfinite(about["scale"]):
        raise PluginError(f"scale={about['scale']!r}: give a finite number or None")
    if about.get("version", 1) < 1:
        raise PluginError(f"version={about['version']!r}: give a number from 1 on")
    for keyword in ("vector", "influence"):
        if about.get(keyword) is not None and not callable(about[keyword]):
            raise PluginError(f"{keyword}={about[keyword]!r:.40}: give a function of the statistics")
