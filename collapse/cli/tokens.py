"""collapse tokens: measure single tokens, and find confusable pairs of tokens."""

from pathlib import Path
from typing import Any

import click

from collapse.cli.formats import deliver, prints_a_table
from collapse.cli.terminal import plugins_reporting_problems
from collapse.errors import UsageError

_TOP = 20
_NAMING = ("token", "ids", "file")
_TAKES = {"pairs": ("by",), "neighbours": _NAMING, "frequency_matched": _NAMING}
"""For each option that selects a table: the other options that may be given with it."""


@click.command()
@click.argument("store", metavar="STORE")
@click.option("--token", metavar="TEXT", multiple=True, help="A token's text, verbatim; may be repeated.")
@click.option("--ids", metavar="IDS", help="Token ids, such as 11,12.")
@click.option("--file", metavar="FILE", help="A file with the text of a token on each line, verbatim.")
@click.option(
    "--top",
    type=click.IntRange(min=1),
    metavar="N",
    help=f"N tokens with the largest values of --by.  [default: {_TOP}]",
)
@click.option("--least", type=click.IntRange(min=1), metavar="N", help="N tokens with the smallest values of --by.")
@click.option("--by", metavar="NAME", help="count, or a measurement to rank by.  [default: nc1.cdnv]")
@click.option(
    "--neighbours", type=click.IntRange(min=1), metavar="N", help="N nearest and N most interfering classes per token."
)
@click.option("--pairs", type=click.IntRange(min=1), metavar="N", help="The N most confusable pairs of classes.")
@click.option("--frequency-matched", is_flag=True, help="Compare the tokens with classes of similar count.")
@click.option(
    "--min-count", type=click.IntRange(min=1), default=1, show_default=True, help="Skip classes with fewer samples."
)
@click.option("--tokenizer", metavar="DIR_OR_ID", help="A folder, Hub id or GGUF file.  [default: the store's own]")
@prints_a_table
def command(
    store: str, min_count: int, tokenizer: str | None, format_: str | None, output: str | None, **options: Any
) -> None:
    """Measure single tokens of a store.

    The table has a row per token, with its values of NC1 to NC4.

    STORE is a folder, the digest or the model of a cached store, or user/name or user/name/folder on the Hub.
    The columns are those of the paper's Tables 4 and 5; CDNV and interference are means over all other classes. Texts
    are verbatim: " Tim" and "Tim" are different tokens. If you give one of the two, the table has both.

    \b
    collapse tokens stores/a --top 10 --by nc1.cdnv
    collapse tokens stores/a --token " Tim" --token Anna
    collapse tokens stores/a --token " Tim" --neighbours 5
    collapse tokens stores/a --pairs 20
    collapse tokens stores/a --file names.txt --frequency-matched
    """
    from collapse.cli.progress_bar import progress
    from collapse.vocabulary import confusable, matching, token_table

    given = {name: value for name, value in options.items() if value}
    mode = next((name for name in _TAKES if name in given), None)
    for name in given:
        if mode and name != mode and name not in _TAKES[mode]:
            flags = [f"--{each.replace('_', '-')}" for each in (mode, name)]
            raise UsageError(f"{' and '.join(flags)} cannot be combined: give one of them")
    named = _named(**{name: given.pop(name, None) for name in _NAMING})
    how: dict[str, Any] = {"min_count": min_count, "tokenizer": tokenizer}
    plugins_reporting_problems()
    with progress() as report:
        if mode == "pairs":
            table = confusable.confusable_pairs(store, given.pop("pairs"), progress=report, **given, **how)
        elif mode == "neighbours":
            table = confusable.neighbours(store, most=given["neighbours"], **named, **how)
        elif mode == "frequency_matched":
            table = matching.frequency_matched(store, progress=report, **named, **how)
        else:
            ranks = given if named or {"top", "least"} & given.keys() else {"top": _TOP, **given}
            table = token_table.tokens(store, progress=report, **ranks, **named, **how)
    deliver(format_, output, table)


def _named(token: tuple[str, ...] | None, ids: str | None, file: str | None) -> dict[str, Any]:
    """Return the given tokens as keyword arguments of :func:`collapse.tokens`."""
    named: dict[str, Any] = {}
    if token or file:
        # lines are verbatim without their line breaks; empty lines are skipped
        lines = Path(file).read_text("utf-8-sig", errors="replace").split("\n") if file else []
        named["tokens"] = [*(token or ()), *filter(None, lines)]
    if ids:
        try:
            named["ids"] = [int(each) for each in ids.split(",")]
        except ValueError as error:
            raise UsageError(
                f"--ids must be whole numbers separated by commas, such as 11,12, got {ids:.60}"
            ) from error
    return named
