"""How measurements go with width, depth, epochs and weight decay, of models whose names say these."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from collapse import CollapseError, Drawing, Results, figure
from collapse.errors import counted
from collapse_figures.panels import axis, curves
from collapse_figures.tables import Colour, drawn_in, having, limits_of_lines, measured, models, one_of, remarks

if TYPE_CHECKING:
    import pandas as pd

_ROOM = 0.15  # of the length of an axis
_PAPER = "Wu & Papyan 2024, Figures 6 to 30"


@figure("scaling-width", title="Measurements against width, by depth", source=_PAPER)
def by_width(results: Results) -> Drawing:
    """Every headline measurement against width, a line per depth, of the recipe with most architectures."""
    return _by_size(results, "width", "depth")


@figure("scaling-depth", title="Measurements against depth, by width", source=_PAPER)
def by_depth(results: Results) -> Drawing:
    """Every headline measurement against depth, a line per width, of the recipe with most architectures."""
    return _by_size(results, "depth", "width")


def _by_size(results: Results, along: str, colour: str) -> Drawing:
    frame, repeats = _named(results, ["width", "depth"])
    of = ""
    if len(having(frame, ["recipe", "epochs", "decay", "checkpoint"])) == 4:
        ends = {"architecture": "nunique", "epochs": "max", "checkpoint": "max", "decay": "max"}
        recipe = str(frame.groupby("recipe").agg(ends).sort_values(list(ends)).index[-1])
        frame = frame[frame["recipe"] == recipe]
        of = f"of recipe {recipe} (epochs, decay, checkpoint), "
    if frame[along].nunique() < 2:
        raise CollapseError(f"needs two values of {along} in one recipe; there is only {frame[along].iloc[0]:g}")
    caption = f"Measurements against {along}, a line per {colour}, {of}{models(frame)}."
    return _drawn(frame, along, colour, colour, caption, repeats, "depth (layers)" if along == "depth" else "width d")


@figure("scaling-epochs", title="Measurements against epochs of training", source=_PAPER)
def by_epochs(results: Results) -> Drawing:
    """Every headline measurement against the epochs trained, a line per architecture, at one weight decay."""
    frame, repeats = _named(results, ["epochs", "checkpoint"])
    frame = frame.assign(trained=frame["checkpoint"] + 1)
    if frame["trained"].nunique() < 2:
        raise CollapseError("needs two checkpoints, or runs of different lengths; all models trained equally long")
    decay = ""
    if having(frame, ["decay"]):  # the one with most points; of equals, the least
        frame = frame[frame["decay"] == frame.groupby("decay")["trained"].nunique().idxmax()]
        decay = f"with weight decay {frame['decay'].iloc[0]:g}, "
    caption = (
        f"Measurements after epochs of training (checkpoint + 1), {decay}a line per architecture, coloured by width; "
        f"{models(frame)}. Runs of different lengths are points of one line."
    )
    return _drawn(frame, "trained", "width", "architecture", caption, repeats, "epochs trained")


@figure("scaling-decay", title="Measurements against weight decay", source=_PAPER)
def by_decay(results: Results) -> Drawing:
    """Every headline measurement with each weight decay, a line per architecture, after equal training."""
    frame, repeats = _named(results, ["epochs", "decay", "checkpoint"])
    frame = frame.assign(trained=frame["checkpoint"] + 1)
    decays = frame.groupby(["epochs", "trained"])["decay"].nunique()
    if decays.max() < 2:
        raise CollapseError("needs models that differ in weight decay after equal training; none of these do")
    epochs, trained = decays[decays > 1].index[-1]
    frame = frame[(frame["epochs"] == epochs) & (frame["trained"] == trained)]
    caption = (
        f"Measurements with each weight decay after {trained:g} of {counted(int(epochs), 'epoch')}, a line per "
        f"architecture, coloured by width; {models(frame)}."
    )
    return _drawn(frame, "decay", "width", "architecture", caption, repeats, "weight decay")


def _named(results: Results, parts: Sequence[str]) -> "tuple[pd.DataFrame, int]":
    """Return the models whose names, or whose columns, say these parts, without repeats of other seeds."""
    frame = measured(results)
    if lacking := [name for name in parts if not having(frame, [name])]:
        raise CollapseError(
            f"needs the {'column' if len(lacking) == 1 else 'columns'} {', '.join(lacking)}, or models whose names say "
            f"{' and '.join(lacking)}, such as TinyStories-02x0768_03d@2"
        )
    frame = frame.dropna(subset=list(parts))
    if "architecture" not in frame:
        sizes = having(frame, ["depth", "width"])
        frame["architecture"] = [" x ".join(f"{each:g}" for each in row) for row in frame[sizes].values]
    if "width" not in frame:
        frame["width"] = 0
    kept = frame[frame[having(frame, ["seed", "init_seed"])].isna().all(axis=1)]
    if kept.empty:
        raise CollapseError(
            "all of these models are repeats of one recipe with other seeds: nothing to compare by size"
        )
    return kept, len(frame) - len(kept)


def _drawn(
    frame: "pd.DataFrame", along: str, colour: str, lines: str, caption: str, repeats: int, title: str
) -> Drawing:
    present = one_of(frame, drawn_in("curves"))
    log = bool((frame[along] > 0).all()) and frame[along].max() > 3 * frame[along].min()
    values = np.unique(frame[along].astype(float))
    at = np.log(values) if log else values
    room = at[-1] - at >= _ROOM * (at[-1] - at[0])  # for the label of the largest
    marked = np.unique([*values[room], values[-1]]).tolist()
    x = axis("x", along, values, title=title, log=log, format="~g", values=marked)
    spec = curves(frame, present, along, x, Colour(colour, colour, "ordinal"), [lines, *limits_of_lines(frame)])
    notes = [f"left out: {counted(repeats, 'row')} that repeat a recipe with another seed"] if repeats else []
    return Drawing(spec, caption, notes=(*remarks(frame), *notes))
