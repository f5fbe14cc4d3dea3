"""Register plugin modules: of entry points, files and module names."""

import importlib
import importlib.util
import sys
from importlib.machinery import SourceFileLoader
from importlib.metadata import entry_points
from inspect import signature
from types import CodeType, ModuleType
from typing import Any

import pluggy

from collapse.core.paths import expanded
from collapse.errors import CollapseError, PluginError, near_names
from collapse.plugin import hookspecs
from collapse.plugin.metrics import FILE_PREFIX

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


def distribution_of(entry: Any) -> str:
    """Return the distribution of an entry point, or its module if it has none."""
    return str(entry.dist.name if entry.dist else entry.value)


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


def register(
    manager: pluggy.PluginManager, name: str, module: Any, *, commands: bool, declares: bool = False
) -> tuple[str, ...]:
    """Register a module and check its hooks: each exists, is marked without options, and is called in this group.

    Args:
        manager: The pluggy manager.
        name: The plugin's name.
        module: The module.
        commands: Whether to register plugins that add commands, or those that compute.
        declares: Whether it declares metrics, statistics, analyses or figures, so that it needs no hook.
    """
    check_api(module)
    _check_marks(module, declares)
    for each in _marked(module):
        options = getattr(module, each).collapse_impl
        for option in ("tryfirst", "trylast", "hookwrapper", "wrapper"):
            if isinstance(options, dict) and options.get(option):
                raise PluginError(
                    f"{each}() is marked @hookimpl({option}=True): mark it @hookimpl; built-ins always come first"
                )
    try:
        manager.register(module, name=name)
        manager.check_pending()
    except pluggy.PluginValidationError as error:
        manager.unregister(name=name)
        unknown = [each for each in _marked(module) if each not in _HOOKS]
        if unknown:
            raise PluginError(f"there is no hook {unknown[0]}; {near_names(unknown[0], _HOOKS)}") from error
        _check_parameters(module)
        raise PluginError(str(error)) from error
    hooks = tuple(sorted(caller.name for caller in manager.get_hookcallers(module) or []))
    try:
        _check_place(module, hooks, commands=commands)
    except PluginError:
        manager.unregister(name=name)
        raise
    return hooks


def check_api(module: Any) -> None:
    """Refuse a plugin that was written for a newer contract."""
    wanted = getattr(module, "COLLAPSE_API", hookspecs.API)
    if type(wanted) is not int or wanted < 1:
        raise PluginError(f"COLLAPSE_API = {wanted!r:.40}: give the number of the contract, {hookspecs.API}")
    if wanted > hookspecs.API:
        raise PluginError(
            f"it was written for API {wanted} of collapse, and this is API {hookspecs.API}: upgrade linguistic-collapse"
        )


def _check_marks(module: Any, declares: bool) -> None:
    """Refuse hooks that lack ``@hookimpl``, because pluggy ignores them."""
    functions = {each: getattr(module, each, None) for each in _HOOKS}
    # a plugin may also be an object, whose hooks are methods
    own = [each for each, function in functions.items() if getattr(function, "__module__", "") == _module_of(module)]
    forgotten = [each for each in own if each not in _marked(module)]
    if forgotten:
        raise PluginError(f"{forgotten[0]}() is not marked: write @collapse.hookimpl above it")
    if not _marked(module) and not declares:
        raise PluginError(
            "it declares nothing: write a function with @metric, @class_metric, @pair_metric, @analysis or @figure, a "
            f"Statistic, or one of {', '.join(_HOOKS)}, marked @collapse.hookimpl"
        )


def _check_parameters(module: Any) -> None:
    """Refuse hooks with a required parameter that the hook's specification lacks: pluggy could not give it a value."""
    for hook in _marked(module):
        known = list(signature(getattr(hookspecs, hook)).parameters)
        given = signature(getattr(module, hook)).parameters.values()
        more = [each.name for each in given if each.default is each.empty and each.name not in known]
        if more:
            names = "parameters" if len(more) > 1 else "parameter"
            raise PluginError(
                f"{hook}() has the {names} {', '.join(more)}, which the hook does not have: write "
                f"def {hook}({', '.join(known)})"
            )


def _check_place(module: Any, hooks: tuple[str, ...], *, commands: bool) -> None:
    """Refuse hooks that are never called, unless the module is also a plugin of the other group."""
    idle = [hook for hook in hooks if (hook == "collapse_commands") != commands]
    if not idle:  # as usual: entry points are not read again for each plugin
        return
    other = "collapse" if commands else "collapse.commands"
    if not any(entry.value.partition(":")[0] == _module_of(module) for entry in entry_points(group=other)):
        raise PluginError(
            f"{idle[0]}() is never called from here: name the module in the entry-point group {other!r} of a package"
        )


def _module_of(plugin: Any) -> str:
    return str(getattr(plugin, "__name__", type(plugin).__module__))


def _marked(module: Any) -> list[str]:
    return [each for each in dir(module) if hasattr(getattr(module, each, None), "collapse_impl")]


def implementations(manager: pluggy.PluginManager, hook: str) -> list[tuple[str, Any]]:
    """Return the implementations of a hook, with the names of their plugins, in the order of registration."""
    # get_hookimpls() lists them in this order; the first registered plugin is asked first.
    return [(each.plugin_name, each.function) for each in getattr(manager.hook, hook).get_hookimpls()]
