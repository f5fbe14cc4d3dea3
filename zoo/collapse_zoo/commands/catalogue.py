"""collapse zoo list and info: show the published models and the local runs."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from collapse.cli.formats import prints_a_table
from collapse.cli.terminal import say, say_json
from collapse.errors import counted

if TYPE_CHECKING:
    from collapse_zoo.catalogue import Entry


@click.command()
@click.option("--depth", type=int, multiple=True, help="Only this depth; may be repeated, like the next options.")
@click.option("--width", type=int, multiple=True)
@click.option("--epochs", type=int, multiple=True)
@click.option("--decay", type=float, multiple=True, help="Weight decay: 0.0005, 0.1, or another.")
@click.option("--checkpoint", type=int, multiple=True, metavar="K", help="The state after epoch K + 1.")
@click.option("--published", "only_published", is_flag=True, help="Only the published models.")
@click.option("--local", "only_local", is_flag=True, help="Only the runs on this machine.")
@click.option("--hub", is_flag=True, help="Models on the Hugging Face Hub.")
@click.option("--runs", default="runs", show_default=True, metavar="DIR", help="Folder of the runs.")
@click.option("--metrics", metavar="NAMES", help="Measurements or prefixes, with commas.  [default: eight of them]")
@click.option("--sort", metavar="NAME", help="Sort by a measurement, smallest first.")
@prints_a_table
def list_command(
    only_published: bool,
    only_local: bool,
    hub: bool,
    runs: str,
    metrics: str | None,
    sort: str | None,
    format_: str | None,
    output: str | None,
    **filters: tuple[Any, ...],
) -> None:
    """List the paper's 230 models and the runs here.

    All are shown with their measurements. The paper's numbers are its authors' own (rhubarbwu/linguistic-collapse);
    docs/tinystories.md says how they map to the names here.

    \b
    collapse zoo list --width 768 --decay 0.1
    collapse zoo list --published --metrics val_loss,nc1 --sort val_loss
    """
    from collapse import Results, Table
    from collapse.cli.formats import deliver
    from collapse_zoo.catalogue import SHOWN, catalogue, on_the_hub

    if only_published + only_local + hub > 1:
        raise click.UsageError("--published, --local and --hub exclude each other: give one of them")
    where = ("published",) if only_published else ("local",) if only_local else ("published", "local")
    found = on_the_hub() if hub else catalogue(runs, where=where)
    entries = [entry for entry in found if _kept(entry, filters)]
    if not entries and format_ in (None, "table"):
        say("no model matches; leave out a filter, or train one: collapse zoo train LxD")
        return
    known = list(dict.fromkeys(name for entry in entries for name in entry.measurements))
    columns = (
        _columns("--metrics", metrics, known) if metrics and entries else [name for name in SHOWN if name in known]
    )
    if sort and entries:
        by = _columns("--sort", sort, known)[0]
        entries.sort(key=lambda entry: _order(entry.measurements.get(by)))
    rows = [[entry.name, entry.where, *(entry.measurements.get(name) for name in columns)] for entry in entries]
    source = Results.from_records([entry.record() for entry in entries])
    deliver(format_, output, Table("", ["model", "where", *columns], rows, source=source))
    if format_ in (None, "table"):
        say(f"{counted(len(entries), 'model')}; more about one with: collapse zoo info {entries[0].name}")


@click.command()
@click.argument("model")
@click.option("--runs", default="runs", show_default=True, metavar="DIR", help="Folder of the runs.")
@click.option("--json", "as_json", is_flag=True, help="Print as JSON.")
def info_command(model: str, runs: str, as_json: bool) -> None:
    """Show one model: its recipe, and what was measured.

    MODEL is a name (12x1024_10L, TinyStories-02x0768_01d07@0) or a run directory.
    """
    from collapse import Table
    from collapse.cli.rendering import print_table
    from collapse_zoo.catalogue import find
    from collapse_zoo.recipes import parse

    entries = find(model, runs)
    found = {(entry.name.partition("@")[0], entry.where): entry.recipe for entry in entries}
    found = found or {(str(parse(model).of_run()), ""): parse(model).recipe()}
    recipes = [
        recipe.as_dict() | {"parameters": recipe.n_params, "flops_per_token": round(recipe.flops_per_token())}
        for recipe in found.values()
    ]
    if as_json:
        title = next(iter(found))[0]
        say_json({"model": title, "recipe": recipes[0], "checkpoints": [entry.record() for entry in entries]})
        return
    for (name, where), recipe in zip(found, recipes, strict=True):
        rows = [[key.replace("_", " "), _text(value)] for key, value in recipe.items() if value not in (None, {})]
        print_table(Table(f"{name} ({where})" if len(found) > 1 else name, ["recipe", ""], rows))
    known = list(dict.fromkeys(name for entry in entries for name in entry.measurements))
    if not known:
        say(f"It has no measurements, here or in the paper; train it with: collapse zoo train {model}")
        return
    columns = [f"@{entry.k} {'paper' if entry.where == 'published' else entry.where}" for entry in entries]
    measured = [[name, *(entry.measurements.get(name) for entry in entries)] for name in sorted(known)]
    print_table(Table("", ["measurement", *columns], measured))
    for place in dict.fromkeys(entry.where for entry in entries if (Path(entry.where) / "stores").is_dir()):
        say(f"the stores of {place} are in {place}/stores; its latest measurements: collapse measure {place} --all")


def _kept(entry: "Entry", filters: dict[str, tuple[Any, ...]]) -> bool:
    recipe = entry.recipe
    have = {
        "depth": recipe.depth,
        "width": recipe.width,
        "epochs": recipe.epochs,
        "decay": recipe.weight_decay,
        "checkpoint": entry.k,
    }
    return all(not wanted or have[name] in wanted for name, wanted in filters.items())


def _columns(option: str, text: str, known: list[str]) -> list[str]:
    """Return the measurements that an option names, at least one."""
    from collapse.errors import UsageError, near_names

    chosen = []
    for name in (each.strip() for each in text.split(",") if each.strip()):
        matching = [each for each in known if each == name or each.startswith(f"{name.lower()}.")]
        if not matching:
            raise UsageError(f"no model listed has a measurement {name!r}; {near_names(name, known)}")
        chosen += matching
    if not chosen:
        raise UsageError(f"{option} must name a measurement, got {text!r}; {near_names(text, known)}")
    return chosen


def _order(value: float | None) -> float:
    return float("inf") if value is None else value


def _text(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:,.0f}" if value >= 1e6 else f"{value:g}"
    return f"{value:,}" if isinstance(value, int) else str(value)
