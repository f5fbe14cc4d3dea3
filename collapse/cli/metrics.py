"""collapse metrics: list every measurement, its equation and its limits."""

from typing import Any

import click

from collapse.cli.formats import prints_a_table
from collapse.cli.terminal import say_error


@click.command()
@click.argument("names", nargs=-1, metavar="[NAME]...")
@click.option(
    "--classes", type=click.IntRange(min=2), default=29_233, show_default=True, help="C, for limits that depend on it."
)
@click.option("--dim", type=click.IntRange(min=2), default=1024, show_default=True, help="d, likewise.")
@click.option(
    "--names", "parameters", is_flag=True, help="List what the parameters of a plugin's functions may ask for."
)
@prints_a_table()
def command(
    names: tuple[str, ...], classes: int, dim: int, parameters: bool, format_: str | None, output: str | None
) -> None:
    """List what can be measured.

    NAME is a measurement or a prefix (gnc2); several may have commas. Limits and reachable values are those of
    C classes in d dimensions; the defaults are TinyStories' next tokens and the width of the paper's largest model.
    """
    from collapse.cli.formats import check_suffix, deliver
    from collapse.measurement.table import Table
    from collapse.plugin.metrics import limits_of
    from collapse.plugin.plugin_manager import plugins

    check_suffix(output, first="name")
    installed = plugins()
    for problem in installed.problems:
        say_error(problem)
    if parameters:
        lines = _parameters()
        deliver(format_, output, Table("", list(lines[0]), [list(each.values()) for each in lines]))
        return
    known = installed.measurements()
    records = []
    for name in installed.select(",".join(names) or None):
        metric, measure = known[name]
        limits, wrong = limits_of(metric, measure, classes, dim)
        if wrong:
            say_error(wrong)
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
                "plugin": getattr(installed.owner(metric.module), "name", ""),
            }
        )
    columns = ["name", "property", "equation", "at full collapse", "reachable", "plugin"]
    rows = [[record[column] for column in columns] for record in records]
    table = Table(f"with C = {classes:,} classes in d = {dim:,} dimensions", columns, rows)
    for record in records:
        for key in ("at full collapse", "reachable"):
            if record[key] in (float("inf"), float("-inf")):  # JSON has no infinity
                record[key] = str(record[key])
    deliver(format_, output, table, data=records, frame=lambda: _frame(records))


def _parameters() -> list[dict[str, str]]:
    """Return the names that parameters of functions may have, with what each gives."""
    from collapse.plugin.names import HELD, OF_CLASSES, OF_LIMITS, OF_PAIRS
    from collapse.plugin.plugin_manager import plugins

    statistics = {name: (kind.__doc__ or "").split("\n")[0] for name, kind in plugins().statistics.items()}
    groups = {
        "held by a store": HELD,
        "statistics": statistics,
        "of classes": OF_CLASSES,
        "of pairs": OF_PAIRS,
        "in limits": OF_LIMITS,
    }
    return [{"name": name, "kind": kind, "gives": said} for kind, of in groups.items() for name, said in of.items()]


def _frame(records: list[dict[str, Any]]) -> Any:
    import pandas as pd

    limits = {"at full collapse": float, "reachable": float}  # infinite ones are texts in JSON
    return pd.DataFrame(records).astype(limits) if records else pd.DataFrame()
