"""The registry of metrics, statistics, analyses and figures by name, and checks of what a plugin adds."""

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from collapse.errors import CollapseError, PluginError, UsageError, near_names
from collapse.plugin.figures import Figure, declared_figure
from collapse.plugin.guarding import described
from collapse.plugin.metrics import Analysis, Derived, Measure, Metric, declaration
from collapse.plugin.names import HELD, OF_CLASSES, OF_PAIRS
from collapse.plugin.parameters import DECLARATION, check

if TYPE_CHECKING:
    from collapse.plugin.statistic import Statistic

Kind = Literal["statistic", "derived", "metric", "analysis", "figure"]
ORDER: tuple[Kind, ...] = ("statistic", "derived", "metric", "analysis", "figure")
"""The order in which a plugin's declarations are registered."""

GIVEN = "given with -p or COLLAPSE_PLUGINS"
COLLECTED = ("counts", "means", "variances", "classifier", "bias", "validation", "n_params")
"""Needs that a store provides without plugin statistics."""

COLUMNS = frozenset(
    "model revision corpus store min_count classes dim samples origin validation chunk_length max_chunks "
    "max_validation_chunks dtype weights tokenizer corpus_id validation_id class_set layer step schema made_by "
    "versions excluded notes measurements standard_errors nulls".split()
)
"""Columns of a table and keys of a row, which no measurement may be called."""

VECTORS = ("counts", "variances")
"""Vectors of every store, which :func:`collapse.vectors` gives by these names: no measurement may be called so."""

_ANALYSIS_NAME = re.compile(r"[a-z][a-z0-9_-]*")


@dataclass(frozen=True)
class Plugin:
    """A plugin: a module with a name, from a distribution or a file.

    Attributes:
        name: Name of its entry point (after ``distribution:`` if two share it), or the name that the user gave.
        origin: Distribution and version, or how the user gave it.
        module: Name of its module.
        hooks: Hooks that it implements.
        declares: Names of the functions and statistics that it declares.
        problem: Why it is not used, or only partly; None if it is used completely.
    """

    name: str
    origin: str
    module: str = ""
    hooks: tuple[str, ...] = ()
    declares: tuple[str, ...] = ()
    problem: str | None = None

    @property
    def maker(self) -> str:
        """Its distribution, or the file or module that the user gave, as stores record it."""
        if self.origin != GIVEN:
            return self.origin.rpartition(" ")[0] or self.origin
        return self.name.replace("\\", "/").rpartition("/")[2] if self.name.endswith(".py") else self.name


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
        if isinstance(names, str):
            names = [each.strip() for each in names.split(",") if each.strip()]
        names = list(names) if isinstance(names, Iterable) else [names]
        for name in names:
            if not isinstance(name, str):
                raise UsageError(f"metrics= must be names of metrics; there is a {type(name).__name__}: {name!r:.40}")
        if not names:
            raise UsageError(
                "no metric is named: give a name or a prefix, such as nc1 (see all with: collapse metrics)"
            )
        chosen: set[str] = set()
        for name in names:
            lower = name.lower()
            matching = [each for each in known if each == lower or each.startswith(f"{lower}.")]
            if not matching:
                prefixes = {each.split(".")[0] for each in known}
                raise UsageError(
                    f"no metric is called {name!r}; {near_names(name, {*known, *prefixes})} "
                    "(see all with: collapse metrics)"
                )
            chosen.update(matching)
        return [name for name in known if name in chosen]

    def headlines(self) -> list[str]:
        """Return the headline measurements of each property as declared, or its first measurement if it has none."""
        first: dict[str, str] = {}
        for name, (metric, _) in self.measurements().items():
            first.setdefault(metric.property_of(name), name)
        marked: dict[str, list[str]] = {}
        for of_metric, name in [(each, m.name) for each in self.metrics for m in each.measures if m.headline]:
            marked.setdefault(of_metric.property_of(name), []).append(name)
        return [name for property_name in first for name in marked.get(property_name, [first[property_name]])]

    def analysis(self, name: str) -> Analysis:
        """Return an analysis by name.

        Raises:
            UsageError: No plugin has it.
        """
        if name not in self.analyses:
            raise UsageError(f"no analysis is called {name!r}; {near_names(name, self.analyses)}")
        return self.analyses[name]

    def figure(self, name: str) -> Figure:
        """Return a figure by name.

        Raises:
            UsageError: No plugin has it.
        """
        if name not in self.figures:
            raise UsageError(f"no figure is called {name!r}; {near_names(name, self.figures)}")
        return self.figures[name]

    def first_answer(self, hook: str, argument: Any, check: Callable[[str], None] | None = None) -> Any:
        """Call a hook of each plugin until one gives an answer, and return it; None without one.

        Args:
            hook: Its name.
            argument: Its argument.
            check: Called with a plugin's name after its hook.

        Raises:
            PluginError: A plugin failed.
            CollapseError: What a plugin raises for the user.
        """
        for plugin, function in self.hooks.get(hook, ()):
            try:
                answer = function(argument)
            except CollapseError:
                raise
            except Exception as error:
                raise PluginError(
                    f"plugin {plugin}: {hook}() raised {described(error)}; correct the plugin, or leave it out"
                ) from error
            if check is not None:
                check(plugin)
            if answer is not None:
                return answer
        return None

    def take(self, plugin: Plugin, offered: Any) -> None:
        """Register a declaration of a plugin; raises PluginError if it is unusable."""
        kind = kind_of(offered)
        if kind == "derived":
            declared = declaration(offered)
            check(offered, pairs=declared.kind == "pair", statistics=self.statistics)
            return
        if kind == "metric":
            metric = declaration(offered)
            self._check_metric(metric)
            self.metrics.append(metric)
            self.owners.update({(kind, measure.name): plugin for measure in metric.measures})
            return
        holder: dict[str, Any]
        if kind == "statistic":
            name, holder, made = check_declared(offered), self.statistics, offered
        elif kind == "analysis":
            made, holder = declaration(offered), self.analyses
            name = made.name
            if not isinstance(name, str) or not _ANALYSIS_NAME.fullmatch(name):
                raise PluginError(f"{name!r:.40} is not an analysis name: use lower-case letters, digits, _ and -")
        else:
            made, holder = declared_figure(offered), self.figures
            name = made.name
        if name in holder:
            other = getattr(holder[name], "function", holder[name]).__module__
            raise PluginError(f"{kind} {name} is already defined in {other}")
        holder[name] = made
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


def kind_of(offered: Any) -> Kind:
    """Return what kind of declaration a plugin's function or class is."""
    if isinstance(offered, type):
        return "statistic"
    kinds: dict[type, Kind] = {Derived: "derived", Metric: "metric", Analysis: "analysis", Figure: "figure"}
    return kinds[type(getattr(offered, DECLARATION))]


def check_declared(offered: Any) -> str:
    """Return the name of a statistic's class; raises PluginError if its name, phase or version is invalid."""
    name = getattr(offered, "name", "")
    named = isinstance(name, str) and name.isascii() and name.isidentifier()
    if not named or name.lower() in (*HELD, *OF_CLASSES, *OF_PAIRS, "train"):
        raise PluginError(f"{name!r} cannot name a statistic: use a new identifier of ASCII letters, digits and _")
    from collapse.plugin.statistic import Statistic

    if not isinstance(offered, type) or not issubclass(offered, Statistic):
        raise PluginError(f"statistic {name} must be a subclass of collapse.Statistic or collapse.ValidationStatistic")
    if offered.phase == "validation" and any(each.reduction == "chan" for each in offered.state.values()):
        raise PluginError(f"statistic {name}: reduction='chan' is for training samples, whose means are known by class")
    version = getattr(offered, "version", None)
    if type(version) is not int or not 0 <= version < 1 << 63:
        raise PluginError(f"statistic {name} must have a whole number of 64 bits, 0 or more, as its version")
    return str(name)
