"""Load plugin modules from entry points, files and module names, and find their hooks and declarations."""

import importlib
import os
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

import pluggy

from collapse.core.paths import expanded
from collapse.errors import CollapseError, PluginError, UsageError, near_names
from collapse.plugin import hookspecs
from collapse.plugin.guarding import error_line
from collapse.plugin.parameters import DECLARATION, FILE_PREFIX

if TYPE_CHECKING:
    import click

GIVEN = "given with -p or COLLAPSE_PLUGINS"
_OWN, _NOT = "linguistic-collapse", "no:"


@dataclass(frozen=True)
class Plugin:
    """A plugin: a module with a name, from a distribution or a file.

    Attributes:
        name: Name of its entry point, or the name that the user gave.
        origin: Distribution and version of an installed plugin; "given with -p or COLLAPSE_PLUGINS" for a plugin that
            the user gave; "" for a module that is not registered.
        module: Name of its module.
        declares: Names of the functions, statistics and hooks that it declares.
        problem: Why the plugin is not used; None if it is used.
        opt_in: Whether the plugin's metrics are measured only if the user names them. It is True if the module sets
            ``COLLAPSE_OPT_IN = True``.
    """

    name: str
    origin: str
    module: str = ""
    declares: tuple[str, ...] = ()
    problem: str | None = None
    opt_in: bool = False

    @property
    def maker(self) -> str:
        """The name that stores record: the installed package, or the file or module that the user gave."""
        if self.origin != GIVEN:
            return self.origin.rpartition(" ")[0] or self.name
        return Path(self.name).name

    @property
    def made_by(self) -> str:
        """The name that rows record: the installed package with its version, or the file or module the user gave."""
        return self.maker if self.origin == GIVEN else self.origin

    def blamed(self, text: str) -> str:
        """Add the plugin's name to a message about its failure, and advice to correct, remove or disable the plugin."""
        if not self.origin:
            return text
        advice = f"disable it with -p no:{self.name}"
        if self.origin == GIVEN:
            advice = "correct it, or remove it from -p and COLLAPSE_PLUGINS"
        return f"plugin {self.name}: {text} ({advice})"


def entries(group: str) -> list[tuple[str, str, EntryPoint]]:
    """Return the name, origin and entry point of each installed plugin of a group; built-in plugins come first.

    So if a plugin repeats the name of a built-in metric, the built-in one is kept.
    """
    by_maker = [(each.dist.name, each.dist.version, each) for each in entry_points(group=group) if each.dist]
    by_maker.sort(key=lambda each: (each[0] != _OWN, each[0], each[2].name))
    return [(entry.name, f"{maker} {version}", entry) for maker, version, entry in by_maker]


def candidates(extra: list[str]) -> Iterator[tuple[str, str, Callable[[], Any]]]:
    """Yield the name, origin and loading function of each plugin, except plugins that add commands.

    Args:
        extra: Files, modules, or ``no:NAME`` to disable a plugin, in addition to ``COLLAPSE_PLUGINS``.

    Raises:
        UsageError: ``no:NAME`` names no installed plugin.
    """
    named = [each.strip() for each in [*os.environ.get("COLLAPSE_PLUGINS", "").split(","), *extra] if each.strip()]
    without = {each.removeprefix(_NOT) for each in named if each.startswith(_NOT)}
    installed = entries("collapse")
    names = {name for name, _, _ in installed}
    for name in sorted(without - names):
        raise UsageError(f"no plugin is called {name!r}; {near_names(name, names)} (list all with: collapse plugins)")
    for name, origin, entry in installed:
        if name not in without:
            yield name, origin, entry.load
    for name in dict.fromkeys(each for each in named if not each.startswith(_NOT) and each not in names):
        yield name, GIVEN, partial(load_given, name)


def load_given(name: str) -> ModuleType:
    """Import a plugin that the user named: a file, whose code is executed anew at each call, or a module.

    Raises:
        CollapseError: There is no such file.
    """
    path = expanded(name)
    if path.suffix != ".py":
        return importlib.import_module(name)
    if not path.is_file():
        raise CollapseError(f"there is no file {name}: check its path")
    module = ModuleType(f"{FILE_PREFIX}{path.stem}")
    module.__file__ = str(path)
    sys.modules[module.__name__] = module  # dataclasses and typing look their module up by name
    exec(compile(path.read_bytes(), path, "exec"), vars(module))  # the file's current content, never cached bytecode
    return module


def new_manager() -> pluggy.PluginManager:
    """Return a pluggy manager with our hook specifications."""
    manager = pluggy.PluginManager("collapse")
    manager.add_hookspecs(hookspecs)
    return manager


def register(manager: pluggy.PluginManager, name: str, module: Any) -> tuple[str, ...]:
    """Register the hooks of a module, and return their names; raise PluginError if a hook is invalid."""
    try:
        manager.register(module, name=name)
        manager.check_pending()  # raises for hooks with unknown names
    except pluggy.PluginValidationError as error:
        manager.unregister(name=name)
        raise PluginError("; ".join(str(error).splitlines())) from error
    return tuple(each.name for each in manager.get_hookcallers(module) or ())


def declarations(module: Any) -> Iterator[Any]:
    """Yield, in order, the declared functions and statistics that a module defines, also in its lists and tuples."""
    for value in list(vars(module).values()):
        for each in value if isinstance(value, list | tuple) else (value,):
            if getattr(each, "__module__", None) == module.__name__ and _is_declared(each):
                yield each


def _is_declared(value: Any) -> bool:
    is_base = isinstance(value, type) and value.__name__.startswith("_")  # a base class of other statistics
    return hasattr(value, DECLARATION) and not is_base


def command_plugins(cli: "click.Group") -> list[Plugin]:
    """Let installed plugins add their commands; return the plugins, whose ``problem`` says why a plugin failed."""
    found = []
    for name, origin, entry in entries("collapse.commands"):
        before, problem = dict(cli.commands), None
        try:
            manager = new_manager()
            register(manager, name, entry.load())
            manager.hook.collapse_commands(cli=cli)
            taken = [each for each in before if cli.commands.get(each) is not before[each]]
            if taken:
                raise PluginError(f"command {', '.join(taken)} already exists: give the new command another name")
        except Exception as error:  # a plugin may do anything at import
            problem = f"plugin {name} ({origin}): {error_line(error)}"
        cli.commands.update(before)
        found.append(Plugin(name, origin, entry.value, ("collapse_commands",), problem))
    return found
