"""Make the tables of a report: the measurements, and how the measurements were made."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from collapse.errors import shortened
from collapse.measurement.listing import metrics
from collapse.measurement.results import Results
from collapse.measurement.row_tables import ERROR, by_property, notes_on_reachable, whole_table_of
from collapse.measurement.rows import ABOUT
from collapse.measurement.table import Table, table_of_frame
from collapse.plugin.parameter_names import OF_OTHERS
from collapse.plugin.plugin_manager import plugins
from collapse.stores.store import Store

if TYPE_CHECKING:
    import pandas as pd

_SHOWN = ("model", "corpus", "min_count", "classes", "dim", "samples")
"""Columns before the measurements. The section on methods shows the other columns that identify a row."""
_SIDE_BY_SIDE = 4
"""Up to this many models, a table has a column per model; with more models, it has a row per model."""


def measurement_table(results: Results) -> Table:
    """Return a table of all measurements with a row per model, or with a column per model for a few models."""
    if 0 < len(results.rows) == len(results) <= _SIDE_BY_SIDE:
        return _side_by_side(results)
    frame = results.frame()
    names = [*_SHOWN, *(name for name in frame if name not in {*ABOUT, "versions"})]
    present = [name for name in dict.fromkeys(names) if name in frame and frame[name].notna().any()]
    if "corpus" in present and frame["corpus"].nunique() == 1:
        present.remove("corpus")  # the overview names it
    columns: dict[str, Any] = {}
    for name in present:
        columns[name] = frame[name].tolist()
        if any(name in row.standard_errors for row in results.rows):
            columns[f"{name} ±"] = [None if row is None else row.standard_errors.get(name) for row in results.lines]
    return Table("", list(columns), list(zip(*columns.values(), strict=True)))


def layer_table(frame: "pd.DataFrame") -> Table:
    """Return a table of the headline measurements with a row per layer."""
    names = ["model", "step", "layer", *by_property(name for name in plugins().headlines(OF_OTHERS) if name in frame)]
    note = "the other sections use only the layer top, the input of the output embedding"
    return table_of_frame("", frame[[name for name in names if name in frame]], [note])


def _side_by_side(results: Results) -> Table:
    """Return the table that ``collapse measure`` prints, with the names of property and measurement in every row.

    Each row needs the names, because readers sort the rows.
    """
    rows, known = results.rows, plugins().measurements()
    shared = [name for name in rows[0].measurements if name in known and all(name in row.measurements for row in rows)]
    table, made = whole_table_of(rows, shared), []
    of, measurement = "", ""
    for part, name, *values in table.rows:
        of, measurement = part or of, f"{measurement} ±" if name == ERROR else name
        made.append([of, measurement, *(None if value == "" else value for value in values)])
    others = sorted({name for row in rows for name in row.measurements} - set(shared))
    hidden = f"not shown (missing in a row, or plugin not installed): {', '.join(others)}"
    notes = [*table.notes, *([hidden] if others else [])]
    return Table("", table.columns, made, notes)


def definition_table(frame: "pd.DataFrame") -> Table:
    """Return a table with a row for each measurement in ``frame`` that an installed plugin defines.

    Values at full collapse and reachable values are those for the C and d of one row: the row with the most classes
    and, among equals, the most dimensions. If no row has C and d, they are those for the defaults of ``metrics()``.
    """
    names = [str(each) for each in frame if each in plugins().measurements()]
    shapes = frame[["classes", "dim"]].dropna() if {"classes", "dim"} <= set(frame) else frame.iloc[:0]
    shape = {} if shapes.empty else shapes.sort_values(["classes", "dim"]).iloc[-1].astype(int).to_dict()
    listed = metrics(names, **shape)
    about = listed.frame().drop(columns=["of", "plugin"]).replace({"inf": "∞", "-inf": "−∞"})
    random = notes_on_reachable(names) if not shape or shape["classes"] > shape["dim"] + 1 else []
    return table_of_frame("Definitions", about, [*random, f"limits {listed.title}"])


def row_table(frame: "pd.DataFrame") -> Table:
    """Return a table of the columns that identify each row."""
    about = frame[[name for name in ABOUT if name in frame]]
    return table_of_frame("What was measured", about.dropna(how="all", axis=1))


def manifest_table(title: str, state: Mapping[str, Any], manifest: Mapping[str, Any]) -> Table:
    """Return a table of what a store or part holds: ``state``, then the identity and provenance in its manifest.

    ``state`` maps the names of further facts to their values. A nested value is named by its outer and its inner key:
    "corpus, sha256".
    """
    provenance = dict(manifest["provenance"])
    phases = {"train": provenance, "validation": provenance.pop("validation", None) or {}}
    phases |= {f"{each['phase']} of {_flat(each['layers'])}": each for each in provenance.pop("layers", [])}
    facts = {**state, **manifest["identity"]}
    for phase, made in phases.items():
        facts[f"made, {phase}"] = {key: value for key, value in made.items() if key != "parts"}
        facts |= {f"made, {phase}, part {at}": part for at, part in enumerate(made.get("parts", ()), 1)}
    rows: list[tuple[str, Any]] = []
    for name, value in facts.items():
        inner = value.items() if isinstance(value, Mapping) else [("", value)]
        rows += [(f"{name}, {key}".strip(", ").replace("_", " "), _flat(each)) for key, each in inner]
    return Table(title, ["", "value"], [row for row in rows if row[1] not in (None, "")])


def _flat(value: Any) -> Any:
    if isinstance(value, Mapping):
        return ", ".join(f"{key}={_flat(each)}" for key, each in value.items())
    return ", ".join(map(str, value)) if isinstance(value, list) else value


def store_table(store: Store) -> Table:
    """Return a table of the identity and the provenance in a store's manifest."""
    state = {"store": store.digest, "state": store.state, "model": store.model, **store.manifest["corpus"]}
    return manifest_table(f"Store of {shortened(store.model)}", state, store.manifest)
