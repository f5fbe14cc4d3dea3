"""Run an analysis on a results table."""

from collections.abc import Iterable
from inspect import signature
from pathlib import Path
from typing import Any

from collapse.errors import CollapseError, PluginError, UsageError
from collapse.measurement.results import Results
from collapse.measurement.rows import Row
from collapse.measurement.table import Table
from collapse.plugin.guarding import described
from collapse.plugin.metrics import Analysis
from collapse.plugin.plugin_manager import plugins


def analyze(name: str, results: Results | Iterable[Row] | str | Path, **options: Any) -> Table:
    """Run an analysis of a plugin, such as ``permutation``.

    Args:
        name: The analysis.
        results: A table, its file, rows, or ``"paper"``, the published measurements.
        **options: The analysis's own.

    Raises:
        UsageError: There is no such analysis, or an option is wrong.
        CollapseError: The table cannot be read, or the analysis does not apply to it.
        PluginError: The analysis failed.

    >>> rows = [Row(f"m{i}", None, "", "", 1, 9, 4, 99, {"val_loss": i + 0.5, "nc1.cdnv": 2.0 * i}) for i in range(5)]
    >>> [record["column"] for record in analyze("permutation", rows).records()]
    ['nc1.cdnv']
    """
    return analyzed(plugins().analysis(name), results_of(results), **options)


def analyzed(found: Analysis, table: Results, **options: Any) -> Table:
    """Run a declared analysis, as :func:`analyze` does one of a plugin; raises as it does."""
    called = f"analysis {found.name} of {found.function.__module__}"
    try:
        signature(found.function).bind(table, **options)
    except TypeError as error:
        raise UsageError(f"analysis {found.name}: {error}") from error
    try:
        made = found(table, **options)
    except CollapseError as error:  # the analysis's own message about the table or an option
        if not isinstance(error, PluginError):
            raise
        raise PluginError(f"{called} failed: {error}") from error
    except Exception as error:
        raise PluginError(f"{called} failed: {described(error)}") from error
    if not isinstance(made, Table):
        raise PluginError(f"{called} returned {type(made).__name__}, not a collapse.Table")
    if any(len(row) != len(made.columns) for row in made.rows):
        raise PluginError(f"{called} returned rows that do not have one value for each of its columns")
    return made


def results_of(given: Results | Iterable[Row] | str | Path) -> Results:
    """Return the table that is given as such, as its file or name, or as rows."""
    if isinstance(given, Results):
        return given
    return Results.read(given) if isinstance(given, str | Path) else Results(given)


def permutation(results: Results | Iterable[Row] | str | Path, **options: Any) -> Table:
    """Test by permutation whether columns of a results table go with validation loss.

    Args:
        results: A table, its file, rows, or ``"paper"``, the published measurements.
        **options: ``against`` (the column to permute: "val_loss"), ``columns`` (those to test: names, prefixes or
            arithmetic; all measurements), ``where`` (globs that choose rows), ``within`` (permute rows of equal
            values of these columns only) and ``n`` (permutations: 99,999).

    Returns:
        A row per column, sorted by p: r, the sign that collapse predicts, R², p, its standard error, the max-T p, an
        interval of r, and its range without one row.

    Raises:
        UsageError, CollapseError: As for :func:`analyze`.
    """
    return analyze("permutation", results, **options)
