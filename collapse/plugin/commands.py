"""Commands that installed plugins add through a hook."""

import click

from collapse.plugin.guarding import described
from collapse.plugin.loading import Plugin, entries, implementations, new_manager, register


def command_plugins(cli: click.Group) -> list[Plugin]:
    """Let installed plugins add their commands; return the plugins, with the reason for those that failed."""
    found = []
    for name, origin, entry in entries("collapse.commands"):
        before, manager, problem = dict(cli.commands), new_manager(), ""
        hooks: tuple[str, ...] = ()
        try:
            hooks = register(manager, name, entry.load())
            for _, add in implementations(manager, "collapse_commands"):
                add(cli)
            taken = [each for each, command in before.items() if cli.commands.get(each) is not command]
            if taken:
                problem = f"there is already a command {', '.join(taken)}, which stays: give it another name"
        except Exception as error:  # a plugin may do anything at import
            problem = described(error)
        cli.commands.update(before)
        said = f"plugin {name} ({origin}): {problem}" if problem else None
        found.append(Plugin(name, origin, entry.value, hooks, problem=said))
    return found
