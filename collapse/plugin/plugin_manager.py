"""Load plugins; if an installed plugin is broken, only its own measurements are missing.

Each plugin is loaded in its own ``try``: with pluggy's loader, one broken import would make ``collapse --help`` fail.
An error in an installed plugin is reported in one line on stderr. A plugin that the user named with ``-p`` or
``COLLAPSE_PLUGINS`` must load without errors.
"""

from collections.abc import Iterable
from functools import cache
from typing import Any

from collapse.errors import PluginError, UsageError
from collapse.plugin.guarding import error_line
from collapse.plugin.loading import GIVEN, Plugin, candidates, declarations, register
from collapse.plugin.registry import Plugins

_extra: list[str] = []


def add_plugins(names: Iterable[str]) -> None:
    """Add plugin files or modules to the installed plugins (option ``-p``), even after plugins have been loaded.

    The plugins are loaded at the next call of :func:`plugins`, which raises UsageError if a plugin cannot be used. The
    name ``no:NAME`` disables an installed plugin.
    """
    _extra.extend(names)
    plugins.cache_clear()


@cache
def plugins() -> Plugins:
    """Load all plugins from entry points, ``COLLAPSE_PLUGINS`` and ``-p``, except plugins that add commands.

    Raises:
        UsageError: A plugin of ``COLLAPSE_PLUGINS`` or ``-p`` cannot be used, or ``no:NAME`` names no installed plugin.
    """
    loaded = Plugins()
    offered: list[tuple[Plugin, Any]] = []
    for name, origin, load in candidates(_extra):
        plugin = Plugin(name, origin)
        try:
            module = load()
            hooks, declared = register(loaded.manager, name, module), list(declarations(module))
            if not hooks and not declared:
                raise PluginError(
                    "the module declares nothing: decorate a function with @collapse.metric, or add a hook"
                )
            declares = (*(each.__name__ for each in declared), *hooks)
            opt_in = getattr(module, "COLLAPSE_OPT_IN", False)
            plugin = Plugin(name, origin, module.__name__, declares, opt_in=opt_in)
            offered += [(plugin, each) for each in declared]
        except Exception as error:  # importing a plugin can raise anything
            plugin = Plugin(name, origin, problem=_problem(loaded, plugin, error))
        loaded.found.append(plugin)
    # Statistics first, because parameters of metrics can name them.
    for plugin, each in sorted(offered, key=lambda pair: not isinstance(pair[1], type)):
        try:
            loaded.take(each)
        except PluginError as error:
            _problem(loaded, plugin, error)
    return loaded


def _problem(loaded: Plugins, plugin: Plugin, error: Exception) -> str:
    """Record in ``loaded``, and return, what is wrong with a plugin; raise UsageError if the user named the plugin."""
    problem = plugin.blamed(error_line(error))
    if plugin.origin == GIVEN:
        raise UsageError(problem) from error
    loaded.problems.append(problem)
    return problem
