"""collapse measure: find or collect stores, measure them, print a table.

The command does not call ``collapse.measure``, but the functions that ``collapse.measure`` calls, because the command
also measures several models, layers, groups and null baselines.
"""

import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from collapse.cli.collection_jobs import launching_options, run_or_submit_jobs
from collapse.cli.formats import deliver, prints_a_table
from collapse.cli.options import Counts, collecting_options, given_options
from collapse.cli.several import for_each, named_models, refuse_one_place, revisions_option
from collapse.cli.terminal import plugins_reporting_problems, say_aside, say_error
from collapse.core import ranks
from collapse.errors import UsageError

if TYPE_CHECKING:
    from collapse.core.progress import Report
    from collapse.measurement.rows import Row


def _readable(context: click.Context, _: click.Parameter, group_by: tuple[str, ...]) -> tuple[str, ...]:
    if group_by and not context.resilient_parsing:  # set during shell completion
        from collapse.vocabulary.groups import grouping

        grouping(group_by)  # report an invalid value now, not after hours of collecting
    return group_by


@click.command()
@click.argument("models", nargs=-1, required=True, metavar="MODEL...")
@revisions_option
@click.option(
    "--store",
    metavar="DIR",
    help="Folder of the store; for several models, the folder of their stores.",
)
@click.option(
    "--metrics",
    metavar="NAMES",
    help="Measurements or prefixes: gnc2,nc1.cdnv.  [default: measure all but geometry, print the headlines]",
)
@click.option(
    "--min-count",
    "min_counts",
    type=Counts(),
    default="1",
    show_default=True,
    help="Skip classes with fewer samples; several numbers, such as 1,10,100, give a column each.",
)
@click.option(
    "--classes-of", multiple=True, metavar="STORE", help="Keep only classes that STORE has; may be given several times."
)
@click.option(
    "--group-by",
    multiple=True,
    callback=_readable,
    metavar="count|REGEX|FILE",
    help="Print a row per group of classes. Give count for groups from rare to frequent, a regular expression for the "
    "tokens that it matches (may be given several times), or a file with the columns id and group.",
)
@click.option(
    "--ood-text",
    "--ood-data",
    "ood_text",
    multiple=True,
    metavar="FILES|DATASET|STORE",
    help="Out-of-distribution text for NC5: its embeddings are also collected. Or a store of such a text. With --task, "
    "give data; labels are not read.",
)
@click.option("--all", "all_", is_flag=True, help="Print every measurement, not only the headlines.")
@prints_a_table
@click.option("--no-download", is_flag=True, help="Use only local and cached files.")
@click.option("--null", is_flag=True, help="Also measure two null baselines: the untrained model, and shuffled labels.")
@collecting_options(besides=("part", "null"))
@launching_options
def command(
    models: tuple[str, ...],
    revisions: str | None,
    store: str | None,
    metrics: str | None,
    min_counts: tuple[int, ...],
    classes_of: tuple[str, ...],
    group_by: tuple[str, ...],
    ood_text: tuple[str, ...],
    all_: bool,
    format_: str | None,
    output: str | None,
    no_download: bool,
    null: bool,
    **options: Any,
) -> int:
    """Measure models, stores or features files.

    MODEL is a causal language model (a local folder or Hub id), a store (a local folder or on the Hub), or a features
    file (.safetensors). A model's embeddings are collected first, unless its store is found in the cache or in the
    model's own repository. It is an error if the store in --store was collected with other options. If one of several
    MODELs fails, the others are measured, the exit status is 1, and an existing --output file is not changed.

    --task measures a classifier of images, texts or tokens, or a masked language model, on --data.

    --layers prints a row for each layer, in order of depth; all are collected in one pass. For a store, it measures
    layers that the store holds. NC4 and the loss of inner layers use the logit lens: the model's final norm and head.

    --revisions measures the checkpoints of a training run, and prints a row for each, in the order of their steps.
    In the cache, checkpoints with equal weights share a store.

    --group-by prints a row for each group of classes, measured as if the store had only these classes.

    \b
    collapse measure runs/a --text train.jsonl --validation-text validation.jsonl
    collapse measure roneneldan/TinyStories-33M --max-chunks 200
    collapse measure stores/a stores/b --metrics nc1,gnc2 --output results.csv
    collapse measure stores/a --min-count 1,10,100
    collapse measure runs/a --text train.jsonl --null
    collapse measure runs/a --text train.jsonl --layers every:4
    collapse measure runs/vit --task image-classification --data images/train
    collapse measure EleutherAI/pythia-70m --revisions 'step*' --text train.jsonl
    collapse measure stores/a --group-by count
    collapse measure runs/a --text train.jsonl --ood-text other.jsonl
    """
    if no_download:
        os.environ["HF_HUB_OFFLINE"] = "1"  # set before the first import of the client, which reads it
    from collapse.cli.rendering import say_failures
    from collapse.collection.named_store import check_options, how_to_measure, place_among
    from collapse.hub.opening import load
    from collapse.measurement.row_tables import table_by_step, whole_table_of
    from collapse.stores.manifest import is_store

    plugins = plugins_reporting_problems()
    given = given_options(options)
    if null and (given.get("layers") or group_by):
        raise UsageError("--null measures only the top layer, with all classes: remove --layers and --group-by")
    how = how_to_measure(metrics, given.get("device", "auto"), classes_of=[load(each) for each in classes_of])
    names = named_models(models, revisions)
    if group_by and all(map(is_store, names)):
        # groups need the tokenizer for the texts of tokens; as a collection option, it is an error for a finished store
        how["tokenizer"] = given.pop("tokenizer", None)
    for model in names:
        check_options(model, given, null=null, ood_text=ood_text)  # for all models, before the first is collected

    def place_of(model: str) -> str | None:
        several = revisions or len(names) > 1
        return place_among(model, store) if store and several else store

    to_collect = [model for model in names if not is_store(model)]
    refuse_one_place(to_collect, place_of)
    if run_or_submit_jobs(to_collect, place_of, store, given):
        return 0
    rows, failed = _measure_each(names, place_of, bool(revisions), given, how, min_counts, null, group_by, ood_text)
    if ranks.rank():  # the table is the same in all ranks
        return 1 if failed else 0
    if failed and output and Path(output).is_file():
        say_error(f"{output} is not changed, because models failed: remove these models, or choose another --output")
        output = None
    if rows:
        shown = None if all_ or metrics else plugins.headlines(("ood",) if ood_text else ())
        by_row = (revisions or given.get("layers") or group_by) and not null
        deliver(format_, output, (table_by_step if by_row else whole_table_of)(rows, shown))
        if null and output and Path(output).suffix.lower() in (".csv", ".parquet"):
            say_aside(f"{output} does not contain the null baselines: write a .json file to keep them")
        say_failures(rows)
    if failed:
        say_error(f"{failed} of {len(names)} models are not measured, for the reasons above")
    return 1 if failed else 0


def _measure_each(
    models: Sequence[str],
    place_of: Callable[[str], str | None],
    of_revisions: bool,
    given: Mapping[str, Any],
    how: Mapping[str, Any],
    min_counts: Sequence[int],
    null: bool,
    group_by: Sequence[str],
    ood_text: Sequence[str],
) -> tuple[list["Row"], int]:
    """Measure each model; return the rows, and how many models failed. For a single model, raise its error.

    ``place_of`` returns the folder of a model's store, or None for the local cache. ``of_revisions`` says whether the
    models are revisions (``--revisions``). ``given`` has the options of the collection, ``how`` those of the
    measurement.
    """
    from collapse.collection.measuring_layers import layers_held, of_revision, rows_of_layers
    from collapse.collection.named_store import open_or_collect
    from collapse.collection.null_baselines import collect_nulls, with_nulls
    from collapse.core.paths import home
    from collapse.measurement.last_results import keep_row
    from collapse.stores.layer_names import TOP
    from collapse.stores.store import Store
    from collapse.vocabulary.groups import measure_groups

    rows: list[Row] = []
    previous: dict[int, dict[str, Any]] = {least: {} for least in min_counts}  # as in rows_of_layers()

    def measure_one(model: str, report: "Report") -> None:
        opened, ood = open_or_collect(model, ood_text, store=place_of(model), progress=report, **given)
        assert isinstance(opened, Store)  # a name is given
        asked = given.get("layers")
        nulls = collect_nulls(opened, model, given, report) if null else {}
        made: list[Row] = []
        for least in min_counts:
            options = {**how, "min_count": least, "progress": report}
            if group_by:
                for layer in layers_held(opened, asked):
                    others = {"ood": (ood, layer)} if ood else {}
                    made += measure_groups(opened, group_by, layer=layer, others=others, **options).rows
            else:
                # without --layers, this is one row, of the layer top
                found = rows_of_layers(opened, asked, previous[least], ood=ood, of_models=len(models) > 1, **options)
                made += [with_nulls(row, nulls, {**how, "min_count": least}, report) if nulls else row for row in found]
        rows.extend(of_revision(row, model) if of_revisions else row for row in made)
        # keep the row of the first --min-count, but not with --classes-of, --group-by or --ood-text
        top = next(row for row in made if row.layer == TOP)
        if ranks.rank() == 0 and not (top.class_set or top.group or top.ood):
            keep_row(opened, top)
        if opened.path is not None and opened.path.parent == home() / "stores":
            say_aside(f"{model}: its store is {opened.path}")

    return rows, for_each(models, measure_one, "measured")
