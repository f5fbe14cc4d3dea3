"""Load plugins, so that a broken one costs only its own measurements.

Each plugin is loaded in its own ``try``, because with pluggy's loader one broken import would end ``collapse --help``.
An error of an installed plugin is one line on stderr. A plugin that the user named with ``-p`` or ``COLLAPSE_PLUGINS``
must load without errors.
"""

from collections.abc import Iterable
from functools import cache
from typing import Any

from collapse.errors import PluginError, UsageError
from collapse.plugin.guarding import described
from collapse.plugin.loading import GIVEN, Plugin, candidates, declarations, implementations, new_manager, register
from collapse.plugin.registry import ORDER, Plugins, kind_of

_extra: list[str] = []


def add_plugins(names: Iterable[str]) -> None:
    """Add plugin files or modules to the installed plugins (the option ``-p``), before or after first use.

    They are loaded at the next call of :func:`plugins`, which raises UsageError if one is unusable. ``no:NAME``
    disables an installed plugin.
    """
    _extra.extend(names)
    plugins.cache_clear()


@cache
def plugins() -> Plugins:
    """Load every plugin that computes: entry points, ``COLLAPSE_PLUGINS``, and those given with ``-p``.

    Raises:
        UsageError: A plugin of ``COLLAPSE_PLUGINS`` or ``-p`` is unusable.
    """
    loaded, manager = Plugins(), new_manager()
    offered: list[tuple[Plugin, Any]] = []
    for name, origin, load in candidates(_extra):
        try:
            module = load()
            hooks, declared = register(manager, name, module), list(declarations(module))
            if not hooks and not declared:
                raise PluginError("it declares nothing: decorate a function with @collapse.metric, or write a hook")
        except Exception as error:  # importing a plugin can raise anything
            problem = _problem(loaded, name, origin, error)
            loaded.found.append(Plugin(name, origin, problem=problem))
            continue
        plugin = Plugin(name, origin, module.__name__, hooks, tuple(each.__name__ for each in declared))
        loaded.found.append(plugin)
        offered += [(plugin, each) for each in declared]
    # Statistics first: the parameters of metrics are looked up among them.
    for plugin, each in sorted(offered, key=lambda pair: ORDER.index(kind_of(pair[1]))):
        try:
            loaded.take(plugin, each)
        except PluginError as error:
            _problem(loaded, plugin.name, plugin.origin, error)
    for hook in {hook for plugin in loaded.found for hook in plugin.hooks}:
        loaded.hooks[hook] = implementations(manager, hook)
    return loaded


def _problem(loaded: Plugins, name: str, origin: str, error: Exception) -> str:
    """Record what is wrong with a plugin, and return it; raises UsageError if the user named the plugin."""
    problem = f"plugin {name} ({origin}): {described(error)}"
    if origin == GIVEN:
        raise UsageError(f"{problem}; correct it, or leave it out of -p and COLLAPSE_PLUGINS") from error
    loaded.problems.append(problem)
    return problem
