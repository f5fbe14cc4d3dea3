"""collapse figures: draw figures of results and stores into a folder, for a paper."""

from typing import Any

import click

from collapse.cli.terminal import plugins_reporting_problems
from collapse.errors import CollapseError, UsageError


@click.command()
@click.argument("sources", nargs=-1, metavar="[RESULTS]...")
@click.option("--out", metavar="DIR", help="Folder for the figures.  [required, except with --list]")
@click.option(
    "--format", "formats", default="pdf", show_default=True, metavar="LIST", help="pdf, svg, png, csv, or several."
)
@click.option("--figure", "names", multiple=True, metavar="NAME", help="Draw only this figure; may be repeated.")
@click.option(
    "--width", default="column", show_default=True, help="column (3.25 inches), page (6.75), or a number of inches."
)
@click.option("--where", multiple=True, metavar="COLUMN=GLOB", help="Use only these rows; may be repeated.")
@click.option("--list", "listing", is_flag=True, help="List the figures, and what they need.")
def command(sources: tuple[str, ...], out: str | None, listing: bool, **options: Any) -> None:
    """Draw figures of results and stores.

    RESULTS are results files and stores; parts of a collection give a curve of convergence. Every figure that can be
    drawn from RESULTS is written to the folder of --out, one file per format. The file figures.json has the captions.
    This command needs the extra `report` (pip install 'linguistic-collapse[report]').

    \b
    collapse figures results.csv stores/a --out figures
    collapse figures results.csv --out figures --format pdf,csv --figure loss
    collapse figures results.csv --out figures --where 'model=*_10L@9'
    """
    from collapse.cli.progress_bar import progress
    from collapse.cli.rendering import console, print_line, print_table
    from collapse.measurement.table import Table
    from collapse.showing.saving import save_figures

    found = plugins_reporting_problems().figures
    if listing:
        rows = [[name, each.of, ", ".join(each.needs) or "–", each.title] for name, each in sorted(found.items())]
        print_table(Table("", ["figure", "of", "needs", "title"], rows))
        return
    if not sources:
        raise UsageError("there are no results to draw: give results files or stores")
    if out is None:
        raise UsageError("no folder for the figures is given: add --out DIR")
    given = {name: value for name, value in options.items() if value}
    with progress() as report:
        saved = save_figures(sources, out, progress=report, **given)
    for each in saved:
        said = ", ".join(map(str, each.files)) or f"not drawn: {each.problem}"
        for line in (f"figure {each.name}: {said}", *(f"  {note}" for note in each.notes if each.files)):
            print_line(console(), line)
    if not any(each.files for each in saved):
        raise CollapseError("no figure was drawn, for the reasons above")
