"""The registry of metrics, statistics, analyses and figures by name, and checks of what a plugin adds."""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import pluggy

from collapse.errors import CollapseError, PluginError, UsageError, near_names
from collapse.plugin.figures import Figure
from collapse.plugin.guarding import called, error_line
from collapse.plugin.loading import Plugin, new_manager
from collapse.plugin.metrics import Analysis, Measure, Metric, declaration
from collapse.plugin.parameter_names import HELD, OF_CLASSES, OF_OTHERS, OF_PAIRS
from collapse.plugin.parameters import DECLARATION, asked, check

if TYPE_CHECKING:
    from collapse.plugin.statistic import Statistic

Chosen = Mapping[str, tuple[Metric, Measure]]
"""Measurements by name."""

Wanted = str | Callable[..., Any] | Iterable[str | Callable[..., Any]] | Chosen | None
"""Selected measurements: names and prefixes, functions declared as metrics, a :data:`Chosen`, or None for all
measurements except those of opt-in plugins."""


@dataclass
class Plugins:
    """All declarations of plugins by name, and the problems of plugins that cannot be used."""

    found: list[Plugin] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    metrics: list[Metric] = field(default_factory=list)
    statistics: dict[str, type["Statistic"]] = field(default_factory=dict)
    analyses: dict[str, Analysis] = field(default_factory=dict)
    figures: dict[str, Figure] = field(default_factory=dict)
    manager: pluggy.PluginManager = field(default_factory=new_manager)

    def owner(self, module: str) -> Plugin:
        """Return the plugin of a module; for a module that is not registered, a Plugin without an origin."""
        return next((each for each in self.found if each.module == module), Plugin(module, ""))

    def made_by(self, measurements: Chosen) -> dict[str, str]:
        """Return the plugin of each measurement, as rows record it: its distribution and version, or its file.

        Measurements of modules that are not registered, such as a notebook, are omitted.
        """
        made_by = {name: self.owner(metric.module).made_by for name, (metric, _) in measurements.items()}
        return {name: by for name, by in made_by.items() if by}

    def measurements(self) -> dict[str, tuple[Metric, Measure]]:
        """Return every measurement by name, sorted."""
        pairs = {measure.name: (metric, measure) for metric in self.metrics for measure in metric.measures}
        return dict(sorted(pairs.items()))

    def select(self, names: str | Iterable[str] | None, others: Collection[str] = ()) -> list[str]:
        """Expand names and prefixes to measurement names: ``gnc2`` or ``GNC2`` means every ``gnc2.…``.

        A string may hold several names, separated by commas. None means all measurements with two exceptions:
        measurements of opt-in plugins are excluded, and a measurement that reads another store (``ood`` or
        ``previous``) is excluded unless ``others`` names this store.

        Raises:
            UsageError: No name is given, or a name is unknown; the message suggests similar names.
        """
        known = list(self.measurements())
        if names is None:
            lacking, opt_in = OF_OTHERS.keys() - set(others), {each.module for each in self.found if each.opt_in}
            left_out = [each for each in self.metrics if each.module in opt_in or lacking & {*each.needs}]
            hidden = {measure.name for each in left_out for measure in each.measures}
            return [name for name in known if name not in hidden]
        see = "(list all with: collapse metrics)"
        given = [names] if isinstance(names, str) else names
        wanted = [each.strip() for name in given for each in name.split(",") if each.strip()]
        if not wanted:
            raise UsageError(f"no metric is named: give a name or a prefix, such as nc1 {see}")
        chosen: set[str] = set()
        for name in wanted:
            matching = [each for each in known if f"{each}.".startswith(f"{name.lower()}.")]
            if not matching:
                near = near_names(name, {*known, *(each.split(".")[0] for each in known)})
                raise UsageError(f"no metric is called {name!r}; {near} {see}")
            chosen.update(matching)
        return [name for name in known if name in chosen]

    def chosen(self, wanted: Wanted, others: Collection[str] = ()) -> Chosen:
        """Return the wanted measurements by name.

        Measurements that are given by name (see :meth:`select`) come first, then the measurements of given functions.

        Raises:
            UsageError: A name is unknown, nothing is named, or a function is not a metric.
            PluginError: A parameter of a function names an unknown value, or a measurement of a function has the name
                of another measurement.
        """
        if isinstance(wanted, Mapping):
            return wanted
        names: Any = wanted
        functions: list[Any] = []
        if callable(wanted) or not isinstance(wanted, str | None):
            given = [wanted] if callable(wanted) else list(wanted)
            functions = [each for each in given if callable(each)]
            names = [each for each in given if not callable(each)]
        known = self.measurements()
        found = {name: known[name] for name in (self.select(names, others) if names or not functions else ())}
        for function in dict.fromkeys(functions):
            metric = getattr(function, DECLARATION, None)
            if not isinstance(metric, Metric):
                decorators = "@collapse.metric, @collapse.class_metric or @collapse.pair_metric"
                raise UsageError(f"{called(function)} is not a metric: decorate it with {decorators}")
            asked.cache_clear()  # a notebook may have redefined functions that are parameters of this one
            self._check(metric, {name: each for name, each in (known | found).items() if each[0] is not metric})
            metric = replace(metric)  # a copy without cached properties
            found |= {measure.name: (metric, measure) for measure in metric.measures}
        return found

    def headlines(self, others: Collection[str] = ()) -> list[str]:
        """Return the headline measurements of each property, such as NC1.

        For a property without headline measurements, return its alphabetically first measurement. A measurement that
        needs another store (``ood`` or ``previous``) can be this first measurement only if ``others`` names the store.
        """
        first: dict[str, list[str]] = {}
        marked: dict[str, list[str]] = {}
        for name, (each, _) in self.chosen(None, others).items():
            first.setdefault(each.property_of(name), [name])
        for metric in self.metrics:
            for measure in metric.measures:
                if measure.headline:
                    marked.setdefault(metric.property_of(measure.name), []).append(measure.name)
        return [name for names in (first | marked).values() for name in names]

    def analysis(self, name: str) -> Analysis:
        """Return an analysis by name; raise UsageError if no plugin has it."""
        return _named("analysis", self.analyses, name)

    def figure(self, name: str) -> Figure:
        """Return a figure by name; raise UsageError if no plugin has it."""
        return _named("figure", self.figures, name)

    def answers(self, hook: str, *arguments: Any) -> Iterator[tuple[str, Any]]:
        """Call a hook of each plugin in turn, and yield the plugin's name and its answer, which can be None.

        Raises:
            PluginError: A plugin failed.
            CollapseError: A plugin raised this error for the user.
        """
        for each in getattr(self.manager.hook, hook).get_hookimpls():
            try:
                answer = each.function(*arguments)
            except CollapseError:
                raise
            except Exception as error:  # a plugin can raise anything
                text = f"plugin {each.plugin_name}: {hook}() raised {error_line(error)}; correct or disable it"
                raise PluginError(text) from error
            yield each.plugin_name, answer

    def take(self, offered: Any) -> None:
        """Register a declaration; raise PluginError if it is invalid."""
        if isinstance(offered, type):
            _keep("statistic", check_declared(offered), self.statistics, offered)
            return
        declared = declaration(offered)
        if isinstance(declared, Analysis):
            _keep("analysis", declared.name, self.analyses, declared)
        elif isinstance(declared, Figure):
            _keep("figure", declared.name, self.figures, declared)
        elif isinstance(declared, Metric):
            self._check(declared, self.measurements())
            self.metrics.append(declared)
        else:
            check(offered, pairs=declared.kind == "pair", statistics=self.statistics)

    def _check(self, metric: Metric, others: Chosen) -> None:
        """Raise PluginError if a measurement's name is in ``others``, or a parameter of the metric is invalid."""
        for measure in metric.measures:
            _check_free("metric", measure.name, {name: each for name, (each, _) in others.items()})
        check(metric.function, pairs=metric.kind == "pair", statistics=self.statistics)
        for function in (metric.vector, metric.standard_error):
            if callable(function):
                check(function, pairs=False, statistics=self.statistics)


def _keep(kind: str, name: str, holder: dict[str, Any], declared: Any) -> None:
    _check_free(kind, name, holder)
    holder[name] = declared


def _check_free(kind: str, name: str, known: Mapping[str, Any]) -> None:
    if name in known:
        other = getattr(known[name], "module", known[name].__module__)
        raise PluginError(f"{kind} {name} is already defined in {other}: give it another name")


def _named(kind: str, known: Mapping[str, Any], name: str) -> Any:
    if name not in known:
        raise UsageError(f"no {kind} is called {name!r}; {near_names(name, known)}")
    return known[name]


def check_declared(offered: type["Statistic"]) -> str:
    """Return a statistic's name; raise PluginError if it is not valid as a file name and as a parameter name."""
    name = getattr(offered, "name", "")
    if not (name.isascii() and name.isidentifier()) or name.lower() in (*HELD, *OF_CLASSES, *OF_PAIRS, "train"):
        raise PluginError(
            f"{name!r} cannot be the name of a statistic: use ASCII letters, digits and _, no digit first, and no name "
            "that collapse itself uses"
        )
    return name
