"""Names, options, keys and exit codes that users' scripts and files depend on do not change.

tests/golden/promises.json is compared as a whole. A deliberate change is written into it by
``python tests/test_promises.py --write`` and listed in CHANGELOG; the golden store and measured-v3.json have tests of
their own (test_store.py).
"""

import dataclasses
import json
import subprocess
import sys
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any, cast

import click

import collapse
import collapse.errors
import collapse.testing
from collapse.cli import _add_commands, cli
from collapse.measurement.results import Note, Results
from collapse.plugin import hookspecs
from collapse.plugin.plugin_manager import plugins

PROMISES = Path(__file__).with_name("golden") / "promises.json"


def test_what_others_depend_on_is_as_it_was():
    alone = subprocess.run([sys.executable, __file__], capture_output=True, text=True, check=True)
    kept, now = json.loads(PROMISES.read_text()), json.loads(alone.stdout)
    for kind in kept.keys() | now.keys():
        assert now.get(kind) == kept.get(kind), kind


def promises() -> str:
    """Everything that docs promise to keep, of a process in which nothing else was loaded."""
    return json.dumps(_promises(), indent=1, sort_keys=True) + "\n"


def _promises() -> dict[str, Any]:
    row = collapse.measure(collapse.load(PROMISES.with_name("store-v3")), metrics=["nc2.norm"])
    _add_commands()
    return {
        "collapse.__all__": sorted(collapse.__all__),
        "collapse.errors": _own(collapse.errors),
        "collapse.testing": sorted(collapse.testing.__all__),
        "hooks": sorted(name for name in vars(hookspecs) if name.startswith("collapse_")),
        "entry points": sorted(
            [point.group, point.name]
            for group in ("collapse", "collapse.commands")
            for point in entry_points(group=group)
            if point.dist and point.dist.name == "linguistic-collapse"
        ),
        "measurements": {name: metric.version for name, (metric, _) in sorted(plugins().measurements().items())},
        "commands": _commands(cli, ["collapse"]),
        "keys of a row": sorted(row.to_dict()),
        "keys of a note": sorted(field.name for field in dataclasses.fields(Note)),
        "columns of a table": list(Results([row]).frame()),
    }


def _own(module: Any) -> list[str]:
    return sorted(name for name, value in vars(module).items() if getattr(value, "__module__", "") == module.__name__)


def _commands(command: click.Command, words: list[str]) -> dict[str, list[str]]:
    """Each command with its options and arguments, as they are typed."""
    found = {" ".join(words): sorted(word for each in command.params for word in each.opts + each.secondary_opts)}
    if isinstance(command, click.Group):
        context = click.Context(command)
        for name in command.list_commands(context):
            found |= _commands(cast(click.Command, command.get_command(context, name)), [*words, name])
    return found


if __name__ == "__main__":
    if sys.argv[1:] == ["--write"]:
        PROMISES.write_text(promises())
    else:
        sys.stdout.write(promises())
