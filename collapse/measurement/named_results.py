"""Results tables that a plugin brings, by name: ``paper`` is the table of the published measurements."""

import re
from pathlib import Path

from collapse.errors import PluginError
from collapse.plugin.plugin_manager import plugins

_NAME = re.compile(r"[a-z][a-z0-9_-]*")


def named_results() -> dict[str, Path]:
    """Return the files of all named tables; of two plugins with the same name, the first comes first.

    Raises:
        PluginError: A plugin failed, or gives something else.

    >>> "paper" in named_results()
    True
    """
    found: dict[str, Path] = {}
    for plugin, tables in plugins().answers("collapse_results"):
        for name, file in tables.items():
            if not _NAME.fullmatch(name):
                raise PluginError(
                    f"plugin {plugin}: collapse_results() gives the name {name!r:.40}: use lower-case letters, digits, "
                    "_ and -"
                )
            found.setdefault(name, Path(file))
    return found


def file_of(given: str | Path) -> Path:
    """Return the file of a named table, or the path that is given where no table has this name.

    A file or folder of this name does not hide the table: names have no suffix, and results files must have one.
    ``./paper`` is the path.

    >>> file_of("results.csv").name
    'results.csv'
    """
    if not _NAME.fullmatch(str(given)):
        return Path(given)
    return named_results().get(str(given), Path(given))
