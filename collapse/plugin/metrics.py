"""Declarations of a plugin: metrics of three kinds, values that they share, and analyses.

A *measurement* is one named number. A scalar metric is one measurement. A class metric gives one value per class, and a
pair metric one value per pair of classes; one or more *measures* (mean, standard deviation, ...) turn these values into
measurements. The parameters of a function say what it reads. The decorators return the function unchanged except for
an attribute with its declaration, so that it can be called and tested like any other. Does not import torch.
"""

import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from inspect import getdoc
from typing import Any, Literal, TypeVar

from collapse.errors import PluginError
from collapse.plugin.analysis_options import check_parameters
from collapse.plugin.guarding import called
from collapse.plugin.measures import CoV as CoV
from collapse.plugin.measures import Limit, Measure, Scale, limit_at
from collapse.plugin.measures import LogMeanExp as LogMeanExp
from collapse.plugin.measures import Max as Max
from collapse.plugin.measures import Mean as Mean
from collapse.plugin.measures import MeanLog as MeanLog
from collapse.plugin.measures import Min as Min
from collapse.plugin.measures import Std as Std
from collapse.plugin.parameters import DECLARATION, closure, needs

Function = TypeVar("Function", bound=Callable[..., Any])

FILE_PREFIX = "collapse_plugin_"
"""Begins the module name of a plugin that is a file."""
_LINE = r"^{}:[ ]*(.+)$"


@dataclass(frozen=True)
class Noted:
    """A function's value with a remark; None for a value that is not available.

    Those who ask for it get the value, and the remark is reported with their numbers. Without a value, they have none.
    """

    value: Any
    text: str
    kind: str = "note"


@dataclass(frozen=True)
class Derived:
    """A declared function whose value others ask for by its name."""

    kind: Literal["derived", "pair"]
    function: Callable[..., Any]


@dataclass(frozen=True)
class Metric:
    """A declared metric: a function, and everything that tables, tests and docs need."""

    kind: Literal["scalar", "class", "pair"]
    function: Callable[..., Any]
    measures: tuple[Measure, ...]
    scale: Scale = 0.0
    translation: bool = True
    version: int = 1
    better: Literal["lower", "higher"] | None = None
    vector: Callable[..., Any] | None = None
    standard_error: bool | Callable[..., Any] = False

    @property
    def module(self) -> str:
        """The function's module."""
        return self.function.__module__

    @property
    def called(self) -> str:
        """The function's full name, for messages."""
        return called(self.function)

    @property
    def summary(self) -> str:
        """The first line of its docstring."""
        return (self.function.__doc__ or "").strip().split("\n")[0]

    @property
    def equation(self) -> str:
        """The line ``Equation:`` of its docstring, or ""."""
        return _line_of(self.function, "Equation")

    @property
    def source(self) -> str:
        """The line ``Source:`` of its docstring, or ""."""
        return _line_of(self.function, "Source")

    @cached_property
    def needs(self) -> tuple[str, ...]:
        """What a store must hold for it: counts, means, …, or statistics by their names."""
        return needs(self.function)

    @cached_property
    def reads(self) -> frozenset[str]:
        """The names that it, and what it asks for, ask for."""
        return frozenset(each.name for each in closure(self.function))

    def property_of(self, name: str) -> str:
        """Return the property of a measurement: NC1 for ``nc1.cdnv``; of a name without a dot, its file."""
        return name.split(".")[0].upper() if "." in name else self.module.split(".")[-1].removeprefix(FILE_PREFIX)

    def equation_of(self, measure: Measure) -> str:
        """Describe a measurement in one line: the measure, and the equation or summary of its values."""
        of = self.equation or self.summary.rstrip(".")
        return of if self.kind == "scalar" else f"{type(measure).__name__} of {of}"

    def scale_of(self, measure: Measure) -> float | None:
        """Return the exponent of a measure's change under h → s·h, or None."""
        return measure.scale_of(self.scale)


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
    towards: Limit = None,
    reachable: Limit = None,
    reached_by: str = "",
    headline: bool = False,
    scale: Scale = 0.0,
    translation: bool = True,
    version: int = 1,
    better: Literal["lower", "higher"] | None = None,
    vector: Callable[..., Any] | None = None,
    standard_error: bool | Callable[..., Any] = False,
) -> Callable[[Function], Function]:
    """Declare a function that returns one number: one measurement.

    Args:
        name: The measurement's name.
        towards, reachable, reached_by, headline: As for :class:`Measure`.
        scale: Exponent of its change under h → s·h; None if it follows no power.
        translation: Whether it is invariant when a vector is added to all embeddings.
        version: Increased when the numbers change; recorded in every row.
        better: Which direction is better, for measurements without a value at collapse (val_loss: lower).
        vector: A function that returns (ids, values), its values per class, for :func:`collapse.vectors`.
        standard_error: Whether the number is a smooth function of ``chunks``, whose derivative gives its standard
            error; or a function that returns the influence of each of S groups of samples, shape (S,).
    """
    measure = Measure(name, towards=towards, reachable=reachable, reached_by=reached_by, headline=headline)
    about = {"scale": scale, "translation": translation, "version": version}
    own = {"better": better, "vector": vector, "standard_error": standard_error}
    return lambda function: _attach(function, "scalar", (measure,), {**about, **own})


def class_metric(
    *measures: Measure, scale: Scale = 0.0, translation: bool = True, version: int = 1
) -> Callable[[Function], Function]:
    """Declare a function that returns one value per class, shape (C,), and the measures of these values.

    Args:
        measures: The measurements, such as ``Mean("nc3.self_duality", towards=1)``.
        scale: How the values change under h → s·h: the exponent of s; "log" for logarithms of such values; or None.
            Each measure follows from it.
        translation, version: As for :func:`metric`.
    """
    about = {"scale": scale, "translation": translation, "version": version}
    return lambda function: _attach(function, "class", measures, about)


def pair_metric(
    *measures: Measure, scale: Scale = 0.0, translation: bool = True, version: int = 1
) -> Callable[[Function], Function]:
    """Declare a function that returns one value per pair of classes of a tile; elementwise, symmetric and pure.

    Args:
        measures, scale, translation, version: As for :func:`class_metric`.
    """
    about = {"scale": scale, "translation": translation, "version": version}
    return lambda function: _attach(function, "pair", measures, about)


def derived(function: Function) -> Function:
    """Declare a function whose value other functions ask for by its name; computed once per measured store."""
    setattr(function, DECLARATION, Derived("derived", function))
    return function


def pair_derived(function: Function) -> Function:
    """Declare a function of pairs whose value other functions of pairs ask for; computed once per tile."""
    setattr(function, DECLARATION, Derived("pair", function))
    return function


def analysis(name: str) -> Callable[[Function], Function]:
    """Declare ``f(results, *, options...)``: its annotated keyword parameters become command-line options."""

    def declare(function: Function) -> Function:
        check_parameters(function)
        setattr(function, DECLARATION, Analysis(name, function))
        return function

    return declare


def declaration(function: Any) -> Any:
    """Return the :class:`Metric`, :class:`Derived` or :class:`Analysis` that a decorator attached to a function.

    Raises:
        PluginError: The function was not declared.
    """
    found = getattr(function, DECLARATION, None)
    if found is None:
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


def _attach(function: Function, kind: Any, measures: tuple[Measure, ...], about: dict[str, Any]) -> Function:
    try:
        _check(kind, measures, about)
    except PluginError as error:
        raise PluginError(f"the declaration of {called(function)} is wrong: {error}") from error
    setattr(function, DECLARATION, Metric(kind, function, measures, **about))
    return function


def _check(kind: str, measures: tuple[Any, ...], about: dict[str, Any]) -> None:
    if not measures:
        raise PluginError("give one measure or more, such as Mean('mine.distance')")
    for each in measures:
        if not isinstance(each, Measure) or (kind != "scalar" and type(each).reducer is Measure.reducer):
            raise PluginError(f"{each!r:.60} cannot reduce values: give Mean, Std, CoV, … of collapse")
    names = [each.name for each in measures]
    if len(set(names)) < len(names):
        raise PluginError(f"two measures have one name: {', '.join(names)}")
    scale, version, better = about["scale"], about["version"], about.get("better")
    power = isinstance(scale, int | float) and not isinstance(scale, bool) and math.isfinite(scale)
    if not (power or scale is None or (scale == "log" and kind != "scalar")):
        raise PluginError(f"scale={scale!r:.40}: give the exponent of s, None, or 'log' for values of classes or pairs")
    if type(version) is not int or version < 1:
        raise PluginError(f"version={version!r:.40}: give a whole number from 1 on")
    if better not in (None, "lower", "higher"):
        raise PluginError(f"better={better!r:.40}: give 'lower', 'higher' or None")


def _line_of(function: Callable[..., Any], heading: str) -> str:
    found = re.search(_LINE.format(heading), getdoc(function) or "", re.MULTILINE)
    return found[1].strip() if found else ""
