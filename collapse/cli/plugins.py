"""collapse plugins: list the installed plugins and their problems."""

from dataclasses import asdict

import click

from collapse.cli.terminal import say_error, say_json


@click.command()
@click.option("--json", "as_json", is_flag=True, help="Print as JSON.")
def command(as_json: bool) -> None:
    """List plugins, what they declare, and their problems."""
    from collapse.cli import command_found
    from collapse.cli.rendering import print_table
    from collapse.measurement.table import Table
    from collapse.plugin.plugin_manager import plugins

    installed = plugins()
    found = [*installed.found, *command_found]
    if as_json:
        say_json([asdict(each) for each in found])
        return
    rows = [[each.name, each.origin, ", ".join(each.declares)] for each in found if not each.problem]
    print_table(Table("", ["plugin", "from", "declares"], rows))
    for problem in installed.problems:
        say_error(problem)
