"""collapse metrics: list every measurement, its equation and its limits."""

import click

from collapse.cli.terminal import say_error, say_json


@click.command()
@click.argument("names", nargs=-1, metavar="[NAME]...")
@click.option(
    "--classes", type=click.IntRange(min=2), default=29_233, show_default=True, help="C, for limits that depend on it."
)
@click.option("--dim", type=click.IntRange(min=2), default=1024, show_default=True, help="d, likewise.")
@click.option("--json", "as_json", is_flag=True, help="Print as JSON.")
def command(names: tuple[str, ...], classes: int, dim: int, as_json: bool) -> None:
    """List what can be measured.

    NAME is a measurement or a prefix (gnc2). Limits and reachable values are those of C classes in d dimensions;
    the defaults are TinyStories' next tokens and the width of the paper's largest model.
    """
    from collapse.cli.rendering import print_records
    from collapse.plugin.metrics import limits_of
    from collapse.plugin.plugin_manager import plugins

    installed = plugins()
    for problem in installed.problems:
        say_error(problem)
    known = installed.measurements()
    records = []
    for name in installed.select(names or None):
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
                "plugin": installed.origins["collapse_metrics", name],
            }
        )
    if as_json:
        for record in records:
            for key in ("at full collapse", "reachable"):
                if record[key] in (float("inf"), float("-inf")):  # JSON has no infinity
                    record[key] = str(record[key])
        say_json(records)
        return
    columns = ["name", "property", "equation", "at full collapse", "reachable", "plugin"]
    rows = [[record[column] for column in columns] for record in records]
    print_records(columns, rows, title=f"with C = {classes:,} classes in d = {dim:,} dimensions")
