"""What a plugin's module declares, and checks of it before it is registered."""

import re
from types import FunctionType
from typing import Any

from collapse.errors import PluginError, near_names
from collapse.plugin.asking import HELD, OF_CLASSES, OF_PAIRS
from collapse.plugin.figures import FIGURE, declared_figure
from collapse.plugin.metrics import DECLARATION, Analysis, Metric, declaration
from collapse.plugin.registry import COLLECTED, COLUMNS, VECTORS, Plugins

_ANALYSIS_NAME = re.compile(r"[a-z][a-z0-9_-]*")


def check_declared(offered: Any) -> str:
    """Return the name of a statistic's class; raises PluginError if its name, phase or version is invalid."""
    name = getattr(offered, "name", "")
    named = isinstance(name, str) and name.isascii() and name.isidentifier()
    if not named or name.lower() in (*COLLECTED, "train"):  # its file would replace one of the store's own files
        raise PluginError(f"{name!r} cannot name a statistic: use a new identifier of ASCII letters, digits and _")
    from collapse.plugin.statistic import Statistic, ValidationStatistic

    if not isinstance(offered, type) or not issubclass(offered, Statistic):
        raise PluginError(f"statistic {name} must be a subclass of collapse.Statistic or collapse.ValidationStatistic")
    if offered.phase != ("validation" if issubclass(offered, ValidationStatistic) else "train"):
        raise PluginError(
            f"statistic {name} says phase = {offered.phase!r}: leave it out; what is filled on the validation text is "
            "a subclass of collapse.ValidationStatistic"
        )
    if offered.phase == "validation" and any(each.reduction == "chan" for each in offered.state.values()):
        raise PluginError(f"statistic {name}: reduction='chan' is for training samples, whose means are known by class")
    version = getattr(offered, "version", None)
    if type(version) is not int or not 0 <= version < 1 << 63:
        raise PluginError(f"statistic {name} must have a whole number of 64 bits, 0 or more, as its version")
    return str(name)


def declared_in(module: Any) -> list[tuple[str, Any]]:
    """Return what a module declares, with its kind, in order: metrics, statistics, analyses and figures.

    That is each of its globals that was defined in it, and whatever stands in one of its lists.
    """
    found: list[tuple[str, Any]] = []
    for value in list(vars(module).values()):
        listed = isinstance(value, list | tuple)
        for each in value if listed else [value]:
            kind = kind_of(each)
            own = listed or getattr(each, "__module__", None) == getattr(module, "__name__", None)
            if kind and own and not any(each is other for _, other in found):
                found.append((kind, each))
    return found


def kind_of(value: Any) -> str | None:
    """Return the kind of a declared function or of the class of a statistic; None for anything else."""
    if isinstance(value, type):
        bases = {base.__name__ for base in value.__mro__[1:] if base.__module__ == "collapse.plugin.statistic"}
        return "statistic" if "Statistic" in bases and "name" in vars(value) else None
    if not isinstance(value, FunctionType):
        return None
    if FIGURE in vars(value):
        return "figure"
    declared = vars(value).get(DECLARATION)
    return None if declared is None else "analysis" if isinstance(declared, Analysis) else "metric"


def take(loaded: Plugins, kind: str, plugin: str, offered: Any) -> None:
    """Register something that a plugin declares; raises PluginError if it is unusable."""
    if kind == "statistic":
        name = check_declared(offered)
        taken = loaded.statistics.get(name)
        if taken is not None:
            raise PluginError(f"statistic {name} is already defined in {taken.__module__}")
        loaded.statistics[name] = offered
        loaded.origins[kind, name] = plugin
    elif kind == "analysis":
        analysis = declaration(offered)
        if not isinstance(analysis.name, str) or not _ANALYSIS_NAME.fullmatch(analysis.name):
            raise PluginError(f"{analysis.name!r:.40} is not an analysis name: use lower-case letters, digits, _ and -")
        if analysis.name in loaded.analyses:
            other = loaded.analyses[analysis.name].function.__module__
            raise PluginError(f"analysis {analysis.name} is already defined in {other}")
        loaded.analyses[analysis.name] = analysis
        loaded.origins[kind, analysis.name] = plugin
    elif kind == "figure":
        figure = declared_figure(offered)
        if figure.name in loaded.figures:
            other = loaded.figures[figure.name].function.__module__
            raise PluginError(f"figure {figure.name} is already defined in {other}")
        loaded.figures[figure.name] = figure
        loaded.origins[kind, figure.name] = plugin
    else:
        metric = declaration(offered)
        _check_metric(loaded, metric)
        loaded.metrics.append(metric)
        loaded.origins.update({(kind, measure.name): plugin for measure in metric.measures})


def _check_metric(loaded: Plugins, metric: Metric) -> None:
    taken = loaded.measurements()
    for measure in metric.measures:
        if measure.name in COLUMNS:
            raise PluginError(
                f"metric {measure.name} of {metric.module} has the name of another column of every table: "
                f"call it mine.{measure.name} or the like"
            )
        if measure.name in VECTORS:
            raise PluginError(
                f"metric {measure.name} of {metric.module} has the name of a vector of every store: "
                f"call it mine.{measure.name} or the like"
            )
        if measure.name in taken:
            other = taken[measure.name][0].module
            raise PluginError(
                f"metric {measure.name} of {metric.module} is already defined in {other}: give it another name"
            )
    known = {*COLLECTED, *loaded.statistics}
    for need in metric.needs:
        if need not in known:
            names = ", ".join(measure.name for measure in metric.measures)
            what = "needs" if metric.declared_needs else "asks for"
            names_known = {*known, *HELD, *OF_CLASSES, *(OF_PAIRS if metric.kind == "pair" else ())}
            raise PluginError(f"metric {names} {what} {need!r}, which no store holds; {near_names(need, names_known)}")
