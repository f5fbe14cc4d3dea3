"""Decorators that declare metrics, values that metrics share, and analyses.

A *measurement* is one named number. A scalar metric gives one measurement. A class metric gives one value per class,
and a pair metric gives one value per pair of classes. One or more *measures* (mean, standard deviation, ...) turn the
values of a class or pair metric into measurements. The names of a function's parameters say which values the function
reads (parameters.py). The decorators only attach a declaration to the function, so that the function can be called and
tested like any other. This module does not import torch.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from inspect import getdoc
from typing import Any, Literal, TypeVar

from collapse.errors import PluginError
from collapse.plugin.guarding import called
from collapse.plugin.measures import Limit, Measure, Scale, limit_at
from collapse.plugin.parameters import DECLARATION, FILE_PREFIX, closure, needs

Function = TypeVar("Function", bound=Callable[..., Any])

_NAME = re.compile(r"[a-z][a-z0-9_-]*")


@dataclass(frozen=True)
class Noted:
    """The result of a declared function with a remark: a value, or None if there is no value.

    A function that reads the value through a parameter gets the value without the remark. The remark is reported with
    the numbers of both functions. If the value is None, the reading function is not called and has no number.

    Attributes:
        value: The value, or None.
        text: The remark; for None, the reason.
        kind: Kind of the note in a row. "singletons" replaces the general note on classes with one sample.
    """

    value: Any
    text: str
    kind: str = "note"


@dataclass(frozen=True)
class Declared:
    """A function of a plugin, with its declaration."""

    function: Callable[..., Any]

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
        """The first line of the function's docstring."""
        return (self.function.__doc__ or "").strip().split("\n")[0]

    def line(self, heading: str) -> str:
        """Return the text after a heading such as ``Equation:`` in the function's docstring; "" without such a line."""
        found = re.search(rf"^{heading}:[ ]*(.+)$", getdoc(self.function) or "", re.MULTILINE)
        return found[1].strip() if found else ""


@dataclass(frozen=True)
class Derived(Declared):
    """A function declared with :func:`derived` (kind "derived") or :func:`pair_derived` (kind "pair")."""

    kind: Literal["derived", "pair"]


@dataclass(frozen=True)
class Metric(Declared):
    """A declared metric; its attributes are the arguments of :func:`metric` and its variants."""

    kind: Literal["scalar", "class", "pair"]
    measures: tuple[Measure, ...]
    scale: Scale = 0.0
    translation: bool = True
    version: int = 1
    better: Literal["lower", "higher"] | None = None
    vector: Callable[..., Any] | None = None
    standard_error: bool | Callable[..., Any] = False

    @property
    def equation(self) -> str:
        """The line ``Equation:`` of the function's docstring, or ""."""
        return self.line("Equation")

    @property
    def source(self) -> str:
        """The line ``Source:`` of the function's docstring, or ""."""
        return self.line("Source")

    @cached_property
    def needs(self) -> tuple[str, ...]:
        """What a store must hold for this metric: counts, means, …, or names of statistics."""
        return needs(self.function)

    @cached_property
    def reads(self) -> frozenset[str]:
        """The names of all values that the metric reads, directly or through other functions."""
        return frozenset(each.name for each in closure(self.function))

    def property_of(self, name: str) -> str:
        """Return the property to which a measurement belongs, such as NC1 for ``nc1.cdnv``.

        A name without a dot belongs to a property with the name of the metric's file.
        """
        return name.split(".")[0].upper() if "." in name else self.module.split(".")[-1].removeprefix(FILE_PREFIX)

    def equation_of(self, measure: Measure) -> str:
        """Return the equation that ``collapse metrics`` shows for a measurement, such as "Mean of ‖μ_c‖".

        It is the line ``Equation:`` of the docstring, or else the summary line. For class and pair metrics, the name of
        the measure comes first.
        """
        of = self.equation or self.summary.rstrip(".")
        return of if self.kind == "scalar" else f"{type(measure).__name__} of {of}"

    def scale_of(self, measure: Measure) -> float | None:
        """Return the exponent e if multiplying all embeddings by s multiplies a measurement by s^e, otherwise None."""
        return measure.scale_of(self.scale)


@dataclass(frozen=True)
class Analysis(Declared):
    """A declared function of a results table."""

    name: str

    def __call__(self, results: Any, **options: Any) -> Any:
        """Run the analysis on a results table."""
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
    """Declare a function that returns one number, which is one measurement.

    Args:
        name: The measurement's name.
        towards, reachable, reached_by, headline: As for :class:`Measure`.
        scale: The exponent e if h → s·h multiplies the number by s^e; None if the number changes in another way.
        translation: Whether the number stays the same if one vector is added to all embeddings.
        version: Increase it when the numbers change; every row records it.
        better: Whether "lower" or "higher" numbers are better, for a measurement without a value at full collapse.
            For val_loss, it is "lower".
        vector: A function that returns (ids, values), one value per class, for :func:`collapse.vectors`; its parameters
            name what it reads.
        standard_error: Whether the number has a standard error over the validation blocks. With True, collapse
            differentiates the number with respect to the parameter ``chunks`` (the totals over these blocks). So
            compute the number with torch operations only, from ``chunks`` or from measurements that are computed in
            this way. Instead of True, give a function that returns the influence of each of S groups of blocks on the
            number, shape (S,) (see numerics/standard_errors.py).

    Raises:
        PluginError: The name is invalid, or a limit has an unknown parameter.
    """
    measure = Measure(name, towards=towards, reachable=reachable, reached_by=reached_by, headline=headline)
    about = scale, translation, version, better, vector, standard_error
    return lambda function: declare(function, Metric(function, "scalar", (measure,), *about))


def class_metric(
    *measures: Measure, scale: Scale = 0.0, translation: bool = True, version: int = 1
) -> Callable[[Function], Function]:
    """Declare a function that returns one value per class, shape (C,), and the measures of these values.

    Args:
        measures: The measurements, such as ``Mean("nc3.self_duality", towards=1)``.
        scale: How the values change under h → s·h: a number p if they are multiplied by sᵖ, "log" if they are
            logarithms of such values, None if they change in another way. The change of each measure follows from this.
        translation, version: As for :func:`metric`.

    Raises:
        PluginError: No measures are given.
    """
    return lambda function: _declare_values(function, "class", measures, scale, translation, version)


def pair_metric(
    *measures: Measure, scale: Scale = 0.0, translation: bool = True, version: int = 1
) -> Callable[[Function], Function]:
    """Declare a function that returns one value per class pair, shape (R, S), and the measures of these values.

    The function is called for each tile, which holds the pairs of R classes (rows) with S classes (columns). The value
    of a pair must not depend on the order of its classes or on the tile. The function must not have side effects.

    Args:
        measures, scale, translation, version: As for :func:`class_metric`.

    Raises:
        PluginError: No measures are given.
    """
    return lambda function: _declare_values(function, "pair", measures, scale, translation, version)


def derived(function: Function) -> Function:
    """Declare a function that is called once per store.

    Other functions get its value through a parameter with this function's name.
    """
    return declare(function, Derived(function, "derived"))


def pair_derived(function: Function) -> Function:
    """Declare a function of class pairs that is called once per tile (see :func:`pair_metric`).

    Other functions of pairs get its value through a parameter with this function's name.
    """
    return declare(function, Derived(function, "pair"))


def analysis(name: str) -> Callable[[Function], Function]:
    """Declare ``f(results, *, options...)``: its annotated keyword parameters become command-line options.

    If the table has several layers, ``f`` gets only the rows of the layer ``top``. It gets all rows if the options
    contain the word ``layer``, as ``--where layer=4`` does, or if no row is of the layer ``top``.

    Raises:
        PluginError: The name is invalid.
    """
    check_name("analysis", name)
    return lambda function: declare(function, Analysis(function, name))


def check_name(kind: str, name: str) -> None:
    """Raise PluginError if a name is not valid for an analysis or figure on the command line."""
    if not _NAME.fullmatch(name):
        raise PluginError(
            f"{name!r} is not a valid {kind} name: use lower-case letters, digits, _ and -, with a letter first"
        )


def declare(function: Function, declared: Declared) -> Function:
    """Attach a declaration to a function, and return the function."""
    setattr(function, DECLARATION, declared)
    return function


def declaration(function: Any) -> Any:
    """Return the :class:`Metric`, :class:`Derived`, :class:`Analysis` or figure that a decorator attached.

    Raises:
        PluginError: The function was not declared.
    """
    found = getattr(function, DECLARATION, None)
    if found is None:
        raise PluginError(f"{called(function)} is not declared: add a decorator such as @metric")
    return found


def limits_of(
    metric: Metric, measure: Measure, classes: int, dim: int, measured: Mapping[str, float | None] | None = None
) -> tuple[dict[str, float | None], str | None]:
    """Return the limits as ``{"towards": …, "reachable": …}``, and a one-line error message or None.

    A limit whose function fails is None. ``measured`` is a row's measurements, for limits that depend on them.
    """
    limits, problem = {}, None
    for keyword in ("towards", "reachable"):
        try:
            limits[keyword] = limit_at(getattr(measure, keyword), classes, dim, measured)
        except PluginError as error:
            limits[keyword] = None
            problem = f"{keyword}= of {measure.name} ({metric.called}) is not shown: {error}"
    return limits, problem


def _declare_values(
    function: Function, kind: Any, measures: tuple[Measure, ...], scale: Scale, translation: bool, version: int
) -> Function:
    if not measures or not all(isinstance(each, Measure) for each in measures):
        raise PluginError(f"{called(function)} needs measures, such as Mean('mine.distance'), got {measures}")
    return declare(function, Metric(function, kind, measures, scale, translation, version))
