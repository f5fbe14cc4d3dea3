"""How measurements go with width, depth, epochs and weight decay, of models whose names say these."""

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from collapse import CollapseError, Drawing, Results, figure
from collapse.errors import counted
from collapse_figures.labels import shown
from collapse_figures.panels import axis, logged, together
from collapse_figures.tables import field, having, limits_of_lines, measured, models_in, records, remarks

if TYPE_CHECKING:
    import pandas as pd

HEADLINES = (
    "val_loss",
    "nc1.cdnv",
    "nc2.equinormness",
    "nc2.interference_std",
    "gnc2.uncentred_uniformity",
    "nc3.self_duality",
    "unc3.uniform_duality",
    "nc4.agreement",
)
_SIZE = ("depth", "width")
_CHARACTER = 0.06  # of the width of a panel of an inch
_PAPER = "Wu & Papyan 2024, Figures 6 to 30"
_NAMED = "models whose names say {what}, such as TinyStories-02x0768_03d@2"


@figure("scaling-width", title="Measurements against width, by depth", source=_PAPER)
def by_width(results: Results) -> Drawing:
    """Every headline measurement against width, a line per depth, of the recipe with most architectures."""
    return _scaled(results, along="width", colour="depth")


@figure("scaling-depth", title="Measurements against depth, by width", source=_PAPER)
def by_depth(results: Results) -> Drawing:
    """Every headline measurement against depth, a line per width, of the recipe with most architectures."""
    return _scaled(results, along="depth", colour="width")


def _scaled(results: Results, *, along: str, colour: str) -> Drawing:
    frame, repeats = _named(results, ["width", "depth"])
    recipe = ""
    if len(having(frame, ["recipe", "epochs", "decay", "checkpoint"])) == 4:
        last = frame.groupby("recipe").agg(
            n=("architecture", "nunique"), epochs=("epochs", "max"), k=("checkpoint", "max")
        )
        ordered = last.assign(decay=frame.groupby("recipe")["decay"].max()).sort_values(["n", "epochs", "k", "decay"])
        recipe = str(ordered.index[-1])
        frame = frame[frame["recipe"] == recipe]
    if frame[along].nunique() < 2:
        raise CollapseError(f"needs two values of {along} in one recipe; there is only {frame[along].iloc[0]:g}")
    of = f"of recipe {recipe} (epochs, decay, checkpoint), " if recipe else ""
    caption = f"Measurements against {along}, a line per {colour}, {of}{counted(models_in(frame), 'model')}."
    return _drawn(frame, along, colour, [colour], caption, repeats, base=2)


@figure("scaling-epochs", title="Measurements against epochs of training", source=_PAPER)
def by_epochs(results: Results) -> Drawing:
    """Every headline measurement against the epochs trained, a line per architecture, at one weight decay."""
    frame, repeats = _named(results, ["epochs", "checkpoint"])
    frame = frame.assign(trained=frame["checkpoint"] + 1)
    frame = _decay_with_most(frame, "trained")
    decay = f"with weight decay {frame['decay'].iloc[0]:g}, " if "decay" in frame else ""
    caption = (
        f"Measurements after epochs of training (checkpoint + 1), {decay}a line per architecture, coloured by width; "
        f"{counted(models_in(frame), 'model')}. Runs of different lengths are points of one line."
    )
    return _drawn(frame, "trained", "width", ["architecture"], caption, repeats, title="epochs trained")


@figure("scaling-decay", title="Measurements against weight decay", source=_PAPER)
def by_decay(results: Results) -> Drawing:
    """Every headline measurement with each weight decay, a line per architecture, after equal training."""
    frame, repeats = _named(results, ["epochs", "decay", "checkpoint"])
    frame = frame.assign(trained=frame["checkpoint"] + 1)
    paired = frame.groupby(["epochs", "trained"])["decay"].nunique()
    paired = paired[paired > 1]
    if paired.empty:
        raise CollapseError("needs models that differ in weight decay after equal training; none of these do")
    epochs, trained = paired.index[-1]
    frame = frame[(frame["epochs"] == epochs) & (frame["trained"] == trained)]
    caption = (
        f"Measurements with each weight decay after {trained:g} of {counted(int(epochs), 'epoch')}, a line per "
        f"architecture, coloured by width; {counted(models_in(frame), 'model')}."
    )
    return _drawn(frame, "decay", "width", ["architecture"], caption, repeats, title="weight decay")


def _named(results: Results, parts: Sequence[str]) -> "tuple[pd.DataFrame, int]":
    """Return the models whose names, or whose columns, say these parts, without repeats of other seeds."""
    frame = measured(results)
    lacking = [name for name in parts if not having(frame, [name])]
    if lacking:
        raise CollapseError(
            f"needs the {'column' if len(lacking) == 1 else 'columns'} {', '.join(lacking)}, or "
            f"{_NAMED.format(what=' and '.join(lacking))}"
        )
    frame = frame.dropna(subset=list(parts))
    if "architecture" not in frame:
        frame["architecture"] = [" x ".join(f"{each:g}" for each in row) for row in frame[having(frame, _SIZE)].values]
    if "width" not in frame:
        frame["width"] = 0
    repeats = sum((frame[name].notna() for name in having(frame, ["seed", "init_seed"])), start=frame[parts[0]].isna())
    kept = frame[~repeats.astype(bool)]
    if kept.empty:
        raise CollapseError(
            "all of these models are repeats of one recipe with other seeds: nothing to compare by size"
        )
    return kept, len(frame) - len(kept)


def _decay_with_most(frame: "pd.DataFrame", along: str) -> "pd.DataFrame":
    """Return the rows of the weight decay that has most values of a column; of equals, the least decay."""
    if frame[along].nunique() < 2:
        raise CollapseError("needs two checkpoints, or runs of different lengths; all models trained equally long")
    if not having(frame, ["decay"]):
        return frame.drop(columns="decay", errors="ignore")
    return frame[frame["decay"] == frame.groupby("decay")[along].nunique().idxmax()]


def _drawn(
    frame: "pd.DataFrame",
    along: str,
    colour: str,
    detail: Sequence[str],
    caption: str,
    repeats: int,
    *,
    title: str = "",
    base: int = 0,
) -> Drawing:
    import altair as alt

    present = having(frame, HEADLINES)
    if not present:
        raise CollapseError(f"needs one of {', '.join(HEADLINES)}, of which the table has no value")
    detail = [*detail, *limits_of_lines(frame)]
    rows = records(frame, ["model", along, colour, *detail, *present])
    log = bool((frame[along] > 0).all()) and frame[along].max() > 3 * frame[along].min()
    scale: dict[str, Any] = {"base": base} if log and base else {}
    values = _labelled(sorted({float(each) for each in frame[along]}), log=log)
    panels = []
    for name in present:
        about = shown(name)
        ordered = {"type": "ordinal", "title": f"{colour}"}
        at = axis(
            "x",
            along,
            frame[along],
            title=title or (f"{along} (layers)" if along == "depth" else f"{along} d"),
            log=log,
            **scale,
        )
        at.axis = alt.Axis(values=values, format="~g", labelOverlap="parity")
        panels.append(
            alt.Chart(title=about.title)
            .mark_line(point={"size": 10, "strokeWidth": 0}, strokeWidth=0.8)
            .encode(
                x=at,
                y=axis("y", name, frame[name], log=logged(frame, name)),
                color=alt.Color(field(colour), **ordered),
                detail=[alt.Detail(f"{field(each)}:N") for each in detail],
                tooltip=[alt.Tooltip("model:N"), alt.Tooltip(f"{field(name)}:Q", title=name, format=".4g")],
            )
        )
    notes = list(remarks(frame))
    if repeats:
        notes.append(f"left out: {counted(repeats, 'row')} that repeat a recipe with another seed")
    return Drawing(together(panels, rows), caption, notes=tuple(notes))


def _labelled(values: Sequence[float], *, log: bool) -> list[float]:
    """Return the values on an axis whose labels have room: the first, the last, and others that are far enough apart.

    >>> _labelled([64, 128, 256, 512, 768, 1024], log=True), _labelled([1, 2, 4, 8, 12], log=True)
    ([64, 128, 256, 512, 1024], [1, 2, 4, 8, 12])
    """
    if len(values) < 3:
        return list(values)
    at = [math.log(each) if log else each for each in values]
    room = [_CHARACTER * len(f"{each:g}") * (at[-1] - at[0]) for each in values]
    kept, last = [0], len(values) - 1
    for index in range(1, last):
        near = at[index] - at[kept[-1]] < (room[index] + room[kept[-1]]) / 2
        if not near and at[last] - at[index] >= (room[index] + room[last]) / 2:
            kept.append(index)
    return [values[index] for index in [*kept, last]]
