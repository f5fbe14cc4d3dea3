"""collapse metrics: list every measurement, its equation and its limits."""

from typing import TYPE_CHECKING

import click

from collapse.cli.formats import deliver, prints_a_table
from collapse.cli.terminal import plugins_reporting_problems

if TYPE_CHECKING:
    from collapse.measurement.table import Table
    from collapse.plugin.registry import Plugins


@click.command()
@click.argument("measurements", nargs=-1, metavar="[NAME]...")
@click.option(
    "--classes", type=click.IntRange(min=2), default=29_233, show_default=True, help="Number of classes C, for limits."
)
@click.option("--dim", type=click.IntRange(min=2), default=1024, show_default=True, help="Dimension d, for limits.")
@click.option("--names", "parameters", is_flag=True, help="List the parameter names that a plugin's functions may use.")
@prints_a_table
def command(
    measurements: tuple[str, ...], classes: int, dim: int, parameters: bool, format_: str | None, output: str | None
) -> None:
    """List all measurements.

    NAME is a measurement or a prefix (gnc2), or several separated by commas. Limits and reachable values are for C
    classes in d dimensions. By default, C is the number of distinct next tokens of TinyStories, and d is the largest
    width of the paper's models.
    """
    from collapse.measurement.listing import metrics

    plugins = plugins_reporting_problems()
    deliver(format_, output, _parameters(plugins) if parameters else metrics(measurements, classes=classes, dim=dim))


def _parameters(plugins: "Plugins") -> "Table":
    """Return a table of the parameter names that a plugin's functions may use, and of what each parameter receives."""
    from collapse.measurement.table import Table
    from collapse.plugin.parameter_names import HELD, OF_CLASSES, OF_LIMITS, OF_PAIRS

    groups = {
        "from the store or the measurement options": HELD,
        "statistics": {name: (kind.__doc__ or "").split("\n")[0] for name, kind in plugins.statistics.items()},
        "of classes": OF_CLASSES,
        "of pairs": OF_PAIRS,
        "in limits": OF_LIMITS,
    }
    rows = [[name, kind, said] for kind, of in groups.items() for name, said in of.items()]
    return Table("", ["name", "kind", "gives"], rows)
