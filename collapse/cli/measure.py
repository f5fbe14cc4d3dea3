"""collapse measure: a store if there is one, else collect; then measure; a table."""

import os
from typing import Any

import click

from collapse.cli._options import collect_arguments, collecting_options
from collapse.cli._terminal import complain, say_json, tell


@click.command()
@click.argument("models", nargs=-1, required=True, metavar="MODEL...")
@click.option(
    "--store",
    metavar="DIR",
    help="Store of the model; of several models, the folder of their stores; or a repository of stores.",
)
@click.option(
    "--metrics", metavar="NAMES", help="Measurements or prefixes, with commas: gnc2,nc1.cdnv.  [default: all]"
)
@click.option("--min-count", type=click.IntRange(min=1), default=1, show_default=True, help="Drop rarer classes.")
@click.option("--json", "as_json", is_flag=True, help="Print rows as JSON.")
@click.option("--output", metavar="FILE", help="Write rows to a .csv, .json or .parquet file too.")
@click.option("--no-download", is_flag=True, help="Use only what is on this machine.")
@collecting_options
def command(
    models: tuple[str, ...],
    store: str | None,
    metrics: str | None,
    min_count: int,
    as_json: bool,
    output: str | None,
    no_download: bool,
    **options: Any,
) -> None:
    """Measure models, stores or features files.

    MODEL is a local folder or Hub id of a causal language model, a store here or on the Hub, or a features file
    (.safetensors). A model is collected first, unless a store of its weights is published (in its own repository, or
    in one whose card names it; --store user/repo points at one), or one is in the cache.

    \b
    collapse measure runs/a --text train.jsonl --validation-text validation.jsonl
    collapse measure roneneldan/TinyStories-33M --max-chunks 200
    collapse measure stores/a stores/b --metrics nc1,gnc2 --output results.csv
    """
    if no_download:
        os.environ["HF_HUB_OFFLINE"] = "1"  # read when the client is first imported, which is below
    from collapse.cli._render import print_table, progress
    from collapse.measuring import measure
    from collapse.plugin_manager import plugins
    from collapse.results import Results, check_output

    if output:
        check_output(output)
    for problem in plugins().problems:
        complain(problem)
    names = [each.strip() for each in metrics.split(",") if each.strip()] if metrics else None
    plugins().select(names)  # an unknown name is told before hours of collecting
    rows = []
    with progress() as report:
        for model in models:
            opened = _open(model, store, len(models), options, report)
            device = options["device"] if options["device"] != "auto" else None
            rows.append(measure(opened, metrics=names, min_count=min_count, device=device, progress=report))
            opened.keep_results(rows[-1])
    if as_json:
        say_json([row.to_dict() for row in rows])
    else:
        print_table(rows)
    for row in rows:
        for note in row.notes:
            if note.kind == "error":
                complain(f"{note.measurement}: {note.text}")
    if output:  # last: where it cannot be written, the numbers have been told
        Results(rows).write(output)


def _open(model: str, store: str | None, models: int, options: dict[str, Any], report: Any) -> Any:
    """The store behind a name: itself, published, or collected from the model."""
    from pathlib import Path

    from collapse.manifest import is_store
    from collapse.store import Store

    if is_store(model):
        return Store.load(model)
    if not (Path(model).expanduser().exists() or options["recollect"] or _is_local(store)):
        published = _published(model, store, options)
        if published is not None:
            tell(f"{model}: measuring the published store {published}")
            return published
    from collapse.collecting import collect

    folder = Path(store) / Path(model).stem if store and models > 1 else store
    return collect(model, store=folder, progress=report, **collect_arguments(options))


def _is_local(store: str | None) -> bool:
    """Whether --store is a folder here, or will be; ``user/repo`` beside no folder ``user`` may be on the Hub."""
    from pathlib import Path

    from collapse.hub import is_repo_id
    from collapse.remote import split_name

    if store is None:
        return False
    return "/" not in store or not is_repo_id(split_name(store)[0].partition("@")[0]) or Path(store).parent.exists()


def _published(model: str, store: str | None, options: dict[str, Any]) -> Any:
    from collapse.finding import find_store
    from collapse.text import find_corpus

    column, texts = options["text_column"], {}
    for name, text, split in (("corpus", "text", "split"), ("validation", "validation_text", "validation_split")):
        if options[text]:
            found = find_corpus(list(options[text]), split=options[split], text_column=column)
            texts[name] = found.identity()
    name = f"{model}@{options['revision']}" if options["revision"] else model
    return find_store(name, **texts, chunk_length=options["chunk_length"], max_chunks=options["max_chunks"], at=store)
