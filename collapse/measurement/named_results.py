"""Results tables that a plugin brings, by name: ``paper`` is the table of the published measurements."""

from pathlib import Path

from collapse.plugin.plugin_manager import plugins


def named_results() -> dict[str, Path]:
    """Return the files of all named tables; of two plugins with the same name, the first comes first.

    Raises:
        PluginError: A plugin failed.

    >>> "paper" in named_results()
    True
    """
    found: dict[str, Path] = {}
    for _, tables in plugins().answers("collapse_results"):
        found = {**tables, **found}
    return found


def file_of(given: str | Path) -> Path:
    """Return the file of a named table, or the path that is given where no table has this name.

    A file or folder of this name does not hide the table: names have no suffix, and results files must have one.
    ``./paper`` is the path.

    >>> file_of("results.csv").name
    'results.csv'
    """
    return Path(named_results().get(str(given), given))
