"""collapse compare: two stores of one text side by side, with standard errors."""

from typing import Any

import click

from collapse.cli.formats import deliver, prints_a_table
from collapse.cli.terminal import plugins_reporting_problems


@click.command()
@click.argument("a", metavar="A")
@click.argument("b", metavar="B")
@click.option(
    "--metrics", metavar="NAMES", help="Measurements or prefixes, such as gnc2,nc1.cdnv.  [default: the headlines]"
)
@click.option("--all", "all_", is_flag=True, help="Compare every measurement, not only the headlines.")
@click.option(
    "--min-count", type=click.IntRange(min=1), default=1, show_default=True, help="Skip classes with fewer samples."
)
@click.option("--classes-of", metavar="STORE", help="Keep only classes that STORE, A and B all have.")
@click.option(
    "--parts",
    nargs=2,
    metavar="A_PARTS B_PARTS",
    help="Folder with all parts of A, and folder with all parts of B; or the names of the parts, separated by commas.",
)
@click.option(
    "--seeds",
    metavar="RESULTS",
    help="Add the standard deviation over models in RESULTS that differ from A and B only in their seed; "
    "paper means the 21 published models of 2x768.",
)
@click.option("--anyway", is_flag=True, help="Compare stores of different texts too.")
@click.option("--device", metavar="NAME", help="Where to compute: cpu, cuda, ….  [default: cpu]")
@prints_a_table
def command(
    a: str,
    b: str,
    metrics: str | None,
    all_: bool,
    classes_of: str | None,
    parts: tuple[str, str] | None,
    format_: str | None,
    output: str | None,
    **options: Any,
) -> None:
    """Compare two stores of one text.

    For each measurement, the table has A, B, the difference B − A, the standard error of the difference, and its
    meaning (such as better or worse, if B − A is larger than the noise). Give A and B as the folder of a store, the
    name of a store on the Hub, or the digest or the model of a cached store.
    Measurements of the validation text have a standard error over its texts. Measurements of the training text have a
    standard error only if both stores were also collected in parts (--part 1/8 to 8/8) and --parts gives the parts.

    \b
    collapse compare stores/a stores/b
    collapse compare stores/a stores/b --parts parts/a parts/b --all
    """
    from collapse.cli.progress_bar import progress
    from collapse.hub.opening import load
    from collapse.measurement.comparing import compare

    headlines = plugins_reporting_problems().headlines()
    with progress() as report:
        table = compare(
            load(a),
            load(b),
            metrics=metrics or (None if all_ else headlines),
            classes_of=None if classes_of is None else load(classes_of),
            parts=parts,
            progress=report,
            **options,
        )
    deliver(format_, output, table)
