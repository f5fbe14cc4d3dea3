"""collapse collect: collect a model's statistics into a store, completely or as a part."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import click

from collapse.cli.collection_jobs import JOBS, launching_options, run_or_submit_jobs
from collapse.cli.options import collecting_options, given_options
from collapse.cli.several import for_each, named_models, revisions_option
from collapse.cli.terminal import plugins_reporting_problems, say

if TYPE_CHECKING:
    from collapse.core.progress import Report
    from collapse.stores.shards import Part
    from collapse.stores.store import Store


@click.command()
@click.argument("model")
@revisions_option
@click.option(
    "--store", required=True, metavar="DIR", help="Folder of the store; with --revisions, of the checkpoints' stores."
)
@collecting_options()
@launching_options
def command(model: str, revisions: str | None, store: str, **options: Any) -> int:
    """Collect a model's embedding statistics into a store.

    To resume an interrupted collection, run the same command again. If the store
    lacks only the statistics of the validation text, only these are collected.
    --launcher divides the collection among several jobs.

    \b
    collapse collect runs/a --text train.jsonl --store stores/a
    collapse collect runs/a --text train.jsonl --store parts/2 --part 2/4
    collapse collect runs/a --text train.jsonl --store stores/a --launcher local
    collapse collect runs/a --revisions 'step*' --text t.jsonl --store stores
    """
    from collapse.collection.collecting import collect
    from collapse.collection.named_store import place_among

    plugins_reporting_problems()
    given, names = given_options(options), named_models([model], revisions)

    def place_of(name: str) -> str:
        return place_among(name, store) if revisions else store

    def collect_one(name: str, report: "Report") -> None:
        made = collect(name, store=place_of(name), progress=report, **given)
        _say_what_is_there(made, place_of(name), given)

    # this also reads --launcher and its options, from click's context
    if run_or_submit_jobs(names, place_of, store, given):
        return 0
    return 1 if for_each(names, collect_one, "collected") else 0


def _say_what_is_there(made: "Store | Part", store: str, given: Mapping[str, Any]) -> None:
    from collapse.core.paths import expanded
    from collapse.plugin.plugin_manager import plugins
    from collapse.stores.shards import Part, all_shards

    folder = expanded(store)
    # unfinished: a Part (training slices are missing), or a store with shards (slices of a later pass are missing)
    # without --part, no shards are left; with it, another process may just have merged and removed them
    shards = all_shards(folder) if "part" in given else []
    if shards or isinstance(made, Part):
        held = made.covered() if isinstance(made, Part) else f"a part of the {shards[0].phase} pass"
        by_job = any((each / JOBS).is_dir() for each in (folder, folder.parent))  # other jobs collect the other parts
        mergeable = ", or merge all parts: collapse merge PART… --store DIR" if isinstance(made, Part) else ""
        say(f"{made} holds {held}" if by_job else f"{made} holds {held}; collect the other parts there too{mergeable}")
    else:
        say(
            f"{made} is {made.state}: {made.size / 1e6:,.1f} MB, digest {made.digest[:12]}\nmeasure it with: "
            f"collapse measure {made}{' --layers all' if len(made.layers) > 1 else ''}"
        )
        wanted = [kind for kind in plugins().statistics.values() if kind.phase == "train" or made.state == "complete"]
        lacking = {kind.name for kind in wanted} - {*made.manifest["statistics"], *given.get("without", ())}
        if lacking:
            say(f"it lacks these statistics of plugins: {', '.join(sorted(lacking))}; to collect them, add --recollect")
