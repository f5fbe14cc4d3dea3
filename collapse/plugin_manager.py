"""Find plugins, and keep a broken one from costing more than its own rows.

Entry points are loaded one by one, each in its own ``try``: pluggy's loader would let one broken import end
``collapse --help``, and ``pm.hook.x()`` dies whole when one implementation raises. What an installed plugin gets wrong
is a line on stderr; what somebody named with ``-p`` or ``COLLAPSE_PLUGINS`` must load whole.
"""

import os
import re
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from functools import cache, partial
from importlib.metadata import entry_points
from typing import TYPE_CHECKING, Any

from collapse.discovery import distribution_of, implementations, load_given, new_manager, origin_of, own_first, register
from collapse.errors import PluginError, UsageError, near_names
from collapse.guarding import Guest, described
from collapse.metrics import Analysis, Measure, Metric, declaration

if TYPE_CHECKING:
    from collapse.accumulate import Statistic

COLLECTED = ("counts", "means", "variances", "classifier", "validation", "n_params")
"""What every store can hold without a plugin statistic."""

_GIVEN = "given with -p or COLLAPSE_PLUGINS"
_NOT = "no:"
_HEAVY = {"torch", "transformers", "datasets", "pandas", "scipy", "sklearn", "matplotlib"}
_SLOW_SECONDS = 3.0
_ANALYSIS_NAME = re.compile(r"[a-z][a-z0-9_-]*")


@dataclass(frozen=True)
class Plugin:
    """One plugin as found: a module under a name, from a distribution or a file.

    Attributes:
        name: Of its entry point (after ``distribution:`` where two share it), or as it was given.
        origin: Distribution and version, or how it was given.
        hooks: Hooks that it implements.
        problem: Why it is not used, or not wholly; None where it is.
        remark: What its author should mend although it works.
    """

    name: str
    origin: str
    hooks: tuple[str, ...] = ()
    problem: str | None = None
    remark: str | None = None


@dataclass
class Plugins:
    """What is installed: metrics, statistics, analyses and preparers by name; what could not be used, and why."""

    found: list[Plugin] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    metrics: list[Metric] = field(default_factory=list)
    statistics: dict[str, type["Statistic"]] = field(default_factory=dict)
    analyses: dict[str, Analysis] = field(default_factory=dict)
    preparers: list[tuple[str, Callable[[Any], str | None]]] = field(default_factory=list)
    origins: dict[tuple[str, str], str] = field(default_factory=dict)  # by hook and name
    makers: dict[str, str] = field(default_factory=dict)

    def maker(self, kind: type["Statistic"]) -> str:
        """Whose a statistic is, as stores record it: the distribution of its plugin, or its file or module."""
        registered = self.statistics.get(kind.name) is kind
        return self.makers.get(self.origins["collapse_statistics", kind.name], "") if registered else kind.__module__

    def measurements(self) -> dict[str, tuple[Metric, Measure]]:
        """Every measurement by name, sorted."""
        pairs = {measure.name: (metric, measure) for metric in self.metrics for measure in metric.measures}
        return dict(sorted(pairs.items()))

    def select(self, names: Iterable[str] | None) -> list[str]:
        """Measurement names for names and prefixes: ``gnc2`` means every ``gnc2.…``; None means all.

        Raises:
            UsageError: A name that nothing has, with the near names.
        """
        known = list(self.measurements())
        if names is None:
            return known
        chosen: set[str] = set()
        for name in names:
            matching = [each for each in known if each == name or each.startswith(f"{name}.")]
            if not matching:
                prefixes = {each.split(".")[0] for each in known}
                raise UsageError(
                    f"no metric is called {name!r}; {near_names(name, {*known, *prefixes})} "
                    "(see all with: collapse metrics)"
                )
            chosen.update(matching)
        return [name for name in known if name in chosen]

    def analysis(self, name: str) -> Analysis:
        """An analysis by name.

        Raises:
            UsageError: No plugin has it.
        """
        if name not in self.analyses:
            raise UsageError(f"no analysis is called {name!r}; {near_names(name, self.analyses)}")
        return self.analyses[name]

    def prepare(self, model: Any, check: Callable[[str], None] | None = None) -> str | None:
        """Let the first plugin that knows a model make it faster; returns what it calls the result, or None.

        Args:
            model: The transformers model.
            check: Called with each plugin's name once it has had the model.

        Raises:
            PluginError: A plugin failed, and may have left the model half changed.
        """
        for plugin, preparer in self.preparers:
            try:
                with Guest():
                    name = preparer(model)
            except Exception as error:
                raise PluginError(
                    f"plugin {plugin}: collapse_prepare_model() raised {described(error)}; "
                    "go on without it: --no-fast-attention"
                ) from error
            if check is not None:
                check(plugin)
            if name is not None:
                return name
        return None


_extra: list[str] = []


def add_plugins(names: Iterable[str]) -> None:
    """Add plugin files or modules to those installed (the option ``-p``), before or after first use.

    They are loaded when plugins are next asked for; one that is not usable is then a UsageError. ``no:NAME`` leaves
    out an installed plugin.
    """
    _extra.extend(names)
    plugins.cache_clear()


@cache
def plugins() -> Plugins:
    """Load every plugin that computes: entry points, ``COLLAPSE_PLUGINS``, and those given with ``-p``.

    Raises:
        UsageError: Something is wrong with a plugin that was named in ``COLLAPSE_PLUGINS`` or with ``-p``.
    """
    loaded = Plugins()
    manager = new_manager()
    for name, origin, load in _candidates():
        try:
            with Guest():
                hooks = register(manager, name, load(), commands=False)
            loaded.found.append(Plugin(name, origin, hooks))
            loaded.makers[name] = _maker(name, origin)
        except Exception as error:  # a plugin may do anything at import
            problem = f"plugin {name} ({origin}) is not used: {described(error)}"
            loaded.found.append(Plugin(name, origin, problem=problem))
            loaded.problems.append(problem)
            _refuse_named(origin, problem)
    # Statistics first: the metrics' needs are checked against them.
    for hook in ("collapse_statistics", "collapse_metrics", "collapse_analyses"):
        for name, implementation in implementations(manager, hook):
            for problem in _take_all(loaded, hook, name, implementation):
                loaded.problems.append(problem)
                _refuse_named(next(each.origin for each in loaded.found if each.name == name), problem)
    loaded.preparers = implementations(manager, "collapse_prepare_model")
    return loaded


def _refuse_named(origin: str, problem: str) -> None:
    if origin == _GIVEN:
        raise UsageError(f"{problem}; mend it, or leave it out of -p and COLLAPSE_PLUGINS")


def _take_all(loaded: Plugins, hook: str, name: str, implementation: Callable[[], Any]) -> Iterator[str]:
    """Take in what a hook offers; gives a line for each thing that cannot be used."""
    try:
        with Guest():
            offered = list(implementation())
    except Exception as error:
        yield f"plugin {name}: {hook}() raised {described(error)}"
        return
    for each in offered:
        try:
            with Guest():
                _take(loaded, hook, name, each)
        except Exception as error:  # even looking at what a plugin offers may run its code
            yield f"plugin {name}: {described(error)}"


def command_plugins(cli: Any) -> list[Plugin]:
    """Let installed plugins add their commands to the command line; returns them, those that could not with why."""
    found = []
    for entry in sorted(entry_points(group="collapse.commands"), key=own_first):
        origin, before = origin_of(entry), dict(cli.commands)
        hooks: tuple[str, ...] = ()
        problem = None
        loaded, began = set(sys.modules), time.monotonic()
        try:
            with Guest():
                manager = new_manager()
                hooks = register(manager, entry.name, entry.load(), commands=True)
                for _, implementation in implementations(manager, "collapse_commands"):
                    implementation(cli)
        except Exception as error:
            problem = f"plugin {entry.name} ({origin}) adds no command: {described(error)}"
            added = {}
        else:
            added = {name: command for name, command in cli.commands.items() if name not in before}
            taken = [name for name, command in before.items() if cli.commands.get(name, command) is not command]
            if taken:
                problem = (
                    f"plugin {entry.name} ({origin}) adds no command {', '.join(taken)}: there is one of this name, "
                    "which stays; the plugin must give it another name"
                )
        cli.commands.clear()
        cli.commands.update(before | added)
        slow = _slowness(set(sys.modules) - loaded, time.monotonic() - began)
        remark = f"plugin {entry.name} ({origin}) {slow} at every start of collapse: import it within the command"
        found.append(Plugin(entry.name, origin, hooks, problem, remark if slow else None))
    return found


def _slowness(imported: set[str], seconds: float) -> str:
    """How a plugin's import slows the start of a command, or "" where it does not."""
    heavy = sorted(_HEAVY & imported)
    if heavy:
        return f"imports {', '.join(heavy)}"
    return f"takes {seconds:.1f} s to import" if seconds > _SLOW_SECONDS else ""


def _maker(name: str, origin: str) -> str:
    if origin != _GIVEN:
        return origin.rpartition(" ")[0] or origin
    return name.replace("\\", "/").rpartition("/")[2] if name.endswith(".py") else name


def _candidates() -> Iterator[tuple[str, str, Any]]:
    named = [each.strip() for each in [*os.environ.get("COLLAPSE_PLUGINS", "").split(","), *_extra] if each.strip()]
    without = {each.removeprefix(_NOT) for each in named if each.startswith(_NOT)}
    entries = sorted(entry_points(group="collapse"), key=own_first)
    names = {name for entry in entries for name in _names(entry)}
    for name in sorted(without - names):
        raise UsageError(f"no plugin is called {name!r}; {near_names(name, names)} (see all with: collapse plugins)")
    taken: set[str] = set()
    for entry in entries:
        plain, whole = _names(entry)
        if {plain, whole} & without:
            continue
        name = whole if plain in taken else plain  # two packages may call a plugin alike
        taken.add(name)
        yield name, origin_of(entry), entry.load
    for name in dict.fromkeys(each for each in named if not each.startswith(_NOT)):
        yield name, _GIVEN, partial(load_given, name)


def _names(entry: Any) -> tuple[str, str]:
    """What an entry point is called: its name, and the name with its distribution's before it."""
    return entry.name, f"{distribution_of(entry)}:{entry.name}"


def check_declared(offered: Any) -> str:
    """The name of a statistic's class; raises PluginError where its name, phase or version is not possible."""
    name = getattr(offered, "name", "")
    named = isinstance(name, str) and name.isascii() and name.isidentifier()
    if not named or name.lower() in (*COLLECTED, "train"):  # its file would be one of the store's own
        raise PluginError(f"{name!r} cannot name a statistic: use a new identifier of ASCII letters, digits and _")
    if not isinstance(offered, type) or getattr(offered, "phase", None) not in ("train", "validation"):
        raise PluginError(f"statistic {name} must be a class with phase 'train' or 'validation'")
    version = getattr(offered, "version", None)
    if type(version) is not int or not 0 <= version < 1 << 63:
        raise PluginError(f"statistic {name} must have a whole number of 64 bits, 0 or more, as its version")
    return str(name)


def _take(loaded: Plugins, hook: str, plugin: str, offered: Any) -> None:
    if hook == "collapse_statistics":
        name = check_declared(offered)
        taken = loaded.statistics.get(name)
        if taken is not None:
            raise PluginError(f"statistic {name} is already defined in {taken.__module__}")
        loaded.statistics[name] = offered
        loaded.origins[hook, name] = plugin
    elif hook == "collapse_analyses":
        analysis = declaration(offered)
        if not isinstance(analysis, Analysis):
            raise PluginError(f"{analysis.called} is a metric: return it from collapse_metrics()")
        if not isinstance(analysis.name, str) or not _ANALYSIS_NAME.fullmatch(analysis.name):
            raise PluginError(f"{analysis.name!r:.40} is no analysis name: use lower-case letters, digits, _ and -")
        if analysis.name in loaded.analyses:
            other = loaded.analyses[analysis.name].function.__module__
            raise PluginError(f"analysis {analysis.name} is already defined in {other}")
        loaded.analyses[analysis.name] = analysis
        loaded.origins[hook, analysis.name] = plugin
    else:
        metric = declaration(offered)
        if not isinstance(metric, Metric):
            raise PluginError(f"{metric.name} is an analysis: return it from collapse_analyses()")
        _check_metric(loaded, metric)
        loaded.metrics.append(metric)
        loaded.origins.update({(hook, measure.name): plugin for measure in metric.measures})


def _check_metric(loaded: Plugins, metric: Metric) -> None:
    from collapse.rows import ABOUT

    taken = loaded.measurements()
    for measure in metric.measures:
        if measure.name in {*ABOUT, "versions"}:
            raise PluginError(
                f"metric {measure.name} of {metric.module} has the name of another column of every table: "
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
            raise PluginError(f"metric {names} needs {need!r}, which no store holds; {near_names(need, known)}")
