"""Finding plugins, and keeping a broken one from costing more than its own rows.

Entry points are loaded one by one, each in its own ``try``: pluggy's loader would let one broken import end
``collapse --help``, and ``pm.hook.x()`` dies whole when one implementation raises.
"""

import importlib
import importlib.util
import os
import sys
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from functools import cache, partial
from importlib.metadata import entry_points
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

import pluggy

from collapse import hookspecs
from collapse.errors import CollapseError, PluginError, UsageError, near_names
from collapse.metrics import Analysis, Measure, Metric, declaration

if TYPE_CHECKING:
    from collapse.accumulate import Statistic

COLLECTED = ("counts", "means", "variances", "classifier", "validation", "n_params")
"""What every store can hold without a plugin statistic."""

_OWN = "linguistic-collapse"


@dataclass(frozen=True)
class Plugin:
    """One plugin as found: a module under a name, from a distribution or a file."""

    name: str
    origin: str
    hooks: tuple[str, ...] = ()
    problem: str | None = None


@dataclass
class Plugins:
    """What is installed: metrics, statistics, analyses and preparers by name; what could not be used, and why."""

    found: list[Plugin] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    metrics: list[Metric] = field(default_factory=list)
    statistics: dict[str, type["Statistic"]] = field(default_factory=dict)
    analyses: dict[str, Analysis] = field(default_factory=dict)
    preparers: list[tuple[str, Callable[[Any], str | None]]] = field(default_factory=list)
    origins: dict[str, str] = field(default_factory=dict)

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

    def prepare(self, model: Any) -> str | None:
        """Let the first plugin that knows a model make it faster; returns what it calls the result, or None.

        Raises:
            PluginError: A plugin failed, and may have left the model half changed.
        """
        for plugin, preparer in self.preparers:
            try:
                name = preparer(model)
            except Exception as error:
                raise PluginError(
                    f"plugin {plugin}: collapse_prepare_model() raised {_describe(error)}; "
                    "go on without it: --no-fast-attention"
                ) from error
            if name is not None:
                return name
        return None


_extra: list[str] = []


def add_plugins(names: Iterable[str]) -> None:
    """Add plugin files or modules to those installed (the option ``-p``), before or after first use."""
    _extra.extend(names)
    plugins.cache_clear()


@cache
def plugins() -> Plugins:
    """Load every plugin that computes: entry points, ``COLLAPSE_PLUGINS``, and those given with ``-p``."""
    loaded = Plugins()
    manager = _new_manager()
    for name, origin, load in _candidates():
        try:
            module = load()
            hooks = _register(manager, name, module)
            loaded.found.append(Plugin(name, origin, hooks))
        except (Exception, SystemExit) as error:  # a plugin may do anything at import, even exit
            problem = f"plugin {name} ({origin}) is not used: {_describe(error)}"
            loaded.found.append(Plugin(name, origin, problem=problem))
            loaded.problems.append(problem)
    # Statistics first: the metrics' needs are checked against them.
    for hook in ("collapse_statistics", "collapse_metrics", "collapse_analyses"):
        for name, implementation in _implementations(manager, hook):
            try:
                offered = list(implementation())
            except Exception as error:
                loaded.problems.append(f"plugin {name}: {hook}() raised {_describe(error)}")
                continue
            for each in offered:
                try:
                    _take(loaded, hook, name, each)
                except PluginError as error:
                    loaded.problems.append(f"plugin {name}: {error}")
    loaded.preparers = _implementations(manager, "collapse_prepare_model")
    return loaded


def command_plugins(cli: Any) -> list[Plugin]:
    """Let installed plugins add their commands to the command line; returns them, those that could not with why."""
    found = []
    for entry in sorted(entry_points(group="collapse.commands"), key=_own_first):
        origin = _origin(entry)
        try:
            manager = _new_manager()
            hooks = _register(manager, entry.name, entry.load())
            for _, implementation in _implementations(manager, "collapse_commands"):
                implementation(cli)
            found.append(Plugin(entry.name, origin, hooks))
        except (Exception, SystemExit) as error:
            problem = f"plugin {entry.name} ({origin}) adds no command: {_describe(error)}"
            found.append(Plugin(entry.name, origin, problem=problem))
    return found


def _new_manager() -> pluggy.PluginManager:
    manager = pluggy.PluginManager("collapse")
    manager.add_hookspecs(hookspecs)
    return manager


def _candidates() -> Iterator[tuple[str, str, Any]]:
    for entry in sorted(entry_points(group="collapse"), key=_own_first):
        yield entry.name, _origin(entry), entry.load
    given = [each for each in os.environ.get("COLLAPSE_PLUGINS", "").split(",") if each.strip()]
    for name in dict.fromkeys([*given, *_extra]):
        yield name, "given with -p or COLLAPSE_PLUGINS", partial(_load_given, name.strip())


def _origin(entry: Any) -> str:
    return f"{entry.dist.name} {entry.dist.version}" if entry.dist else str(entry.value)


def _own_first(entry: Any) -> tuple[bool, str, str]:
    # Of two metrics of one name the first stays: a guest cannot take the place of what the docs describe.
    dist = entry.dist.name if entry.dist else ""
    return dist != _OWN, dist, entry.name


def _load_given(name: str) -> ModuleType:
    path = Path(name).expanduser()
    if path.suffix != ".py":
        return importlib.import_module(name)
    if not path.is_file():
        raise CollapseError(f"there is no file {name}")
    spec = importlib.util.spec_from_file_location(f"collapse_plugin_{path.stem}", path)
    if spec is None or spec.loader is None:
        raise CollapseError(f"{name} is not a Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses and typing look their module up by name
    spec.loader.exec_module(module)
    return module


def _register(manager: pluggy.PluginManager, name: str, module: Any) -> tuple[str, ...]:
    """Register one module and check that every hook it marks exists."""
    try:
        manager.register(module, name=name)
        manager.check_pending()
    except pluggy.PluginValidationError as error:
        manager.unregister(name=name)
        hooks = [hook for hook in dir(hookspecs) if hook.startswith("collapse_")]
        marked = [each for each in dir(module) if hasattr(getattr(module, each, None), "collapse_impl")]
        unknown = [each for each in marked if each not in hooks]
        if unknown:
            raise PluginError(f"there is no hook {unknown[0]}; {near_names(unknown[0], hooks)}") from error
        raise PluginError(str(error)) from error
    callers = manager.get_hookcallers(module) or []
    return tuple(sorted(caller.name for caller in callers))


def _implementations(manager: pluggy.PluginManager, hook: str) -> list[tuple[str, Any]]:
    # pluggy lists implementations in the order of registration; the first registered is asked first.
    return [(each.plugin_name, each.function) for each in getattr(manager.hook, hook).get_hookimpls()]


def _take(loaded: Plugins, hook: str, plugin: str, offered: Any) -> None:
    if hook == "collapse_statistics":
        name = getattr(offered, "name", "")
        taken = loaded.statistics.get(name)
        if not isinstance(name, str) or not name.isidentifier() or name in COLLECTED:
            raise PluginError(f"{name!r} cannot name a statistic: use a new identifier")
        if taken is not None:
            raise PluginError(f"statistic {name} is already defined in {taken.__module__}")
        loaded.statistics[name] = offered
        loaded.origins[name] = plugin
    elif hook == "collapse_analyses":
        analysis = declaration(offered)
        if analysis.name in loaded.analyses:
            other = loaded.analyses[analysis.name].function.__module__
            raise PluginError(f"analysis {analysis.name} is already defined in {other}")
        loaded.analyses[analysis.name] = analysis
        loaded.origins[analysis.name] = plugin
    else:
        metric = declaration(offered)
        _check_metric(loaded, metric)
        loaded.metrics.append(metric)
        loaded.origins.update(dict.fromkeys((measure.name for measure in metric.measures), plugin))


def _check_metric(loaded: Plugins, metric: Metric) -> None:
    taken = loaded.measurements()
    for measure in metric.measures:
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


def _describe(error: BaseException) -> str:
    text = str(error).strip().split("\n")[0]
    return text if isinstance(error, CollapseError) else f"{type(error).__name__}: {text}".rstrip(": ")
