"""Rows as a table: property, measurement, a value per model, and the values at full collapse and reachable."""

import math
import re
from collections.abc import Collection, Sequence
from typing import Any

from collapse.measurement.comparing import distinct
from collapse.measurement.rows import Row
from collapse.measurement.sheets import Sheet, number
from collapse.plugin.metrics import limits_of
from collapse.plugin.plugin_manager import plugins


def sheet_of(rows: Sequence[Row], shown: Collection[str] | None = None) -> Sheet:
    """Return the table of some rows with the same measurements.

    Args:
        rows: A row per model.
        shown: The measurements to include; None for all.
    """
    known = plugins().measurements()
    first = rows[0]
    models = distinct(rows) if len(rows) > 1 else ["value"]
    measured = [name for name in first.measurements if shown is None or name in shown]
    made, before = [], None
    for name in sorted(measured, key=lambda name: (_rank(known[name][0].property_of(name)), name)):
        metric, measure = known[name]
        property_name = metric.property_of(name)
        # the row's notes report errors in limits
        limits = [limits_of(metric, measure, row.classes, row.dim, row.measurements)[0] for row in rows]
        reachable = [each["towards"] if each["reachable"] is None else each["reachable"] for each in limits]
        if all(best == each["towards"] for best, each in zip(reachable, limits, strict=True)):
            reachable = []
        cells: list[Any] = [property_name if property_name != before else "", name]
        cells += [*(row.measurements.get(name) for row in rows), _ends([each["towards"] for each in limits])]
        cells.append(_ends(reachable))
        made.append(cells)
        before = property_name
    return Sheet(["property", "measurement", *models, "at full collapse", "reachable"], made, keys=2)


def _ends(limits: Sequence[float | None]) -> float | str:
    """Return a limit, or the least and the largest as text if models of other shapes have others; "" without any."""
    found = [limit for limit in limits if limit is not None]
    if not found:
        return ""
    least, largest = number(min(found)), number(max(found))
    return found[0] if least == largest else f"{least} to {largest}"


def _rank(property_name: str) -> tuple[float, int, str]:
    """Sort properties by their number, shorter names first: NC1, NC2, GNC2, NC3; names without a number come last."""
    found = re.search(r"\d+", property_name)
    return (float(found[0]) if found else math.inf, len(property_name), property_name)
