"""collapse pack: tokenize and pack texts once, for many collections."""

from dataclasses import fields
from typing import Any

import click

from collapse.cli.options import given_options, option_of, with_options
from collapse.cli.terminal import say
from collapse.inputs.collection_spec import OF_PACKING, CollectionSpec

_OPTIONS = (option_of(each) for each in fields(CollectionSpec) if each.name in OF_PACKING and each.name != "tokenizer")


@click.command()
@click.argument("text", nargs=-1, required=True, metavar="TEXT...")
@click.option("--tokenizer", required=True, metavar="MODEL", help="The tokenizer: the folder or Hub id of a model.")
@click.option("--out", required=True, metavar="DIR", help="Folder for the chunks.")
@with_options(*_OPTIONS)
def command(text: tuple[str, ...], out: str, **options: Any) -> None:
    """Tokenize and pack texts once, for many collections.

    TEXT is a Hub data set, or files, folders or globs. Afterwards, give other commands --text DIR in place of TEXT and
    its validation text. Results are the same, and nothing is tokenized again. The chunk length and the number of chunks
    come from DIR; --max-chunks may be smaller. Give the other commands the same --shards, --eos-between and
    --no-special-tokens. DIR can be uploaded to the Hub as a data set, and used as --text owner/name.

    \b
    collapse pack train.jsonl --validation-text validation.jsonl \\
        --tokenizer runs/a --out packed
    collapse collect runs/a --text packed --store stores/a
    hf upload owner/name packed --repo-type dataset
    """
    from collapse.cli.progress_bar import progress
    from collapse.inputs.packing_once import described, pack

    with progress() as report:
        found = pack(text, out=out, progress=report, **given_options(options))
    say(f"{out} holds {described(found)}\nuse it with: --text {out}")
