"""Load plugins, so that a broken one costs only its own measurements.

Each entry point is loaded in its own ``try``, because with pluggy's loader one broken import would end
``collapse --help``, and ``pm.hook.x()`` fails completely when one implementation raises. An error of an installed
plugin is one line on stderr. A plugin that the user named with ``-p`` or ``COLLAPSE_PLUGINS`` must load without errors.
"""

import os
from collections.abc import Iterable, Iterator
from functools import cache, partial
from importlib.metadata import entry_points
from typing import Any

from collapse.errors import UsageError, near_names
from collapse.plugin.guarding import described
from collapse.plugin.offers import declared_in, take
from collapse.plugin.registering import (
    distribution_of,
    implementations,
    load_given,
    new_manager,
    origin_of,
    own_first,
    register,
)
from collapse.plugin.registry import GIVEN, Plugin, Plugins

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
    declared: list[tuple[str, str, Any]] = []
    for name, origin, load in _candidates():
        try:
            module = load()
            items = declared_in(module)
            hooks = register(manager, name, module, commands=False, declares=bool(items))
            loaded.found.append(Plugin(name, origin, hooks, tuple(dict.fromkeys(kind for kind, _ in items))))
            loaded.makers[name] = _maker(name, origin)
            declared += [(name, kind, item) for kind, item in items]
        except Exception as error:  # importing a plugin can raise anything
            problem = f"plugin {name} ({origin}) is not used: {described(error)}"
            loaded.found.append(Plugin(name, origin, problem=problem))
            loaded.problems.append(problem)
            _refuse_named(origin, problem)
    # Statistics first: the metrics' needs are checked against them.
    for name, kind, item in sorted(declared, key=lambda each: each[1] != "statistic"):
        try:
            take(loaded, kind, name, item)
        except Exception as error:  # even inspecting an item may run the plugin's code
            problem = f"plugin {name}: {described(error)}"
            loaded.problems.append(problem)
            _refuse_named(next(each.origin for each in loaded.found if each.name == name), problem)
    loaded.preparers = implementations(manager, "collapse_prepare_model")
    loaded.trainers = implementations(manager, "collapse_trained_on")
    loaded.tables = implementations(manager, "collapse_results")
    loaded.namers = implementations(manager, "collapse_model_parts")
    return loaded


def _refuse_named(origin: str, problem: str) -> None:
    if origin == GIVEN:
        raise UsageError(f"{problem}; correct it, or leave it out of -p and COLLAPSE_PLUGINS")


def _maker(name: str, origin: str) -> str:
    if origin != GIVEN:
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
        name = whole if plain in taken else plain  # two packages may use the same name
        taken.add(name)
        yield name, origin_of(entry), entry.load
    for name in dict.fromkeys(each for each in named if not each.startswith(_NOT)):
        yield name, GIVEN, partial(load_given, name)


def _names(entry: Any) -> tuple[str, str]:
    """Return the name of an entry point, without and with its distribution."""
    return entry.name, f"{distribution_of(entry)}:{entry.name}"
