"""Commands that installed plugins add through a hook."""

import click

from collapse.errors import PluginError
from collapse.plugin.guarding import error_line
from collapse.plugin.loading import Plugin, entries, new_manager, register


def command_plugins(cli: click.Group) -> list[Plugin]:
    """Let installed plugins add their commands; return the plugins, with the reason for those that failed."""
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
