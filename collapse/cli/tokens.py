"""collapse tokens: measure single tokens, and find those that are confused."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import click

from collapse.cli.formats import deliver, prints_a_table
from collapse.cli.terminal import installed
from collapse.errors import CollapseError, UsageError, first_line

if TYPE_CHECKING:
    from collapse.core.progress import Report
    from collapse.measurement.table import Table

_TOP = 20


@click.command()
@click.argument("store", metavar="STORE")
@click.option("--token", "texts", metavar="TEXT", multiple=True, help="A token's text, verbatim; may be repeated.")
@click.option("--ids", metavar="IDS", help="Token ids, with commas: 11,12.")
@click.option("--file", metavar="FILE", help="A file with the text of a token on each line, verbatim.")
@click.option("--top", type=click.IntRange(min=1), metavar="N", help=f"The N of largest --by.  [default: {_TOP}]")
@click.option("--least", type=click.IntRange(min=1), metavar="N", help="The N of smallest --by.")
@click.option("--by", metavar="NAME", help="count, or a measurement to rank by.  [default: nc1.cdnv]")
@click.option("--neighbours", type=click.IntRange(min=1), metavar="N", help="The nearest and most interfering classes.")
@click.option("--pairs", type=click.IntRange(min=1), metavar="N", help="The N most confusable pairs of all classes.")
@click.option("--frequency-matched", is_flag=True, help="Compare the tokens with classes of equal count.")
@click.option("--min-count", type=click.IntRange(min=1), default=1, show_default=True, help="Drop rarer classes.")
@click.option("--tokenizer", metavar="DIR_OR_ID", help="The tokenizer, or its GGUF file.  [default: the store's own]")
@prints_a_table
def command(store: str, format_: str | None, output: str | None, **options: Any) -> None:
    """Measure single tokens of a store.

    A row per token has its own share of NC1 to NC4.

    STORE is a folder, the digest or the model of a cached store, or user/name or user/name/folder on the Hub.
    The columns are those of the paper's Tables 4 and 5; CDNV and interference are means over all other classes. A text
    is taken verbatim: " Tim" is another token than "Tim", and both are shown.

    \b
    collapse tokens stores/a --top 10 --by nc1.cdnv
    collapse tokens stores/a --token " Tim" --token Anna
    collapse tokens stores/a --token " Tim" --neighbours 5
    collapse tokens stores/a --pairs 20
    collapse tokens stores/a --file names.txt --frequency-matched
    """
    from collapse.cli.progress_bar import progress

    installed()
    with progress() as report:
        table = _table(store, report, **options)
    deliver(format_, output, table)


def _table(
    store: str,
    report: "Report",
    *,
    texts: tuple[str, ...],
    ids: str | None,
    file: str | None,
    neighbours: int | None,
    pairs: int | None,
    frequency_matched: bool,
    **ranked: Any,
) -> "Table":
    """Make the table that the options ask for."""
    from collapse.vocabulary import confusable, matching, token_table

    how = {name: ranked.pop(name) for name in ("min_count", "tokenizer")}
    ranks = {name: value for name, value in ranked.items() if value is not None}
    named = _named(texts, ids, file)
    modes = {"--neighbours": neighbours, "--pairs": pairs, "--frequency-matched": frequency_matched}
    asked = [name for name, value in modes.items() if value]
    if len(asked) > 1:
        raise UsageError(f"{' and '.join(asked)} cannot be combined: give one of them")
    if pairs:
        _refuse("--pairs compares all classes", {**named, **ranks}, apart="by")
        return confusable.confusable_pairs(store, pairs, progress=report, **ranks, **how)
    if asked:
        _refuse(f"{asked[0]} needs named tokens", ranks)
        if not named:
            raise UsageError(f"{asked[0]} needs tokens: give them with --token, --ids or --file")
    if neighbours:
        return confusable.neighbours(store, most=neighbours, **named, **how)
    if frequency_matched:
        return matching.frequency_matched(store, progress=report, **named, **how)
    if not (named or "top" in ranks or "least" in ranks):
        ranks["top"] = _TOP
    return token_table.tokens(store, progress=report, **ranks, **named, **how)


def _refuse(why: str, given: Mapping[str, Any], apart: str = "") -> None:
    for name in given:
        if name != apart:
            raise UsageError(
                f"{why}: {'--token or --file' if name == 'tokens' else f'--{name}'} cannot be used with it"
            )


def _named(texts: tuple[str, ...], ids: str | None, file: str | None) -> dict[str, Any]:
    """Return the tokens that are named, as arguments of :func:`collapse.tokens`."""
    named: dict[str, Any] = {}
    if texts or file:
        named["tokens"] = [*texts, *(_read(file) if file else [])]
    if ids:
        try:
            named["ids"] = [int(each) for each in ids.split(",")]
        except ValueError as error:
            raise UsageError(
                f"--ids must be whole numbers separated by commas, such as 11,12, got {ids:.60}"
            ) from error
    return named


def _read(file: str) -> list[str]:
    """Return the lines of a file, verbatim but for their ends; empty ones name no token."""
    from collapse.core.reading import read_bytes

    try:
        lines = read_bytes(file).decode("utf-8-sig").split("\n")
    except (OSError, ValueError) as error:  # a UnicodeError is a ValueError
        raise CollapseError(f"{file} cannot be read as UTF-8 text: {first_line(error)}") from error
    texts = [line for line in (each.removesuffix("\r") for each in lines) if line]
    if not texts:
        raise UsageError(f"{file} is empty: it must have the text of a token on each line")
    return texts
