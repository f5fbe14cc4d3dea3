"""Load plugins, so that a broken one costs only its own measurements.

Each entry point is loaded in its own ``try``, because with pluggy's loader one broken import would end
``collapse --help``. An error of an installed plugin is one line on stderr. A plugin that the user named with ``-p`` or
``COLLAPSE_PLUGINS`` must load without errors.
"""

import os
from collections.abc import Iterable, Iterator
from functools import cache, partial
from importlib.metadata import entry_points
from typing import Any

from collapse.errors import PluginError, UsageError, near_names
from collapse.plugin.guarding import described
from collapse.plugin.registering import (
    declarations,
    implementations,
    load_given,
    new_manager,
    origin_of,
    own_first,
    register,
)
from collapse.plugin.registry import GIVEN, ORDER, Plugin, Plugins, kind_of

_NOT = "no:"


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
    loaded = Plugins()
    manager = new_manager()
    offered: list[tuple[Plugin, Any]] = []
    for name, origin, load in _candidates():
        try:
            module = load()
            hooks, declared = register(manager, name, module), list(declarations(module))
            if not hooks and not declared:
                raise PluginError("it declares nothing: decorate a function with @collapse.metric, or write a hook")
        except Exception as error:  # importing a plugin can raise anything
            problem = f"plugin {name} ({origin}) is not used: {described(error)}"
            loaded.found.append(Plugin(name, origin, problem=problem))
            loaded.problems.append(problem)
            _refuse_given(origin, problem)
            continue
        plugin = Plugin(name, origin, module.__name__, hooks, tuple(each.__name__ for each in declared))
        loaded.found.append(plugin)
        offered += [(plugin, each) for each in declared]
    # Statistics first: the parameters of metrics are looked up among them.
    for plugin, each in sorted(offered, key=lambda pair: ORDER.index(kind_of(pair[1]))):
        try:
            loaded.take(plugin, each)
        except Exception as error:  # even inspecting the items may run the plugin's code
            problem = f"plugin {plugin.name}: {described(error)}"
            loaded.problems.append(problem)
            _refuse_given(plugin.origin, problem)
    for plugin in loaded.found:
        for hook in plugin.hooks:
            loaded.hooks[hook] = implementations(manager, hook)
    return loaded


def _refuse_given(origin: str, problem: str) -> None:
    if origin == GIVEN:
        raise UsageError(f"{problem}; correct it, or leave it out of -p and COLLAPSE_PLUGINS")


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
        name = whole if plain in taken else plain  # two packages may use the same name
        taken.add(name)
        yield name, origin_of(entry), entry.load
    for name in dict.fromkeys(each for each in named if not each.startswith(_NOT)):
        yield name, GIVEN, partial(load_given, name)


def _names(entry: Any) -> tuple[str, str]:
    """Return the name of an entry point, without and with its distribution."""
    return entry.name, f"{entry.dist.name if entry.dist else entry.value}:{entry.name}"
