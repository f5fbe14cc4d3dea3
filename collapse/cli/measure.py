"""collapse measure: a store if there is one, else collect; then measure; a table."""

import logging
import os
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import click

from collapse.cli._options import collecting_options, given_options
from collapse.cli._terminal import complain, say_json, tell
from collapse.errors import CollapseError, StoreError, UsageError

if TYPE_CHECKING:
    from collapse.rows import Row


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
@collecting_options(besides=("part",))
def command(
    models: tuple[str, ...],
    store: str | None,
    metrics: str | None,
    min_count: int,
    as_json: bool,
    output: str | None,
    no_download: bool,
    **options: Any,
) -> int:
    """Measure models, stores or features files.

    MODEL is a local folder or Hub id of a causal language model, a store here or on the Hub, or a features file
    (.safetensors). A model is collected first, unless the same collection is in the cache or published in the model's
    own repository; --store user/repo names another repository of stores. Options of the collection that a store does
    not follow are refused. Where one of several MODELs fails, the others are measured, the exit status is 1, and a
    table that is already in --output stays as it was.

    \b
    collapse measure runs/a --text train.jsonl --validation-text validation.jsonl
    collapse measure roneneldan/TinyStories-33M --max-chunks 200
    collapse measure stores/a stores/b --metrics nc1,gnc2 --output results.csv
    """
    if no_download:
        os.environ["HF_HUB_OFFLINE"] = "1"  # read when the client is first imported, which is below
    from collapse.cli._render import print_table, progress
    from collapse.comparing import mixed
    from collapse.measuring import measure
    from collapse.models import pick_device
    from collapse.plugin_manager import plugins
    from collapse.results import Results, check_output, holds_rows

    if output:
        check_output(output)
    for problem in plugins().problems:
        complain(problem)
    names = [each.strip() for each in metrics.split(",") if each.strip()] if metrics else None
    plugins().select(names)  # an unknown name is told before hours of collecting
    given = given_options(options)
    device = given.get("device", "auto")
    pick_device(device)
    how: dict[str, Any] = {"metrics": names, "min_count": min_count, "device": None if device == "auto" else device}
    _check_options(models, given, store)
    rows: list[Row] = []
    failed: list[Exception] = []
    with progress() as report:
        for model in models:
            try:
                opened = _open(model, store, len(models), given, report)
                rows.append(measure(opened, progress=report, **how))
            except Exception as error:  # a model must not cost the others, whatever is wrong with it
                if len(models) == 1:
                    raise
                _complain_of(model, error)
                failed.append(error)
                continue
            opened.keep_results(rows[-1])
    if as_json:
        say_json([row.to_dict() for row in rows])
        for remark in mixed(rows):
            tell(remark)
    elif rows:
        print_table(rows)
    for row in rows:
        for note in row.notes:
            if note.kind == "error":
                complain(f"{note.measurement}: {note.text}")
    if output and failed and rows and holds_rows(output):  # they may be of the models that are not measured now
        complain(f"{output} is left as it was, without the rows above: name another --output, or leave out what fails")
    elif output and rows:  # last: where it cannot be written, the numbers have been told
        Results(rows).write(output)
    if not failed:
        return 0
    complain(f"{len(failed)} of {len(models)} models are not measured, for the reasons above")
    return 2 if not rows and all(isinstance(error, UsageError) for error in failed) else 1


def _complain_of(model: str, error: Exception) -> None:
    """Tell why one of several models is not measured; with -v where an error that nobody foresaw was raised."""
    from collapse.guarding import described

    if isinstance(error, CollapseError | OSError):
        complain(f"{model} is not measured: {error}")
    elif click.get_current_context().find_root().params.get("verbose"):
        logging.getLogger("collapse").error("%s is not measured:", model, exc_info=error)
    else:
        complain(f"{model} is not measured, for an unforeseen error: {described(error)} (-v shows where)")


def _check_options(models: tuple[str, ...], given: dict[str, Any], store: str | None) -> None:
    """Refuse options that a store or features file named here does not follow, before any work is done."""
    from collapse.features import is_features_file
    from collapse.held import check_features_options, check_store_options
    from collapse.manifest import is_store
    from collapse.store import Store

    finished = [model for model in models if is_store(model)]
    features = [model for model in models if is_features_file(model)]
    alone = len(finished) + len(features) == len(models)
    if store is not None and len(finished) == len(models):
        raise UsageError(f"{models[0]} is a store: --store {store} does not apply")
    if store is not None and len(models) > 1 and is_store(store):
        raise UsageError(f"{store} is a store: for several models give --store a folder of stores")
    if store is not None and len(models) > 1 and _is_local(store):
        _check_folders([model for model in models if model not in finished], store)
    for model in features:
        check_features_options(model, given, alone=alone)
    for model in finished:
        with suppress(StoreError):  # told when it is measured, and the others are measured all the same
            check_store_options(Store.load(model), given, alone=alone)


def _check_folders(models: list[str], store: str) -> None:
    """Refuse models whose stores would lie in one folder."""
    from collapse.files import expanded

    named: dict[str, str] = {}
    for model in models:
        folder = _folder_in(store, model)
        other = named.setdefault(folder, model)
        if os.path.abspath(expanded(other)) != os.path.abspath(expanded(model)):
            raise UsageError(
                f"the stores of {other} and {model} would both be {folder}: leave out --store, or measure them in two "
                "commands with two --store"
            )


def _folder_in(store: str, model: str) -> str:
    """The folder of a model's store among those of several models: named after the last part of the model's name."""
    from pathlib import Path

    from collapse.features import is_features_file
    from collapse.files import expanded

    path = Path(os.path.abspath(expanded(model)))  # "." and ".." are no names
    return str(Path(store) / (path.stem if is_features_file(model) else path.name))


def _open(model: str, store: str | None, models: int, given: dict[str, Any], report: Any) -> Any:
    """The store behind a name: itself, published, or collected from the model."""
    from pathlib import Path

    from collapse.files import expanded
    from collapse.manifest import is_store
    from collapse.store import Store

    if is_store(model) or (Path(model) / "partial" / "state.json").is_file():  # the latter is refused, with what to do
        return Store.load(model)
    if not (expanded(model).exists() or given.get("recollect")):
        published = _published(model, store, given)
        if published is not None:
            return published
    from collapse.collecting import collect

    folder = _folder_in(store, model) if store and models > 1 else store
    return collect(model, store=folder, progress=report, **given)


def _published(model: str, store: str | None, given: dict[str, Any]) -> Any:
    """The store on the Hub that the model's name or --store refers to; a model's own is found where it is collected."""
    from collapse.finding import find_store_at, open_named
    from collapse.held import check_store_options
    from collapse.hub import at_revision
    from collapse.spec import CollectionSpec

    named = open_named(at_revision(model, given.get("revision")))
    if named is not None:
        # a revision is that of the repository here, and has been followed
        check_store_options(named, {name: value for name, value in given.items() if name != "revision"})
        return named
    if store is None or _is_local(store):
        return None
    return find_store_at(store, model, CollectionSpec(**given))


def _is_local(store: str) -> bool:
    """Whether --store is a folder here, or will be; ``user/repo`` beside no folder ``user`` may be on the Hub."""
    from pathlib import Path

    from collapse.hub import is_repo_id
    from collapse.remote import split_name

    return "/" not in store or not is_repo_id(split_name(store)[0].partition("@")[0]) or Path(store).parent.exists()
