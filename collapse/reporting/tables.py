"""The tables of a report: measurements, what goes with loss, tokens."""

from collections.abc import Mapping
from typing import TYPE_CHECKING

from collapse.errors import CollapseError, counted
from collapse.measurement.analyzing import analyze
from collapse.measurement.model_names import ARCHITECTURE, with_parts
from collapse.measurement.results import Results
from collapse.measurement.rows import ABOUT
from collapse.measurement.table import Table
from collapse.plugin.plugin_manager import plugins
from collapse.reporting.grids import Grid, grid_of_frame

if TYPE_CHECKING:
    import pandas as pd

_SHOWN = ("model", "corpus", "min_count", "classes", "dim", "samples")
"""Columns before the measurements; what else identifies a row is among the methods."""
_GROUPS = (ARCHITECTURE, "dim", "n_params")
"""Columns of models of one size, within which rows are more exchangeable than over all; the first that divides them."""


def measurement_grid(results: Results) -> Grid:
    """Return a row per model with every measurement that one of them has."""
    frame = results.frame()
    hidden = {*ABOUT, "versions"} - set(_SHOWN)
    present = [name for name in frame if name not in hidden and frame[name].notna().any()]
    if "corpus" in present and frame["corpus"].nunique() == 1:
        present.remove("corpus")  # the overview names it
    empty = [name for name in frame if name not in hidden and name not in present and name not in _SHOWN]
    notes = [f"without a value in any row: {', '.join(map(str, empty))}"] if empty else []
    return grid_of_frame(frame[present], "measurements", "Measurements", notes, "filter models")


def tests_of(results: Results, permutations: int) -> tuple[dict[str, Table], dict[str, Table], list[str]]:
    """Run the registered analyses that a report shows.

    Args:
        results: All rows.
        permutations: Number of random permutations.

    Returns:
        The tables by analysis; the permutation tests within equal values of a column, by column; and why others are
        not shown.
    """
    options: dict[str, Mapping[str, object]] = {"permutation": {"n": permutations}, "correlation": {}}
    tables: dict[str, Table] = {}
    within: dict[str, Table] = {}
    lacking = []
    for name in [each for each in options if each in plugins().analyses]:
        try:
            tables[name] = analyze(name, results, **options[name])
        except CollapseError as error:
            lacking.append(f"{name}: {error}")
    with_names = with_parts(results.frame())
    groups = [name for name in _GROUPS if _repeats(with_names, name)] if "permutation" in tables else []
    for name in groups[:1]:
        try:
            within[name] = analyze("permutation", Results.from_frame(with_names), n=permutations, within=name)
        except CollapseError as error:
            lacking.append(f"permutation within equal {name}: {error}")
    return tables, within, lacking


def _repeats(frame: "pd.DataFrame", column: str) -> bool:
    """Whether a column divides the rows into several groups, most of more than two rows."""
    if column not in frame:
        return False
    sizes = frame[column].value_counts()
    return len(sizes) > 1 and bool((sizes > 2).mean() > 0.5)


def analysis_grid(name: str, table: Table) -> Grid:
    """Return the table of an analysis, the strongest association first."""
    rows, columns = table.rows, list(table.columns)
    if "R2" in columns:
        at = columns.index("R2")
        rows = sorted(rows, key=lambda row: -(row[at] if row[at] is not None else -1.0))
    return Grid(name, table.title, columns, rows, table.notes, "filter columns")


def token_grid(frame: "pd.DataFrame", model: str, number: int, most: int) -> Grid:
    """Return a row per token: the most frequent ones, and those with the largest and smallest value of each column.

    Args:
        frame: What :func:`collapse.tokens` returns.
        model: Whose tokens they are.
        number: The place of the store among the report's.
        most: How many of the most frequent tokens are kept.
    """
    kept = frame
    notes = []
    if len(frame) > most:
        numbers = frame.select_dtypes("number")
        chosen = set(frame.nlargest(most, "count").index if "count" in frame else frame.index[:most])
        each = 10
        for name in numbers:
            chosen |= {*numbers[name].nlargest(each).index, *numbers[name].nsmallest(each).index}
        kept = frame.loc[sorted(chosen)]
        notes.append(
            f"{len(kept):,} of {counted(len(frame), 'token')}: the {most:,} most frequent, and the {each} with the "
            "largest and the smallest values of each column; collapse tokens STORE gives all"
        )
    return grid_of_frame(kept, f"tokens-{number}", f"Tokens of {model}", notes, "search tokens")
