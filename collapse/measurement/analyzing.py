"""Run an analysis on a results table."""

from collections.abc import Callable, Iterable
from dataclasses import replace
from inspect import signature
from pathlib import Path
from typing import Any, TypeVar

from collapse.core.extras import missing_package
from collapse.errors import CollapseError, PluginError, UsageError, near_names
from collapse.measurement.prepared import of_top
from collapse.measurement.results import Results
from collapse.measurement.rows import Row
from collapse.measurement.table import Table
from collapse.plugin.guarding import error_line
from collapse.plugin.metrics import Analysis, Declared
from collapse.plugin.plugin_manager import plugins

T = TypeVar("T")


def analyze(name: str, results: Results | Iterable[Row] | str | Path, **options: Any) -> Table:
    """Run an analysis of a plugin, such as ``permutation``.

    Args:
        name: The analysis.
        results: A table, its file, rows, or ``"paper"``, the published measurements.
        **options: Options of the analysis.

    Raises:
        UsageError: There is no such analysis, it does not have one of the options, or an option has a wrong value.
        CollapseError: The table cannot be read, or the analysis does not apply to it.
        PluginError: The analysis failed.

    >>> rows = [Row(f"m{i}", None, "", "", 1, 9, 4, 99, {"val_loss": i + 0.5, "nc1.cdnv": 2.0 * i}) for i in range(5)]
    >>> [record["column"] for record in analyze("permutation", rows).records()]
    ['nc1.cdnv']
    """
    found = plugins().analysis(name)
    known = [each.name for each in signature(found.function).parameters.values() if each.kind is each.KEYWORD_ONLY]
    for option in options:
        if option not in known:
            raise UsageError(f"analysis {name} has no option {option!r}; {near_names(option, known)}")
    return analyzed(found, results_of(results), **options)


def analyzed(found: Analysis, table: Results, **options: Any) -> Table:
    """Run a declared analysis, by default on rows of the top layer; raises the exceptions of :func:`analyze`."""
    table, notes = of_top(table, options)
    made = attempted(f"analysis {found.name}", found, lambda: found(table, **options))
    if not isinstance(made, Table):
        raise PluginError(
            f"analysis {found.name} of {found.function.__module__} must return a collapse.Table, got "
            f"{type(made).__name__}"
        )
    return replace(made, notes=[*notes, *made.notes]) if notes else made


def attempted(called: str, declared: Declared, make: Callable[[], T]) -> T:
    """Call ``make``, which runs a function of a plugin, and return the result of this function.

    ``called`` is the name of this function in error messages. The message of a PluginError also names its module, which
    is that of ``declared``.

    Raises:
        PluginError: The function failed.
        CollapseError: The function rejects its input, or a package is missing.
    """
    try:
        return make()
    except Exception as error:  # a plugin can raise anything
        if isinstance(error, CollapseError) and not isinstance(error, PluginError):
            raise
        if missing := missing_package(error):
            raise CollapseError(f"{called} is not available: {missing}") from error
        raise PluginError(f"{called} of {declared.function.__module__} failed: {error_line(error)}") from error


def results_of(given: Results | Iterable[Row] | str | Path) -> Results:
    """Return a results table; read it if a file or name is given, and make it if rows are given."""
    if isinstance(given, Results):
        return given
    return Results.read(given) if isinstance(given, str | Path) else Results(given)
