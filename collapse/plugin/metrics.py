"""Declarations of a plugin: metrics of three kinds with their measures, and analyses.

A *measurement* is one named number. A scalar metric is one measurement. A class metric gives one value per class, and a
pair metric one value per pair of classes; one or more *measures* (mean, standard deviation, ...) turn these values into
measurements. The decorators return the function unchanged except for an attribute with its declaration, so that it can
be called, tested and doctested like any other function. Does not import torch.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from inspect import cleandoc
from itertools import takewhile
from types import EllipsisType
from typing import Any, Literal, TypedDict, TypeVar, Unpack

from collapse.errors import PluginError
from collapse.plugin.analysis_options import check_parameters
from collapse.plugin.asking import Noted as Noted
from collapse.plugin.asking import ask, asked, asks_of, needs_of
from collapse.plugin.asking import derived as derived
from collapse.plugin.keywords import check_keywords
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

DECLARATION = "__collapse_declaration__"
FILE_PREFIX = "collapse_plugin_"
"""Begins the module name of a plugin that is a file."""


class About(TypedDict, total=False):
    """Keywords of all three decorators.

    Attributes:
        version: Increased when the numbers change; recorded in every row.
        scale: Exponent of its change under h → s·h; None if it follows no power.
        translation: Whether it is invariant when a vector is added to all embeddings.
    """

    version: int
    scale: float | None
    translation: bool


@dataclass(frozen=True)
class Metric:
    """A declared metric: a function, and everything that tables, tests and docs need.

    ``of``, ``over``, ``vector`` and ``influence`` are called with the statistics, or with a tile of pairs.
    """

    kind: Literal["scalar", "class", "pair"]
    function: Callable[..., Any]
    measures: tuple[Measure, ...]
    declared_needs: tuple[str, ...] | None = None
    over: Over | Callable[[Any], Any] = "all"
    version: int = 1
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

    def of(self, holder: Any) -> Any:
        """Call the function with what it asks for, of statistics or of a tile of pairs."""
        return ask(self.function, holder)

    @cached_property
    def needs(self) -> tuple[str, ...]:
        """What a store needs to hold for it: what its function asks for, unless it declares something else."""
        return needs_of(self.function) if self.declared_needs is None else self.declared_needs

    @property
    def summary(self) -> str:
        """The first line of its docstring."""
        return (self.function.__doc__ or "").strip().split("\n")[0]

    @property
    def source(self) -> str:
        """Where the definition is published: the docstring's line ``Source: …``."""
        return _line_of(self.function, "Source")

    @property
    def equation(self) -> str:
        """The docstring's line ``Equation: …``."""
        return _line_of(self.function, "Equation")

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
    needs: Sequence[str] | None = None,
    towards: Limit = None,
    reachable: Limit = None,
    reached_by: str = "",
    vector: Callable[..., Any] | None = None,
    influence: Callable[..., Any] | None = None,
    better: Literal["lower", "higher"] | None = None,
    headline: bool = False,
    **about: Unpack[About],
) -> Callable[[Function], Function]:
    """Declare a function of what it asks for that returns one number: one measurement.

    Args:
        name: The measurement's name.
        needs: What a store needs to hold, for a function that asks for ``s``; else its parameters say it.
        towards: Its value at full collapse: a number, a function of C, d and measured, or None.
        reachable: The value that C classes in d dimensions can reach, if it differs.
        reached_by: What attains it if it is no bound, such as "uniform random points".
        vector: A function that returns ids and values, its values per class, for :func:`collapse.vectors`.
        influence: A function that returns the influence of each validation block on it, shape (S,), for its standard
            error: docs/plugins.md.
        better: Which direction is better, for measurements without a value at collapse (val_loss: lower).
        headline: Whether ``collapse measure`` prints it by default.
        **about: version, scale and translation, as in docs/plugins.md.
    """

    def declare(function: Function) -> Function:
        measures = (Measure(name, towards=towards, reachable=reachable, reached_by=reached_by, headline=headline),)
        own = {"vector": vector, "influence": influence, "better": better}
        return _attach(function, "scalar", needs, measures, {**own, **about})

    return declare


def class_metric(
    *measures: Measure,
    needs: Sequence[str] | None = None,
    over: Over | Callable[..., Any] = "all",
    **about: Unpack[About],
) -> Callable[[Function], Function]:
    """Declare a function of what it asks for that returns one value per class, (C,), and the measures of these values.

    Args:
        *measures: The measurements, such as ``Mean("nc3.self_duality", towards=1.0)``.
        needs: What a store needs to hold (see :func:`metric`).
        over: "all"; "directions" to exclude classes whose centred mean is zero; or "dual_directions" to exclude also
            those whose classifier row is zero. The value of an excluded class is nan. Or a function that returns the
            classes to include, bool of shape (C,).
        **about: version, scale and translation, as in docs/plugins.md.
    """
    return lambda function: _attach(function, "class", needs, measures, {"over": over, **about})


def pair_metric(
    *measures: Measure,
    needs: Sequence[str] | None = None,
    over: Over | Callable[..., Any] = "all",
    **about: Unpack[About],
) -> Callable[[Function], Function]:
    """Declare a function of fields of pairs that returns one value per pair: elementwise, symmetric and pure.

    Args:
        *measures: The measurements.
        needs: What a store needs to hold (see :func:`metric`).
        over: "all"; "distinct" (excludes pairs of equal means); "directions" (excludes pairs with a class whose centred
            mean is zero); "distinct_directions" (excludes equal unit vectors too); "distinct_uncentred_directions" (the
            same without centring). Or a function that returns the pairs to include, bool of the tile's shape.
        **about: version, scale and translation, as in docs/plugins.md.
    """
    return lambda function: _attach(function, "pair", needs, measures, {"over": over, **about})


def analysis(name: str) -> Callable[[Function], Function]:
    """Declare ``f(results, *, options...)``: its annotated keyword parameters become command-line options."""

    def declare(function: Function) -> Function:
        check_parameters(function)
        setattr(function, DECLARATION, Analysis(name, function))
        return function

    return declare


def declaration(function: Any) -> Any:
    """Return the :class:`Metric` or :class:`Analysis` that a decorator attached to a function.

    Raises:
        PluginError: The function was not declared.
    """
    found = getattr(function, DECLARATION, None)
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
        check_keywords(kind, needs, about)
        asks_of(function)
        for keyword in ("over", "vector", "influence"):
            if callable(about.get(keyword)):
                about[keyword] = asked(about[keyword])
    except PluginError as error:
        raise PluginError(f"the declaration of {called} is wrong: {error}") from error
    declared = None if needs is None else tuple(needs)
    setattr(function, DECLARATION, Metric(kind, function, tuple(measures), declared, **about))
    return function


def _line_of(function: Callable[..., Any], title: str) -> str:
    """Return the text after a title in a docstring; it may go on in lines that are indented further."""
    lines = cleandoc(function.__doc__ or "").split("\n")
    for at, line in enumerate(lines):
        if line.startswith(f"{title}: "):
            more = takewhile(lambda each: each.startswith("    "), lines[at + 1 :])
            return " ".join([line.removeprefix(f"{title}: "), *map(str.strip, more)])
    return ""
