"""Measurements against width, depth, epochs and weight decay, for models whose names contain these values."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from collapse import CollapseError, Drawing, Results, figure
from collapse.errors import counted
from collapse_figures.panels import axis, curves
from collapse_figures.tables import Colour, drawn_in, having, measured, models, remarks

if TYPE_CHECKING:
    import pandas as pd

_ROOM = 0.15  # share of an axis that the last label needs
_PAPER = "Wu & Papyan 2024, Figures 6 to 30"


@figure("scaling-width", title="Measurements against width, by depth", source=_PAPER)
def by_width(results: Results) -> Drawing:
    """Headline measurements (GNC2 uncentred) against width, a line per depth, in the recipe with most architectures."""
    return _by_size(results, "width", "depth", title="width d")


@figure("scaling-depth", title="Measurements against depth, by width", source=_PAPER)
def by_depth(results: Results) -> Drawing:
    """Headline measurements (GNC2 uncentred) against depth, a line per width, in the recipe with most architectures."""
    return _by_size(results, "depth", "width", title="depth (layers)")


def _by_size(results: Results, along: str, colour: str, title: str) -> Drawing:
    frame, notes = _named(results, ["width", "depth"])
    of = ""
    ends = {"architecture": "nunique", "epochs": "max", "checkpoint": "max", "decay": "max"}
    if len(having(frame, ["recipe", *ends])) == 5:
        recipe = str(frame.groupby("recipe").agg(ends).sort_values(list(ends)).index[-1])
        frame = frame[frame["recipe"] == recipe]
        of = f"of recipe {recipe} (epochs, decay, checkpoint), "
    caption = f"Measurements against {along}, a line per {colour}, {of}{models(frame)}."
    return _drawn(frame, along, title, Colour(colour, colour, "ordinal"), colour, caption, notes)


@figure("scaling-epochs", title="Measurements against epochs of training", source=_PAPER)
def by_epochs(results: Results) -> Drawing:
    """Headline measurements (GNC2 uncentred) against trained epochs, a line per architecture, at one weight decay."""
    frame, notes = _named(results, ["epochs", "checkpoint", "decay", "architecture"])
    # the decay with the most values of ``trained``; in a tie, the smallest
    frame = frame[frame["decay"] == frame.groupby("decay")["trained"].nunique().idxmax()]
    caption = (
        f"Measurements after epochs of training (checkpoint + 1), with weight decay {frame['decay'].iloc[0]:g}, a line "
        f"per architecture, coloured by width; {models(frame)}. Runs of different lengths are points of one line."
    )
    colour = Colour("width", "width", "ordinal")
    return _drawn(frame, "trained", "epochs trained", colour, "architecture", caption, notes)


@figure("scaling-decay", title="Measurements against weight decay", source=_PAPER)
def by_decay(results: Results) -> Drawing:
    """Headline measurements (GNC2 uncentred) against weight decay, a line per architecture, after the same epochs."""
    frame, notes = _named(results, ["epochs", "checkpoint", "decay", "architecture"])
    decays = frame.groupby(["epochs", "trained"])["decay"].nunique()
    epochs, trained = decays[decays == decays.max()].index[-1] if decays.max() < 2 else decays[decays > 1].index[-1]
    frame = frame[(frame["epochs"] == epochs) & (frame["trained"] == trained)]
    caption = (
        f"Measurements with each weight decay after {trained:g} of {counted(int(epochs), 'epoch')}, a line per "
        f"architecture, coloured by width; {models(frame)}."
    )
    colour = Colour("width", "width", "ordinal")
    return _drawn(frame, "decay", "weight decay", colour, "architecture", caption, notes)


def _named(results: Results, parts: Sequence[str]) -> "tuple[pd.DataFrame, list[str]]":
    """Return the rows with values in all columns ``parts`` but without a seed, and a note on the rows with a seed."""
    frame = measured(results)
    if lacking := [name for name in parts if not having(frame, [name])]:
        raise CollapseError(
            f"this figure needs values of {' and '.join(lacking)}: add columns with these names to the table, or use "
            "model names that contain the values, such as TinyStories-02x0768_03d@2"
        )
    frame = frame.dropna(subset=list(parts))
    if "checkpoint" in frame:
        frame["trained"] = frame["checkpoint"] + 1
    kept = frame[frame[having(frame, ["seed", "init_seed"])].isna().all(axis=1)]
    if kept.empty:
        raise CollapseError(
            "this figure excludes repeats with a seed, and every model has a seed in its name: add models without one"
        )
    repeats = len(frame) - len(kept)
    return kept, [f"excluded: {counted(repeats, 'row')} that repeat a recipe with another seed"] if repeats else []


def _drawn(
    frame: "pd.DataFrame", along: str, title: str, colour: Colour, lines: str, caption: str, notes: Sequence[str]
) -> Drawing:
    values = np.unique(frame[along].astype(float))
    if len(values) < 2:
        raise CollapseError(
            f"this figure needs comparable models with at least two values of {title}, but all have {values[0]:g}: add "
            "models with another value"
        )
    log = bool(values[0] > 0 and values[-1] > 3 * values[0])
    at = np.log(values) if log else values
    room = at[-1] - at >= _ROOM * (at[-1] - at[0])  # leave room for the label of the largest value
    marked = np.unique([*values[room], values[-1]]).tolist()
    x = axis("x", along, values, title=title, log=log, format="~g", values=marked)
    spec = curves(frame, drawn_in("curves"), x, along, colour, [lines])
    return Drawing(spec, caption, notes=(*remarks(frame), *notes))
