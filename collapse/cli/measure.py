"""collapse measure: find or collect a store, measure it, print a table."""

import logging
import os
from typing import TYPE_CHECKING, Any

import click

from collapse.cli.formats import prints_a_table
from collapse.cli.options import Counts, collecting_options, given_options
from collapse.cli.store_folders import check_folders, folder_in
from collapse.cli.terminal import say_aside, say_error
from collapse.errors import CollapseError, UsageError

if TYPE_CHECKING:
    from collapse.measurement.rows import Row


_FOR_PEOPLE = (".md", ".tex")


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
@click.option(
    "--min-count",
    "min_counts",
    type=Counts(),
    default="1",
    show_default=True,
    help="Drop rarer classes; several with commas give a column each: 1,10,100.",
)
@click.option(
    "--classes-of", multiple=True, metavar="STORE", help="Keep only classes that STORE has; may be given several times."
)
@click.option("--all", "all_", is_flag=True, help="Print every measurement, not only the headlines.")
@prints_a_table(output="Write all measurements to a file too: .csv, .json, .parquet; or what is printed: .md, .tex.")
@click.option("--no-download", is_flag=True, help="Use only what is on this machine.")
@click.option("--null", is_flag=True, help="Also measure the nulls: the untrained model, and shuffled labels.")
@collecting_options(besides=("part", "null"))
def command(
    models: tuple[str, ...],
    store: str | None,
    metrics: str | None,
    min_counts: tuple[int, ...],
    classes_of: tuple[str, ...],
    all_: bool,
    format_: str | None,
    output: str | None,
    no_download: bool,
    null: bool,
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
    collapse measure stores/a --min-count 1,10,100
    collapse measure runs/a --text train.jsonl --null
    """
    if no_download:
        os.environ["HF_HUB_OFFLINE"] = "1"  # before the first import of the client, which reads it
    from collapse.hub.opening import load
    from collapse.numerics.devices import pick_device
    from collapse.plugin.plugin_manager import plugins

    _check_output(output)
    for problem in plugins().problems:
        say_error(problem)
    names = plugins().select(metrics) if metrics else None  # report an unknown name now, not after hours of collecting
    given = given_options(options)
    device = given.get("device", "auto")
    pick_device(device)
    how: dict[str, Any] = {"metrics": names, "classes_of": [load(each) for each in classes_of]}
    how["device"] = None if device == "auto" else device
    _check_options(models, given, store, null)
    rows, failed = _measure_each(models, store, given, how, min_counts, null)
    shown = None if all_ or names else plugins().headlines()
    _show(rows, format_, shown)
    if output and rows:  # last, so that the numbers are printed even if the file cannot be written
        _write(rows, output, shown, complete=not failed)
    return _exit_code(len(models), rows, failed)


def _exit_code(models: int, rows: list["Row"], failed: list[Exception]) -> int:
    """Say how many models failed, if any; return 2 if none was measured because all were refused."""
    if not failed:
        return 0
    say_error(f"{len(failed)} of {models} models are not measured, for the reasons above")
    return 2 if not rows and all(isinstance(error, UsageError) for error in failed) else 1


def _check_output(output: str | None) -> None:
    """Refuse an --output that cannot take the table, before any work is done."""
    from collapse.cli.formats import check_suffix
    from collapse.measurement.results import check_output

    check_suffix(output, (".csv", ".json", ".parquet"))
    if output and not output.lower().endswith(_FOR_PEOPLE):
        check_output(output)


def _measure_each(
    models: tuple[str, ...],
    store: str | None,
    given: dict[str, Any],
    how: dict[str, Any],
    min_counts: tuple[int, ...],
    null: bool,
) -> tuple[list["Row"], list[Exception]]:
    """Measure each model; return the rows, and why the others failed. The error of a single model is raised."""
    from collapse.cli.progress_bar import progress
    from collapse.collection.nulls import collect_nulls, with_nulls
    from collapse.core.paths import home
    from collapse.measurement.last_results import keep_row
    from collapse.measurement.measuring import measure_store

    rows: list[Row] = []
    failed: list[Exception] = []
    with progress() as report:
        for model in models:
            try:
                opened = _open(model, store, len(models), given, null, report)
                nulls = collect_nulls(opened, model, given, report) if null else {}
                made = []
                for least in min_counts:
                    row = measure_store(opened, min_count=least, progress=report, **how)
                    made.append(with_nulls(row, nulls, {**how, "min_count": least}, report))
            except Exception as error:  # a failing model must not stop the others
                if len(models) == 1:
                    raise
                _report_failure(model, error)
                failed.append(error)
                continue
            rows += made
            if made[0].class_set is None:
                keep_row(opened, made[0])
            if opened.path is not None and opened.path.parent == home() / "stores":
                say_aside(f"{model}: its store is {opened.path}")
    return rows, failed


def _write(rows: list["Row"], output: str, shown: list[str] | None, *, complete: bool) -> None:
    """Write the rows to a results file, or what is shown of them to a file for people.

    Unless every model was measured, a table that is there already stays: it may hold rows of those that failed now.
    """
    from collapse.cli.formats import write_in
    from collapse.measurement.results import Results, holds_rows
    from collapse.measurement.row_tables import whole_table_of

    replaced = holds_rows(output)
    if replaced and not complete:
        say_error(f"{output} is unchanged and lacks the rows above: choose another --output, or leave out what fails")
        return
    if output.lower().endswith(_FOR_PEOPLE):
        write_in(output, whole_table_of(rows, shown))
    else:
        Results(rows).write(output)
    say_aside(f"rows written to {output}: {len(rows)}{', replacing its previous rows' if replaced else ''}")


def _show(rows: list["Row"], format_: str | None, shown: list[str] | None) -> None:
    """Print the rows, and the errors that occurred in measuring them."""
    from collapse.cli.formats import print_in
    from collapse.cli.rendering import print_rows, say_failures
    from collapse.measurement.results import Results
    from collapse.measurement.row_tables import remarks_of, whole_table_of
    from collapse.measurement.table import Table

    if rows and format_ in (None, "table"):
        print_rows(rows, shown)
    elif rows or format_ == "json":
        table = whole_table_of(rows, shown) if rows else Table("", [], [])
        print_in(format_, table, data=[row.to_dict() for row in rows], frame=Results(rows).frame)
        for remark in remarks_of(rows) if format_ in ("csv", "json") else ():  # the others have it among the notes
            say_aside(remark)
        say_failures(rows)


def _report_failure(model: str, error: Exception) -> None:
    """Report why one of several models is not measured; with -v, also the traceback of an unexpected error."""
    from collapse.plugin.guarding import described

    if isinstance(error, CollapseError | OSError):
        say_error(f"{model} is not measured: {error}")
    elif click.get_current_context().find_root().params.get("verbose"):
        logging.getLogger("collapse").error("%s is not measured:", model, exc_info=error)
    else:
        say_error(f"{model} is not measured because of an unexpected error: {described(error)} (-v shows where)")


def _check_options(models: tuple[str, ...], given: dict[str, Any], store: str | None, null: bool) -> None:
    """Refuse options that a store or features file named here does not follow, before any work is done."""
    from collapse.inputs.features import is_features_file
    from collapse.inputs.features_request import check_features_options
    from collapse.inputs.store_options import refuse_options
    from collapse.stores.manifest import is_store

    finished = [model for model in models if is_store(model)]
    features = [model for model in models if is_features_file(model)]
    if store is not None and len(finished) == len(models):
        raise UsageError(f"{models[0]} is a store: --store {store} does not apply")
    if store is not None and len(models) > 1 and is_store(store):
        raise UsageError(f"{store} is a store: for several models give --store a folder of stores")
    if store is not None and len(models) > 1 and _is_local(store):
        check_folders([model for model in models if model not in finished], store)
    for model in features:
        check_features_options(model, given)
    for model in () if null else finished:  # for its null a store is collected again
        refuse_options(model, given)


def _open(model: str, store: str | None, models: int, given: dict[str, Any], null: bool, report: Any) -> Any:
    """Open the store for a name: the store itself, a published one, or one collected from the model."""
    from collapse.core.paths import expanded
    from collapse.stores.manifest import is_part, is_store
    from collapse.stores.store import Store

    if is_store(model) or is_part(model):  # load() says what to do with a part
        return Store.load(model)
    if not (expanded(model).exists() or given.get("recollect")):
        published = _published(model, store, given, null)
        if published is not None:
            return published
    from collapse.collection.collecting import collect

    folder = folder_in(store, model) if store and models > 1 else store
    return collect(model, store=folder, progress=report, **given)


def _published(model: str, store: str | None, given: dict[str, Any], null: bool) -> Any:
    """The store on the Hub that the model's name or --store refers to; a model's own is found where it is collected."""
    from collapse.hub.opening import open_named
    from collapse.hub.requests import at_revision
    from collapse.inputs.collection_spec import CollectionSpec
    from collapse.inputs.resolving import find_store_at
    from collapse.inputs.store_options import refuse_options

    named = open_named(at_revision(model, given.get("revision")))
    if named is not None:
        # here the revision is that of the repository, and has already been used
        refuse_options(named, {} if null else {name: each for name, each in given.items() if name != "revision"})
        return named
    if store is None or _is_local(store):
        return None
    return find_store_at(store, model, CollectionSpec(**given))


def _is_local(store: str) -> bool:
    """Whether --store is a local folder, existing or new; ``user/repo`` may be on the Hub if there is no ``user``."""
    from pathlib import Path

    from collapse.hub.requests import is_repo_id, split_name

    return "/" not in store or not is_repo_id(split_name(store)[0].partition("@")[0]) or Path(store).parent.exists()
