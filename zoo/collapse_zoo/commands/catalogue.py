"""collapse zoo list and info: show the published models and the local runs."""

from dataclasses import asdict
from pathlib import Path
from typing import Any

import click

from collapse.cli.formats import prints_a_table
from collapse.cli.terminal import say, say_json
from collapse.errors import UsageError, counted, near_names


@click.command()
@click.option("--depth", type=int, multiple=True, help="Only this depth; may be repeated, like the next four options.")
@click.option("--width", type=int, multiple=True, help="Only this width.")
@click.option("--epochs", type=int, multiple=True, help="Only models that were trained for this number of epochs.")
@click.option("--decay", "weight_decay", type=float, multiple=True, help="Only this weight decay, such as 0.1.")
@click.option("--checkpoint", type=int, multiple=True, metavar="K", help="Only the checkpoint after epoch K + 1.")
@click.option("--published", "where", flag_value="published", help="Only the published models.")
@click.option("--local", "where", flag_value="local", help="Only the runs on this machine.")
@click.option("--hub", "where", flag_value="hub", help="Only models on the Hugging Face Hub.")
@click.option("--runs", default="runs", show_default=True, metavar="DIR", help="Folder of the runs.")
@click.option("--metrics", metavar="NAMES", help="Measurements or prefixes, separated by commas.  [default: eight]")
@click.option("--sort", metavar="NAME", help="Sort by a measurement, smallest first.")
@prints_a_table
def list_command(
    where: str | None,
    runs: str,
    metrics: str | None,
    sort: str | None,
    format_: str | None,
    output: str | None,
    **filters: tuple[Any, ...],
) -> None:
    """List the paper's 230 models and your runs.

    Each model is shown with its measurements. The paper's numbers are the authors' own (rhubarbwu/linguistic-collapse);
    docs/paper/tinystories.md maps their names to ours.

    \b
    collapse zoo list --width 768 --decay 0.1
    collapse zoo list --published --metrics val_loss,nc1 --sort val_loss
    """
    from collapse import Results, Table
    from collapse.cli.formats import deliver
    from collapse.measurement.columns import split_columns
    from collapse_zoo.catalogue import SHOWN, catalogue, on_the_hub

    found = on_the_hub() if where == "hub" else catalogue(runs, where=(where,) if where else ("published", "local"))
    wanted = {name: values for name, values in filters.items() if values}
    records = [each for each in found if all(each[name] in values for name, values in wanted.items())]
    if not records and format_ in (None, "table"):
        say("no model matches; remove a filter, or train a model, such as: collapse zoo train 2x64")
        return
    frame = Results.from_records(records).frame()
    chosen = split_columns(metrics, frame) if metrics else [name for name in SHOWN if name in frame]
    for name in [*chosen, *([sort] if sort else [])]:
        if records and name not in frame:
            raise UsageError(f"no listed model has a measurement {name!r}; {near_names(name, map(str, frame.columns))}")
    if sort and records:
        frame = frame.sort_values(sort, kind="stable")
    columns = list(dict.fromkeys(["model", "where", *chosen]))
    rows = [list(record.values()) for record in Results.from_frame(frame.reindex(columns=columns)).data()]
    deliver(format_, output, Table("", columns, rows, source=Results.from_frame(frame)))
    if format_ in (None, "table"):
        say(f"{counted(len(records), 'model')}; more about one with: collapse zoo info {rows[0][0]}")


@click.command()
@click.argument("model")
@click.option("--runs", default="runs", show_default=True, metavar="DIR", help="Folder of the runs.")
@click.option("--json", "as_json", is_flag=True, help="Print as JSON.")
def info_command(model: str, runs: str, as_json: bool) -> None:
    """Show one model: its recipe and its measurements.

    MODEL is a name (12x1024_10L, TinyStories-02x0768_01d07@0) or a run directory.
    """
    from collapse import Table
    from collapse.cli.rendering import print_table
    from collapse_zoo.catalogue import ABOUT, find
    from collapse_zoo.recipes import parse
    from collapse_zoo.runs import Run

    records = find(model, runs)
    where = records[0]["where"] if records else "published"
    recipe = parse(model).recipe if where == "published" else Run(Path(where)).recipe
    title = records[0]["model"].partition("@")[0] if records else str(parse(model).of_run())
    if not records:
        recipe.configuration()  # raises an error for a size that cannot be trained
    values = asdict(recipe) | {"parameters": recipe.n_params, "flops_per_token": round(recipe.flops_per_token())}
    if as_json:
        say_json({"model": title, "recipe": values, "checkpoints": records})
        return
    shown = {key.replace("_", " "): value for key, value in values.items() if value not in (None, {})}
    rows = [[key, value if isinstance(value, int) else str(value)] for key, value in shown.items()]
    print_table(Table(title, ["recipe", ""], rows))
    known = {name for record in records for name in record} - {*ABOUT}
    if not known:
        say(f"{title} has no measurements here or in the paper; train it with: collapse zoo train {title}")
        return
    of = [(each["checkpoint"], "paper" if each["where"] == "published" else each["where"]) for each in records]
    columns = [f"@{k} {where}" for k, where in of]
    measured = [[name, *(record.get(name) for record in records)] for name in sorted(known)]
    print_table(Table("", ["measurement", *columns], measured))
