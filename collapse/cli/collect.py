"""collapse collect: collect a model's statistics into a store, completely or as a part."""

from typing import Any

import click

from collapse.cli.options import collecting_options, given_options
from collapse.cli.terminal import plugins_reporting_problems, say


@click.command()
@click.argument("model")
@click.option("--store", required=True, metavar="DIR", help="Folder of the store.")
@collecting_options()
def command(model: str, store: str, **options: Any) -> None:
    """Collect a model's embedding statistics into a store.

    To resume an interrupted collection, run the same command again. If the store is trained but not validated, only
    the validation is run.

    \b
    collapse collect runs/a --text train.jsonl --store stores/a
    collapse collect runs/a --text train.jsonl --store parts/2 --part 2/4
    """
    from collapse.cli.progress_bar import progress
    from collapse.collection.collecting import collect
    from collapse.core.paths import expanded
    from collapse.stores.manifest import SHARDS
    from collapse.stores.shards import Part

    plugins, given = plugins_reporting_problems(), given_options(options)
    with progress() as report:
        made = collect(model, store=store, progress=report, **given)
    if "part" in given and (expanded(store) / SHARDS).is_dir():  # slices of other parts are missing
        held = made.covered() if isinstance(made, Part) else "a part of the validation"
        say(f"{made} holds {held}; when all parts are collected: collapse merge STORE… --store DIR")
    else:
        say(
            f"{made} is {made.state}: {made.size / 1e6:,.1f} MB, digest {made.digest[:12]}; measure it with: "
            f"collapse measure {made}"
        )
        wanted = [kind for kind in plugins.statistics.values() if kind.phase == "train" or made.state == "complete"]
        lacking = {kind.name for kind in wanted} - {*made.manifest["statistics"], *given.get("without", ())}
        if lacking:
            say(f"it lacks the statistics of plugins {', '.join(sorted(lacking))}; collect them with: --recollect")
