"""collapse metrics: list every measurement, its equation and its limits."""

from typing import TYPE_CHECKING

import click

from collapse.cli.formats import deliver, prints_a_table
from collapse.cli.terminal import installed

if TYPE_CHECKING:
    from collapse.measurement.table import Table
    from collapse.plugin.registry import Plugins


@click.command()
@click.argument("names", nargs=-1, metavar="[NAME]...")
@click.option(
    "--classes", type=click.IntRange(min=2), default=29_233, show_default=True, help="C, for limits that depend on it."
)
@click.option("--dim", type=click.IntRange(min=2), default=1024, show_default=True, help="d, likewise.")
@click.option(
    "--names", "parameters", is_flag=True, help="List what the parameters of a plugin's functions may ask for."
)
@prints_a_table
def command(
    names: tuple[str, ...], classes: int, dim: int, parameters: bool, format_: str | None, output: str | None
) -> None:
    """List what can be measured.

    NAME is a measurement or a prefix (gnc2); several may have commas. Limits and reachable values are those of
    C classes in d dimensions; the defaults are TinyStories' next tokens and the width of the paper's largest model.
    """
    from collapse.measurement.listing import metrics

    plugins = installed()
    deliver(format_, output, _parameters(plugins) if parameters else metrics(names, classes=classes, dim=dim))


def _parameters(plugins: "Plugins") -> "Table":
    """Return the names that parameters of functions may have, with what each gives."""
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
