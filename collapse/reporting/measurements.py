"""The table of measurements of a report, with their standard errors and over their nulls."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from collapse.measurement.results import Results
from collapse.measurement.row_tables import ERROR, notes_of, notes_on_reachable, over_null, table_of
from collapse.measurement.rows import ABOUT, Row
from collapse.measurement.table import Table, table_of_frame
from collapse.plugin.plugin_manager import plugins

if TYPE_CHECKING:
    import pandas as pd

_SHOWN = ("model", "corpus", "min_count", "classes", "dim", "samples")
"""Columns before the measurements; what else identifies a row is among the methods."""
_SIDE_BY_SIDE = 4
"""Up to so many models are columns; more are rows."""


def measurement_table(results: Results) -> Table:
    """Return a row per model with every measurement that one of them has."""
    if results.rows and len(results.rows) <= _SIDE_BY_SIDE:
        return _side_by_side(results.rows)
    frame = results.frame()
    hidden = {*ABOUT, "versions"} - set(_SHOWN)
    ordered = [*(name for name in _SHOWN if name in frame), *(name for name in frame if name not in _SHOWN)]
    present = [name for name in ordered if name not in hidden and frame[name].notna().any()]
    if "corpus" in present and frame["corpus"].nunique() == 1:
        present.remove("corpus")  # the overview names it
    empty = [name for name in frame if name not in hidden and name not in present and name not in _SHOWN]
    notes = [f"without a value in any row: {', '.join(map(str, empty))}"] if empty else []
    shown = _with_references(frame[present], results.rows)
    return table_of_frame("Measurements", shown, notes)


def _with_references(frame: "pd.DataFrame", rows: Sequence[Row]) -> "pd.DataFrame":
    """Return a table with standard errors beside their measurements, and the headlines over their nulls."""
    columns = {}
    headlines, kinds = plugins().headlines(), list(dict.fromkeys(kind for row in rows for kind in row.nulls))
    for name in frame:
        columns[name] = frame[name].tolist()
        if any(name in row.standard_errors for row in rows):
            columns[f"{name} ±"] = [row.standard_errors.get(name) for row in rows]
        for kind in kinds if name in headlines else ():
            quotients = [over_null(row, name, kind) for row in rows]
            if any(each is not None for each in quotients):
                columns[f"{name} ÷ {kind}"] = quotients
    return type(frame)(columns)


def _side_by_side(rows: Sequence[Row]) -> Table:
    """Return a row per measurement and a column per model, beside the values at full collapse and reachable."""
    known = plugins().measurements()
    shown = [name for name in rows[0].measurements if name in known and all(name in row.measurements for row in rows)]
    table = table_of(rows, shown)
    columns, filled = list(table.columns), _in_one_line(table.rows, len(rows))
    values = columns[2 : 2 + len(rows)]
    if any(row.standard_errors.get(name) is not None for row in rows for name in shown):
        columns[2 + len(rows) : 2 + len(rows)] = ["±"] if len(rows) == 1 else [f"{each} ±" for each in values]
    else:
        filled = [row[: 2 + len(rows)] + row[2 + 2 * len(rows) :] for row in filled]
    others = sorted({name for row in rows for name in row.measurements} - set(shown))
    notes = notes_of(rows) + ([f"not in every row, or of no installed plugin: {', '.join(others)}"] if others else [])
    nulls = "the nulls stand beside it" if any(row.nulls for row in rows) else "collapse measure --null shows a null"
    notes += [f"{each} and shows no collapse; {nulls}" for each in notes_on_reachable(shown)]
    return Table("Measurements", columns, filled, notes)


def _in_one_line(lines: Sequence[Sequence[object]], models: int) -> list[list[object]]:
    """Return a row per measurement that can be sorted: its property in each, standard errors after the values."""
    filled: list[list[object]] = []
    for line in lines:
        cells = [None if value == "" else value for value in line]
        if cells[1] == ERROR:
            filled[-1][2 + models : 2 + 2 * models] = cells[2 : 2 + models]
            continue
        property_name = cells[0] or filled[-1][0]  # for people, a property is printed once
        filled.append([property_name, *cells[1 : 2 + models], *[None] * models, *cells[2 + models :]])
    return filled
