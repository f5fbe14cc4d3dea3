"""The registry of metrics, statistics, analyses and figures by name, and checks of what a plugin adds."""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from collapse.errors import CollapseError, PluginError, UsageError, near_names
from collapse.plugin.figures import Figure
from collapse.plugin.guarding import described
from collapse.plugin.loading import GIVEN, Plugin
from collapse.plugin.metrics import Analysis, Derived, Measure, Metric, declaration
from collapse.plugin.names import COLUMNS, HELD, OF_CLASSES, OF_PAIRS, VECTORS
from collapse.plugin.parameters import check

if TYPE_CHECKING:
    from collapse.plugin.statistic import Statistic

Kind = Literal["statistic", "derived", "metric", "analysis", "figure"]
ORDER: tuple[Kind, ...] = ("statistic", "derived", "metric", "analysis", "figure")
"""The order in which declarations are registered."""

_NAME = re.compile(r"[a-z][a-z0-9_-]*")


@dataclass
class Plugins:
    """What plugins offer, by name; and the plugins that are not usable, with the reason."""

    found: list[Plugin] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    metrics: list[Metric] = field(default_factory=list)
    statistics: dict[str, type["Statistic"]] = field(default_factory=dict)
    analyses: dict[str, Analysis] = field(default_factory=dict)
    figures: dict[str, Figure] = field(default_factory=dict)
    hooks: dict[str, list[tuple[str, Callable[..., Any]]]] = field(default_factory=dict)
    owners: dict[tuple[Kind, str], Plugin] = field(default_factory=dict)

    def maker(self, kind: type["Statistic"]) -> str:
        """Return the maker of a statistic, as stores record it; of one that is not registered, its module."""
        if self.statistics.get(kind.name) is not kind:
            return kind.__module__
        return self.owners["statistic", kind.name].maker

    def made_by(self, kind: Kind, name: str) -> str:
        """Return the distribution and version of the plugin behind a name, or the file or module that the user gave."""
        owner = self.owners.get((kind, name))
        if owner is None:
            return ""
        return owner.maker if owner.origin == GIVEN else owner.origin

    def blamed(self, module: str) -> tuple[str, str]:
        """Return what an error message begins with, which plugin failed, and ends with, how to do without it.

        Both are empty for a module that is no plugin; a plugin that the user gave needs no advice.
        """
        owner = next((each for each in self.found if each.module == module), None)
        if owner is None:
            return "", ""
        advice = "" if owner.origin == GIVEN else f" (-p no:{owner.name} leaves it out)"
        return f"plugin {owner.name}: ", advice

    def measurements(self) -> dict[str, tuple[Metric, Measure]]:
        """Return every measurement by name, sorted."""
        pairs = {measure.name: (metric, measure) for metric in self.metrics for measure in metric.measures}
        return dict(sorted(pairs.items()))

    def select(self, names: str | Iterable[str] | None) -> list[str]:
        """Expand names and prefixes to measurement names: ``gnc2`` or ``GNC2`` means every ``gnc2.…``; None means all.

        One text may hold several, with commas.

        Raises:
            UsageError: There is no name, or one is unknown; the message suggests similar names.
        """
        known = list(self.measurements())
        if names is None:
            return known
        names = names.split(",") if isinstance(names, str) else names
        wanted = [name.strip() for name in names if name.strip()]
        if not wanted:
            raise UsageError(
                "no metric is named: give a name or a prefix, such as nc1 (see all with: collapse metrics)"
            )
        chosen: set[str] = set()
        for name in wanted:
            matching = [each for each in known if f"{each}.".startswith(f"{name.lower()}.")]
            if not matching:
                near = near_names(name, {*known, *(each.split(".")[0] for each in known)})
                raise UsageError(f"no metric is called {name!r}; {near} (see all with: collapse metrics)")
            chosen.update(matching)
        return [name for name in known if name in chosen]

    def headlines(self) -> list[str]:
        """Return the headline measurements of each property as declared, or its first measurement if it has none."""
        by_property: dict[str, list[str]] = {}
        for name, (metric, _) in self.measurements().items():
            by_property.setdefault(metric.property_of(name), []).append(name)
        marked = [measure.name for metric in self.metrics for measure in metric.measures if measure.headline]
        return [
            name for names in by_property.values() for name in [each for each in marked if each in names] or names[:1]
        ]

    def analysis(self, name: str) -> Analysis:
        """Return an analysis by name; raises UsageError if no plugin has it."""
        return _named("analysis", self.analyses, name)

    def figure(self, name: str) -> Figure:
        """Return a figure by name; raises UsageError if no plugin has it."""
        return _named("figure", self.figures, name)

    def answers(self, hook: str, *arguments: Any) -> Iterator[tuple[str, Any]]:
        """Call a hook of each plugin in turn, and yield the plugin's name and its answer, which can be None.

        Raises:
            PluginError: A plugin failed.
            CollapseError: What a plugin raises for the user.
        """
        for plugin, function in self.hooks.get(hook, ()):
            try:
                answer = function(*arguments)
            except CollapseError:
                raise
            except Exception as error:  # a plugin can raise anything
                text = f"plugin {plugin}: {hook}() raised {described(error)}; correct the plugin, or leave it out"
                raise PluginError(text) from error
            yield plugin, answer

    def take(self, plugin: Plugin, offered: Any) -> None:
        """Register a declaration of a plugin; raises PluginError if it is unusable."""
        if isinstance(offered, type):
            self._keep(plugin, "statistic", check_declared(offered), self.statistics, offered)
            return
        declared = declaration(offered)
        if isinstance(declared, Derived):
            check(offered, pairs=declared.kind == "pair", statistics=self.statistics)
        elif isinstance(declared, Metric):
            self._check_metric(declared)
            self.metrics.append(declared)
            self.owners.update({("metric", measure.name): plugin for measure in declared.measures})
        elif isinstance(declared, Analysis):
            self._keep(plugin, "analysis", declared.name, self.analyses, declared)
        else:
            self._keep(plugin, "figure", declared.name, self.figures, declared)

    def _keep(self, plugin: Plugin, kind: Kind, name: str, holder: dict[str, Any], declared: Any) -> None:
        if kind != "statistic" and not _NAME.fullmatch(name):
            raise PluginError(f"{name!r} cannot name the {kind}: use lower-case letters, digits, _ and -")
        if name in holder:
            other = self.owners[kind, name].module
            raise PluginError(f"{kind} {name} is already defined in {other}: give it another name")
        holder[name] = declared
        self.owners[kind, name] = plugin

    def _check_metric(self, metric: Metric) -> None:
        taken = self.measurements()
        for measure in metric.measures:
            where = f"metric {measure.name} of {metric.module}"
            if measure.name in COLUMNS or measure.name in VECTORS:
                raise PluginError(f"{where} has the name of a column of every table: call it mine.{measure.name}")
            if measure.name in taken:
                other = taken[measure.name][0].module
                raise PluginError(f"{where} is already defined in {other}: give it another name")
        check(metric.function, pairs=metric.kind == "pair", statistics=self.statistics)
        for function in (metric.vector, metric.standard_error):
            if callable(function):
                check(function, pairs=False, statistics=self.statistics)


def _named(kind: Kind, known: Mapping[str, Any], name: str) -> Any:
    if name not in known:
        raise UsageError(f"no {kind} is called {name!r}; {near_names(name, known)}")
    return known[name]


def kind_of(offered: Any) -> Kind:
    """Return what kind of declaration a plugin's function or class is."""
    if isinstance(offered, type):
        return "statistic"
    kinds: dict[type, Kind] = {Derived: "derived", Metric: "metric", Analysis: "analysis", Figure: "figure"}
    return kinds[type(declaration(offered))]


def check_declared(offered: type["Statistic"]) -> str:
    """Return the name of a statistic's class; raises PluginError if it cannot name a file and a parameter."""
    name = getattr(offered, "name", "")
    if not (name.isascii() and name.isidentifier()) or name.lower() in (*HELD, *OF_CLASSES, *OF_PAIRS, "train"):
        raise PluginError(f"{name!r} cannot name a statistic: use a new identifier of ASCII letters, digits and _")
    return name
