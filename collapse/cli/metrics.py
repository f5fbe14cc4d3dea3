"""collapse metrics: list every measurement, its equation and its limits."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from collapse.cli.formats import deliver, prints_a_table
from collapse.cli.terminal import installed, say_error

if TYPE_CHECKING:
    from collapse.measurement.table import Table
    from collapse.plugin.registry import Plugins


@click.command()
@click.argument("names", nargs=-1, metavar="[NAME]...")
@click.option(
    "--classes", type=click.IntRange(min=2), default=29_233, show_default=True, help="Number of classes C, for limits."
)
@click.option("--dim", type=click.IntRange(min=2), default=1024, show_default=True, help="Dimension d, for limits.")
@click.option("--names", "parameters", is_flag=True, help="List the parameter names that a plugin's functions may use.")
@prints_a_table
def command(
    names: tuple[str, ...], classes: int, dim: int, parameters: bool, format_: str | None, output: str | None
) -> None:
    """List all measurements.

    NAME is a measurement or a prefix (gnc2), or several separated by commas. Limits and reachable values are for C
    classes in d dimensions; the defaults are TinyStories' next tokens and the width of the paper's largest model.
    """
    plugins = installed()
    deliver(format_, output, _parameters(plugins) if parameters else _measurements(plugins, names, classes, dim))


def _measurements(plugins: "Plugins", names: Sequence[str], classes: int, dim: int) -> "Table":
    """Return the table of some measurements, with their limits at C classes in d dimensions."""
    from collapse.measurement.results import Results
    from collapse.measurement.table import Table
    from collapse.plugin.metrics import limits_of

    known = plugins.measurements()
    records = []
    for name in plugins.select(",".join(names) or None):
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
                "plugin": plugins.owner(metric.module).name,
            }
        )
    columns = ["name", "property", "equation", "at full collapse", "reachable", "plugin"]
    rows = [[record[column] for column in columns] for record in records]
    title = f"with C = {classes:,} classes in d = {dim:,} dimensions"
    infinite = (float("inf"), float("-inf"))  # JSON has no infinite numbers
    data = [{key: str(value) if value in infinite else value for key, value in record.items()} for record in records]
    return Table(title, columns, rows, source=Results.from_records(data))


def _parameters(plugins: "Plugins") -> "Table":
    """Return a table of the names that parameters of functions may have, and the value of each."""
    from collapse.measurement.table import Table
    from collapse.plugin.names import HELD, OF_CLASSES, OF_LIMITS, OF_PAIRS

    groups = {
        "from the store or the measurement options": HELD,
        "statistics": {name: (kind.__doc__ or "").split("\n")[0] for name, kind in plugins.statistics.items()},
        "of classes": OF_CLASSES,
        "of pairs": OF_PAIRS,
        "in limits": OF_LIMITS,
    }
    rows = [[name, kind, said] for kind, of in groups.items() for name, said in of.items()]
    return Table("", ["name", "kind", "gives"], rows)
