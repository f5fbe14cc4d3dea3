"""collapse tokens: measure single tokens, and find those that are confused."""

from typing import TYPE_CHECKING, Any

import click

from collapse.cli.formats import prints_a_table
from collapse.cli.terminal import say_aside, say_error
from collapse.errors import CollapseError, UsageError, first_line

if TYPE_CHECKING:
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
@prints_a_table()
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
    from collapse.cli.formats import check_suffix, deliver
    from collapse.plugin.plugin_manager import plugins

    check_suffix(output)
    for problem in plugins().problems:
        say_error(problem)
    table = _table(store, **options)
    if format_ == "csv":  # has no place for them
        for note in table.notes:
            say_aside(note)
    deliver(format_, output, table)


def _table(
    store: str,
    texts: tuple[str, ...],
    ids: str | None,
    file: str | None,
    top: int | None,
    least: int | None,
    by: str | None,
    neighbours: int | None,
    pairs: int | None,
    frequency_matched: bool,
    **how: Any,
) -> "Table":
    """Make the table that the options ask for."""
    from collapse.cli.progress_bar import progress
    from collapse.vocabulary import confusable, matching, token_table

    asked = {"--neighbours": neighbours, "--pairs": pairs, "--frequency-matched": frequency_matched}
    of_tokens = {"--token": texts, "--ids": ids, "--file": file}
    ranked = {"--top": top, "--least": least}
    _alone(asked)
    named: dict[str, Any] = {}
    if texts or file:
        named["tokens"] = [*texts, *(_read(file) if file else [])]
    if ids:
        named["ids"] = _ids(ids)
    with progress() as report:
        if pairs:
            _refuse("--pairs", {**of_tokens, **ranked}, "is over all classes")
            chosen: dict[str, Any] = {"by": by} if by else {}
            return confusable.confusable_pairs(store, pairs, progress=report, **chosen, **how)
        if neighbours or frequency_matched:
            mode = "--neighbours" if neighbours else "--frequency-matched"
            _refuse(mode, {**ranked, "--by": by}, "is of the tokens named")
            if not named:
                raise UsageError(f"{mode} needs tokens: give them with --token, --ids or --file")
            if neighbours:
                return confusable.neighbours(store, most=neighbours, **named, **how)
            return matching.frequency_matched(store, progress=report, **named, **how)
        if named:
            _refuse(
                next(name for name, value in of_tokens.items() if value), {**ranked, "--by": by}, "names the tokens"
            )
        elif not (top or least):
            top = _TOP
        return token_table.tokens(store, top=top, least=least, by=by, progress=report, **named, **how)


def _alone(asked: dict[str, Any]) -> None:
    given = [name for name, value in asked.items() if value]
    if len(given) > 1:
        raise UsageError(f"{' and '.join(given)} cannot be combined: give one of them")


def _refuse(option: str, others: dict[str, Any], why: str) -> None:
    given = [name for name, value in others.items() if value]
    if given:
        raise UsageError(f"{option} {why}: {given[0]} does not apply")


def _read(file: str) -> list[str]:
    """Return the lines of a file, verbatim but for their ends; empty ones name no token."""
    from collapse.core.reading import read_bytes

    try:
        lines = read_bytes(file).decode("utf-8-sig").split("\n")
    except UnicodeError as error:
        raise CollapseError(f"{file} is not UTF-8: {first_line(error)}") from error
    except (OSError, ValueError) as error:
        raise CollapseError(f"{file} cannot be read: {getattr(error, 'strerror', None) or error}") from error
    texts = [line for line in (each.removesuffix("\r") for each in lines) if line]
    if not texts:
        raise UsageError(f"{file} is empty: it must have the text of a token on each line")
    return texts


def _ids(text: str) -> list[int]:
    try:
        return [int(each) for each in text.split(",")]
    except ValueError as error:
        raise UsageError(
            f"--ids {text:.60} is not a list of token ids: give whole numbers separated by commas, such as 11,12"
        ) from error
