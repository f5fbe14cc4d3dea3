"""collapse report: one HTML file of results and stores."""

from functools import partial

import click

from collapse.cli.terminal import plugins_reporting_problems, say_aside


@click.command()
@click.argument("sources", nargs=-1, required=True, metavar="RESULTS_OR_STORE...")
@click.option("-o", "--output", default="report.html", show_default=True, metavar="FILE", help="The .html file.")
@click.option("--title", metavar="TEXT", help="Title of the report.  [default: the names of the sources]")
@click.option("--tokenizer", metavar="DIR_OR_ID", help="Tokenizer of the stores.  [default: each store's own]")
def command(sources: tuple[str, ...], output: str, title: str | None, tokenizer: str | None) -> None:
    """Write a report on results and stores.

    The report is one HTML file with findings in words, interactive figures, tables and methods.

    RESULTS_OR_STORE is a results file (.csv, .json, .parquet), the folder of a store, the digest or the model of a
    cached store, or a store on the Hub. Several are joined to one table. The report needs no network and no other file.
    This command needs the extra `report` (pip install 'linguistic-collapse[report]').

    \b
    collapse report results.csv
    collapse report results.csv stores/a --output paper.html --title "Our models"
    collapse report stores/a --tokenizer models/a
    """
    from collapse.cli.progress_bar import progress
    from collapse.showing.report import report
    from collapse.vocabulary.token_table import tokens

    plugins_reporting_problems()
    with progress() as shown:
        of_store = partial(tokens, tokenizer=tokenizer, progress=shown)
        written = report(sources, output, title=title, tokens=of_store, progress=shown)
    say_aside(f"written to {written} ({written.stat().st_size / 1e6:,.1f} MB): open it in a browser")
