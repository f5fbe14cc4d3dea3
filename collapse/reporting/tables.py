"""The tables of a report: measurements, tokens, and how the numbers were made."""

import sys
from collections.abc import Sequence
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any

from collapse.core.progress import Report
from collapse.errors import CollapseError, counted, shortened
from collapse.measurement.cells import is_number, text
from collapse.measurement.results import Results
from collapse.measurement.row_tables import ERROR, notes_of, notes_on_reachable, over_null, table_of
from collapse.measurement.rows import ABOUT, Row
from collapse.measurement.table import Table, table_of_frame
from collapse.plugin.metrics import limits_of
from collapse.plugin.plugin_manager import plugins
from collapse.stores.provenance import now, versions
from collapse.stores.store import Store
from collapse.vocabulary.token_table import tokens
from collapse.vocabulary.token_texts import quoted

if TYPE_CHECKING:
    import pandas as pd

_SHOWN = ("model", "corpus", "min_count", "classes", "dim", "samples")
"""Columns before the measurements; what else identifies a row is among the methods."""
_SIDE_BY_SIDE = 4
"""Up to so many models are columns; more are rows."""
_TOKENS = 2_000
_EXTREMES = 10
_DRAWING = {"altair": "altair", "vl_convert": "vl-convert-python"}


def measurement_table(results: Results) -> Table:
    """Return a row per model with every measurement that one of them has; a few models are columns instead."""
    if results.rows and len(results.rows) <= _SIDE_BY_SIDE:
        return _side_by_side(results.rows)
    frame = results.frame()
    names = [*_SHOWN, *(name for name in frame if name not in {*ABOUT, "versions"})]
    present = [name for name in dict.fromkeys(names) if name in frame and frame[name].notna().any()]
    if "corpus" in present and frame["corpus"].nunique() == 1:
        present.remove("corpus")  # the overview names it
    empty = [str(name) for name in names if name in frame and name not in (*present, *_SHOWN)]
    notes = [f"without a value in any row: {', '.join(empty)}"] if empty else []
    headlines, kinds = plugins().headlines(), dict.fromkeys(kind for row in results.rows for kind in row.nulls)
    columns: dict[str, Any] = {}
    for name in present:
        columns[name] = frame[name].tolist()
        if any(name in row.standard_errors for row in results.rows):
            columns[f"{name} ±"] = [row.standard_errors.get(name) for row in results.rows]
        for kind in kinds if name in headlines else ():
            quotients = [over_null(row, name, kind) for row in results.rows]
            if any(each is not None for each in quotients):
                columns[f"{name} ÷ {kind}"] = quotients
    return table_of_frame("", type(frame)(columns), notes)


def _side_by_side(rows: Sequence[Row]) -> Table:
    """Return a row per measurement and a column per model, beside the values at full collapse and reachable."""
    import pandas as pd

    known = plugins().measurements()
    shown = [name for name in rows[0].measurements if name in known and all(name in row.measurements for row in rows)]
    table = table_of(rows, shown)
    frame = pd.DataFrame(table.rows, columns=list(table.columns), dtype=object).replace("", None)
    of_errors = frame["measurement"] == ERROR  # a line of its own below each measurement that has one
    errors = frame[of_errors].set_axis(frame.index[of_errors] - 1)
    frame = frame[~of_errors]
    frame = frame.assign(property=frame["property"].ffill())  # for people, a property is printed once
    for at, model in enumerate(table.columns[2 : 2 + len(rows)] if len(errors) else ()):
        name = "±" if len(rows) == 1 else f"{model} ±"
        frame.insert(2 + len(rows) + at, name, errors[model].reindex(frame.index))
    others = sorted({name for row in rows for name in row.measurements} - set(shown))
    notes = notes_of(rows) + ([f"not in every row, or of no installed plugin: {', '.join(others)}"] if others else [])
    nulls = "the nulls stand beside it" if any(row.nulls for row in rows) else "collapse measure --null shows a null"
    notes += [f"{each} and shows no collapse; {nulls}" for each in notes_on_reachable(shown)]
    return table_of_frame("", frame.where(frame.notna(), None), notes)


def definition_table(frame: "pd.DataFrame") -> Table:
    """Return a row per measurement of the table that an installed plugin defines."""
    known = plugins().measurements()
    shapes = frame[["classes", "dim"]].dropna() if {"classes", "dim"} <= set(frame) else frame.iloc[:0]
    shape: tuple[int, int] | None = None
    if not shapes.empty:
        largest = shapes.sort_values(["classes", "dim"]).iloc[-1]
        shape = int(largest["classes"]), int(largest["dim"])
    rows = []
    for name in [str(each) for each in frame if each in known]:
        metric, measure = known[name]
        limits: list[Any] = [measure.towards, measure.reachable]
        if shape is not None:
            limits = list(limits_of(metric, measure, *shape)[0].values())
        limits = ["of C and d" if callable(limit) else limit for limit in limits]
        about = [name, metric.property_of(name), metric.equation_of(measure)]
        rows.append([*about, *limits, metric.source or None, metric.version])
    notes = notes_on_reachable(row[0] for row in rows)
    if shape is not None:
        whose = "as all rows have" if len(shapes.drop_duplicates()) == 1 else "the most that a row has"
        notes.append(f"limits for {shape[0]:,} classes in {shape[1]:,} dimensions, {whose}")
    columns = ["measurement", "property", "definition", "at full collapse", "reachable", "source", "version"]
    return Table("Definitions", columns, rows, notes)


def row_table(frame: "pd.DataFrame") -> Table | None:
    """Return what identifies each row, or None for a table that says only the model and its size."""
    present = [name for name in ABOUT if name in frame and frame[name].notna().any()]
    only = set(present) <= {"model", "classes", "dim"}
    return None if only else table_of_frame("What was measured", frame[present])


def store_table(store: Store) -> Table:
    """Return what the manifest of a store says of its identity and of how it was made."""
    import pandas as pd

    facts: dict[str, Any] = {"store": store.digest, "state": store.state, "model": store.model, "corpus": store.corpus}
    nested = {**facts, **store.identity, "made": store.manifest["provenance"]}
    flat = pd.json_normalize(nested, sep=", ").iloc[0]  # such as "made, versions, torch"
    rows = []
    for name, value in flat.items():
        value = ", ".join(map(str, value)) if isinstance(value, list) else value
        rows.append([str(name).replace("_", " "), value])
    kept = [row for row in rows if row[1] is not None and row[1] != ""]
    return Table(f"Store of {shortened(store.model, 60)}", ["", "value"], kept)


def version_table() -> Table:
    """Return the versions of what made the report, and of the plugins."""
    found = dict(versions())
    found |= {name: metadata.version(name) for module, name in _DRAWING.items() if module in sys.modules}
    rows = [[name, version] for name, version in found.items()]
    rows += [[f"plugin {each.name}", each.origin] for each in plugins().found if not each.problem]
    return Table("Versions", ["package", "version"], rows, [f"the report was made at {now()}"])


def token_tables(
    stores: Sequence[Store], tokenizer: str | Path | None = None, progress: Report | None = None
) -> tuple[list[Table], list[str]]:
    """Return for each store its table of tokens, and why others have none.

    Args:
        stores: The stores.
        tokenizer: Folder or Hub id of their tokenizer; None for the one that each records.
        progress: Called as progress(what, done, total).
    """
    tables, lacking = [], []
    for store in stores:
        try:
            tables.append(token_extract(tokens(store, tokenizer=tokenizer, progress=progress), store.model))
        except CollapseError as error:
            lacking.append(f"tokens of {store.model}: {error}")
    return tables, lacking


def token_extract(table: Table, model: str, most: int = _TOKENS) -> Table:
    """Return a row per token: the most frequent ones, and those with the largest and smallest value of each column.

    Args:
        table: A row per token, with its ``text`` and ``count``.
        model: Whose tokens they are.
        most: How many of the most frequent tokens are kept.
    """
    frame, notes = table.frame(), list(table.notes)
    if table.average is not None:
        each = zip(table.columns, table.average, strict=True)
        notes.append("; ".join(f"{name} {text(value)}" for name, value in each if is_number(value)))
    if len(frame) > most:
        chosen = set(frame["count"].nlargest(most).index)
        for name in frame.columns.drop(["id", "text", "count"], errors="ignore"):
            values = frame[name].dropna().astype(float)
            chosen |= {*values.nlargest(_EXTREMES).index, *values.nsmallest(_EXTREMES).index}
        notes.insert(
            0,
            f"{len(chosen):,} of {counted(len(frame), 'token')}: the {most:,} most frequent, and the {_EXTREMES} with "
            "the largest and the smallest value of each column; collapse tokens shows the others",
        )
        frame = frame.loc[sorted(chosen)]
    # Texts in quotes, because spaces count; an id is a name, not a number.
    texts = [None if each is None else quoted(each) for each in frame["text"]]
    frame = frame.assign(id=frame["id"].astype(str), text=texts)
    return table_of_frame(f"Tokens of {shortened(model, 60)}", frame, notes)
