"""Load plugin modules: of entry points, files and module names; find their hooks and declarations."""

import importlib
import importlib.util
import sys
from collections.abc import Iterator
from importlib.machinery import SourceFileLoader
from types import CodeType, ModuleType
from typing import Any

import pluggy

from collapse.core.paths import expanded
from collapse.errors import CollapseError, PluginError, near_names
from collapse.plugin import hookspecs
from collapse.plugin.metrics import FILE_PREFIX
from collapse.plugin.parameters import DECLARATION

_OWN = "linguistic-collapse"
_HOOKS = [each for each in dir(hookspecs) if each.startswith("collapse_")]


def new_manager() -> pluggy.PluginManager:
    """Return a pluggy manager with our hook specifications."""
    manager = pluggy.PluginManager("collapse")
    manager.add_hookspecs(hookspecs)
    return manager


def origin_of(entry: Any) -> str:
    """Return the distribution and version of an entry point, for display."""
    return f"{entry.dist.name} {entry.dist.version}" if entry.dist else str(entry.value)


def own_first(entry: Any) -> tuple[bool, str, str]:
    """Return a key that sorts our own entry points before those of others."""
    # Of two metrics with the same name the first is kept, so another plugin cannot replace a documented metric.
    dist = entry.dist.name if entry.dist else ""
    return dist != _OWN, dist, entry.name


class _FromSource(SourceFileLoader):
    """Runs what a file holds now; bytecode goes by its size and time, which another file's can equal."""

    def get_code(self, fullname: str) -> CodeType:
        return self.source_to_code(self.get_data(self.path), self.path)


def load_given(name: str) -> ModuleType:
    """Import a plugin that the user named: a file or a module."""
    path = expanded(name)
    if path.suffix != ".py":
        try:
            return importlib.import_module(name)
        except (ModuleNotFoundError, TypeError) as error:  # TypeError: a name that begins with a dot
            absent = name.startswith(".") or getattr(error, "name", None) == name
            if absent and path.with_name(f"{path.name}.py").is_file():
                raise CollapseError(f"no module is called {name}, but there is a file {name}.py: name that") from error
            raise
    if not path.is_file():
        raise CollapseError(f"there is no file {name}")
    module_name = f"{FILE_PREFIX}{path.stem}"
    spec = importlib.util.spec_from_file_location(module_name, path, loader=_FromSource(module_name, str(path)))
    if spec is None or spec.loader is None:
        raise CollapseError(f"{name} is not a Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses and typing look their module up by name
    spec.loader.exec_module(module)
    return module


def register(manager: pluggy.PluginManager, name: str, module: Any) -> tuple[str, ...]:
    """Register the hooks of a module, and return their names; raises PluginError if one is wrong."""
    wanted = getattr(module, "COLLAPSE_API", hookspecs.API)
    if wanted != hookspecs.API:
        raise PluginError(f"it was written for API {wanted!r:.40} of collapse, and this is API {hookspecs.API}")
    marked = [each for each in dir(module) if hasattr(getattr(module, each, None), "collapse_impl")]
    for each in marked:
        if each not in _HOOKS:
            raise PluginError(f"there is no hook {each}; {near_names(each, _HOOKS)}")
    for each in _HOOKS:
        function = getattr(module, each, None)
        if each not in marked and getattr(function, "__module__", None) == _name_of(module):  # pluggy would ignore it
            raise PluginError(f"{each}() is not marked: write @collapse.hookimpl above it")
    try:
        manager.register(module, name=name)
    except pluggy.PluginValidationError as error:
        manager.unregister(name=name)
        raise PluginError(str(error)) from error
    return tuple(marked)


def declarations(module: Any) -> Iterator[Any]:
    """Yield the functions and statistics that a module itself declares, also those in its lists, in its order."""
    for value in list(vars(module).values()):
        for each in value if isinstance(value, list | tuple) else (value,):
            if getattr(each, "__module__", None) == _name_of(module) and _is_declared(each):
                yield each


def _is_declared(value: Any) -> bool:
    if isinstance(value, type):
        statistics = sys.modules.get("collapse.plugin.statistic")  # whoever has a subclass imported it
        private = value.__name__.startswith("_")  # a base of others
        return statistics is not None and not private and issubclass(value, statistics.Statistic)
    return hasattr(value, DECLARATION)


def _name_of(module: Any) -> str:
    return str(getattr(module, "__name__", type(module).__module__))


def implementations(manager: pluggy.PluginManager, hook: str) -> list[tuple[str, Any]]:
    """Return the implementations of a hook, with the names of their plugins, in the order of registration."""
    # get_hookimpls() lists them in this order; the first registered plugin is asked first.
    return [(each.plugin_name, each.function) for each in getattr(manager.hook, hook).get_hookimpls()]
