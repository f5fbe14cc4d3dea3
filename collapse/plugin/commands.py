"""Commands of installed plugins: named by an entry point and loaded on use, or added by a hook."""

from importlib.metadata import EntryPoint, entry_points
from typing import Any

import click

from collapse.errors import PluginError
from collapse.plugin.guarding import described
from collapse.plugin.registering import implementations, new_manager, origin_of, own_first, register
from collapse.plugin.registry import Plugin


class NamedCommand(click.Command):
    """A command that an entry point names as ``module:object``, loaded when it is used or its help is shown."""

    def __init__(self, entry: EntryPoint) -> None:
        self.entry, self.origin = entry, origin_of(entry)
        super().__init__(entry.name, short_help=f"Of {self.origin}.")

    def make_context(self, info_name: str | None, args: list[str], parent: Any = None, **extra: Any) -> click.Context:
        """Load the command and return its context, which click then invokes.

        Raises:
            PluginError: It cannot be loaded, or is not a click command.
        """
        return self._load().make_context(info_name, args, parent, **extra)

    def _load(self) -> click.Command:
        try:
            command = self.entry.load()
        except Exception as error:  # a plugin may do anything at import
            raise PluginError(f"command {self.name} ({self.origin}) cannot be loaded: {described(error)}") from error
        if not isinstance(command, click.Command):
            raise PluginError(
                f"command {self.name} ({self.origin}): {self.entry.value} is of type {type(command).__name__}, and no "
                "click command"
            )
        return command


def command_plugins(cli: Any) -> list[Plugin]:
    """Let installed plugins add their commands; return the plugins, with the reason for those that failed."""
    found = []
    for entry in sorted(entry_points(group="collapse.commands"), key=own_first):
        origin, before = origin_of(entry), dict(cli.commands)
        hooks: tuple[str, ...] = ()
        problem = None
        try:
            hooks = _add(cli, entry)
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
        found.append(Plugin(entry.name, origin, entry.value, hooks, problem=problem))
    return found


def _add(cli: Any, entry: EntryPoint) -> tuple[str, ...]:
    """Add the command or commands of an entry point; return the hooks of its module."""
    if entry.attr:
        cli.add_command(NamedCommand(entry))
        return ()
    manager = new_manager()
    hooks = register(manager, entry.name, entry.load())
    for _, implementation in implementations(manager, "collapse_commands"):
        implementation(cli)
    return hooks
