"""List the registered measurements, each with its equation, its value at full collapse and its reachable value."""

import logging
from collections.abc import Iterable

from collapse.measurement.results import Results
from collapse.measurement.table import Table
from collapse.plugin.metrics import limits_of
from collapse.plugin.plugin_manager import plugins

log = logging.getLogger("collapse")

_COLUMNS = ("name", "property", "equation", "at full collapse", "reachable", "plugin")


def metrics(names: str | Iterable[str] = (), *, classes: int = 29_233, dim: int = 1024) -> Table:
    """List the measurements, a row for each, with its equation, its value at full collapse and its reachable value.

    Args:
        names: Measurements or prefixes, as a list or as one text with commas. An empty list or text means all.
        classes, dim: C and d, for values at full collapse and reachable values that depend on them. The defaults are
            the number of classes (next tokens) of TinyStories, and the width of the paper's largest model.

    Raises:
        UsageError: A name is unknown.

    >>> metrics("nc4.agreement").frame()[["name", "at full collapse"]].to_dict("records")
    [{'name': 'nc4.agreement', 'at full collapse': 1.0}]
    """
    known, records = plugins(), list[dict[str, object]]()
    wanted = ",".join([names] if isinstance(names, str) else names)
    for name, (metric, measure) in known.chosen(wanted or known.measurements()).items():
        limits, problem = limits_of(metric, measure, classes, dim)
        if problem:
            log.warning("%s", problem)
        records.append(
            {
                "name": name,
                "property": metric.property_of(name),
                "of": metric.summary,
                "equation": metric.equation_of(measure),
                "at full collapse": limits["towards"],
                "reachable": limits["reachable"],
                "source": metric.source,
                "version": metric.version,
                "plugin": known.owner(metric.module).name,
            }
        )
    rows = [[record[column] for column in _COLUMNS] for record in records]
    title = f"with C = {classes:,} classes in d = {dim:,} dimensions"
    infinite = (float("inf"), float("-inf"))  # JSON has no infinity
    data = [{key: str(value) if value in infinite else value for key, value in record.items()} for record in records]
    return Table(title, _COLUMNS, rows, source=Results.from_records(data))
