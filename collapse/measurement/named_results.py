"""Results tables that plugins provide by name: ``paper`` is the table of the published measurements."""

from pathlib import Path

from collapse.plugin.plugin_manager import plugins


def named_results() -> dict[str, Path]:
    """Return the files of all named tables; if two plugins use the same name, the first plugin wins.

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
    """Return the file of a named table, or the given path if no table has this name.

    The table takes precedence over a file or folder of the same name: names have no suffix, but results files must
    have one. ``./paper`` always means the path.

    >>> file_of("results.csv").name
    'results.csv'
    """
    return Path(named_results().get(str(given), given))
