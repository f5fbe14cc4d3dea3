"""How the numbers were made: definitions, versions, and the origin of every row and store."""

import sys
from collections.abc import Mapping
from importlib import metadata
from typing import TYPE_CHECKING, Any

from collapse.errors import shortened
from collapse.measurement.row_tables import notes_on_reachable
from collapse.measurement.rows import ABOUT
from collapse.measurement.table import Table, table_of_frame
from collapse.plugin.metrics import limits_of
from collapse.plugin.plugin_manager import plugins
from collapse.stores.provenance import now, versions

if TYPE_CHECKING:
    import pandas as pd

    from collapse.figures.sources import Material
    from collapse.stores.store import Store

_DRAWING = ("altair", "vl-convert-python")


def definition_table(frame: "pd.DataFrame") -> Table:
    """Return a row per measurement of the table that an installed plugin defines."""
    known = plugins().measurements()
    shape, whose = _shape(frame)
    rows = []
    for name in [str(each) for each in frame if each in known]:
        metric, measure = known[name]
        limits: dict[str, Any] = {"towards": measure.towards, "reachable": measure.reachable}
        if shape is not None:
            limits = {**limits_of(metric, measure, *shape)[0]}
        elif callable(measure.towards) or callable(measure.reachable):
            limits = {name: "of C and d" if callable(limit) else limit for name, limit in limits.items()}
        rows.append(
            [
                name,
                metric.property_of(name),
                metric.equation_of(measure),
                limits["towards"],
                limits["reachable"],
                metric.source or None,
                metric.version,
            ]
        )
    notes = notes_on_reachable(row[0] for row in rows)
    if shape is not None:
        notes.append(f"limits for {shape[0]:,} classes in {shape[1]:,} dimensions, {whose}")
    columns = ["measurement", "property", "definition", "at full collapse", "reachable", "source", "version"]
    return Table("Definitions", columns, rows, notes)


def _shape(frame: "pd.DataFrame") -> tuple[tuple[int, int] | None, str]:
    """Return C and d, for the limits that depend on them, and of which rows they are."""
    shaped = frame[["classes", "dim"]].dropna() if {"classes", "dim"} <= set(frame) else frame.iloc[:0]
    if shaped.empty:
        return None, ""
    largest = shaped.sort_values(["classes", "dim"]).iloc[-1]
    whose = "as all rows have" if len(shaped.drop_duplicates()) == 1 else "the most that a row has"
    return (int(largest["classes"]), int(largest["dim"])), whose


def row_table(frame: "pd.DataFrame") -> Table | None:
    """Return what identifies each row, or None for a table that says only the model and its size."""
    present = [name for name in ABOUT if name in frame and frame[name].notna().any()]
    if not set(present) - {"model", "classes", "dim"}:
        return None
    return table_of_frame("What was measured", frame[present])


def source_table(material: "Material") -> Table:
    """Return the files and stores of the report."""
    return Table("Sources", ["kind", "name", "holds"], material.origins)


def store_tables(material: "Material") -> list[Table]:
    """Return for each store what its manifest says of its identity and of how it was made."""
    return [_store_table(store) for store in material.stores]


def _store_table(store: "Store") -> Table:
    made: dict[str, Any] = {"store": store.digest, "state": store.state, "model": store.model, "corpus": store.corpus}
    facts = {**made, **store.identity, "made": store.manifest["provenance"]}
    return Table(f"Store of {shortened(store.model, 60)}", ["", "value"], list(_flat(facts).items()))


def _flat(facts: Mapping[str, Any], before: str = "") -> dict[str, Any]:
    """Return nested facts as one list: ``made, versions, torch``."""
    found: dict[str, Any] = {}
    for key, value in facts.items():
        name = f"{before}{str(key).replace('_', ' ')}"
        if isinstance(value, Mapping):
            found |= _flat(value, f"{name}, ")
        elif value is not None and value != []:
            found[name] = ", ".join(map(str, value)) if isinstance(value, list) else value
    return found


def version_table() -> Table:
    """Return the versions of what made the report, and of the plugins."""
    found = dict(versions())
    for name in _DRAWING:
        if name.replace("-", "_").removesuffix("_python") in sys.modules:
            found[name] = metadata.version(name)
    rows = [[name, version] for name, version in found.items()]
    rows += [[f"plugin {each.name}", each.origin] for each in plugins().found if not each.problem]
    return Table("Versions", ["package", "version"], rows, [f"the report was made at {now()}"])
