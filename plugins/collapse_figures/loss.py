"""Properties of collapse against validation loss, a point per model: the four panels of Figure 1, and others."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from collapse import CollapseError, Drawing, Results, figure
from collapse.errors import counted
from collapse.measurement.comparing import corpora_of
from collapse_figures.labels import shown
from collapse_figures.panels import axis, coloured, headed, linked, logged, together
from collapse_figures.tables import (
    Colour,
    caution,
    colour_of,
    field,
    having,
    mean_crosses_0,
    measured,
    models_in,
    r_squared,
    records,
    remarks,
)

if TYPE_CHECKING:
    import pandas as pd

FOUR = ("nc1.cdnv", "gnc2.uncentred_uniformity", "unc3.uniform_duality", "nc4.agreement")
GEOMETRY = ("nc2.equinormness", "nc2.interference_std", "nc2.equiangularity", "gnc2.hyperspherical_uniformity")
DUALITY = ("nc3.self_duality", "unc3.uniform_duality")
_INSTEAD = {"gnc2.uncentred_uniformity": "gnc2.hyperspherical_uniformity"}  # where a table has only Eq. 7


@figure(
    "loss",
    title="Neural collapse and validation loss",
    needs=["val_loss"],
    source="Wu & Papyan 2024, Figure 1",
)
def loss(results: Results) -> Drawing:
    """NC1, GNC2, UNC3 and NC4 against validation loss, coloured by size, with R² (of log CDNV)."""
    return against_loss(results, FOUR)


@figure(
    "geometry",
    title="Norms and angles of class means, and validation loss",
    needs=["val_loss"],
    source="measurements of Wu & Papyan 2024, Eqs. 5 to 7",
)
def geometry(results: Results) -> Drawing:
    """Equinormness, angles (their std and CoV) and hyperspherical uniformity against validation loss, with R²."""
    return against_loss(results, GEOMETRY)


@figure(
    "duality",
    title="Duality of classifier and class means, and validation loss",
    needs=["val_loss"],
    source="measurements of Wu & Papyan 2024, NC3 and UNC3",
)
def duality(results: Results) -> Drawing:
    """Self-duality (NC3) and uniform duality (UNC3) against validation loss, with R²."""
    return against_loss(results, DUALITY)


def against_loss(results: Results, names: Sequence[str]) -> Drawing:
    """Draw measurements against validation loss, a panel each.

    Raises:
        CollapseError: The table has none of them, or no losses.
    """
    whole = measured(results, needs=["val_loss"])
    present = list(dict.fromkeys(each for name in names for each in _there(whole, name)))
    if not present:
        raise CollapseError(f"needs one of {', '.join(names)}, of which the table has no value")
    frame = whole.dropna(subset=present, how="all")
    if len(frame) < 2:
        raise CollapseError("needs two models or more, with a loss and a measurement, and there is 1")
    colour = colour_of(frame)
    panels = linked([_panel(frame, name, colour) for name in present], colour)
    columns = ["model", "val_loss", *present, *([colour.column] if colour else []), "corpus"]
    rows = records(frame, columns)
    spec = together(panels, rows, colour=colour)
    said = f"coloured by {colour.title}" if colour and colour.column != "called" else "a colour per model"
    caption = (
        f"{' and '.join([', '.join(present[:-1]), present[-1]]) if len(present) > 1 else present[0]} against "
        f"validation loss of {counted(models_in(frame), 'model')}{', ' + said if colour else ''}. R² is the square of "
        f"Pearson's correlation with the loss{' (of log CDNV)' if _is_of_log(frame, present) else ''}."
    )
    caption += caution(frame)
    crossing = [name for name in present if mean_crosses_0(frame, name)]
    caption += f" No R² is given of {' and '.join(crossing)}, a CoV whose mean crosses 0." if crossing else ""
    absent = [name for name in names if not _there(whole, name)]
    notes = (f"not in the table: {', '.join(absent)}",) if absent else ()
    return Drawing(spec, caption, notes=(*remarks(frame, len(results) - len(frame)), *notes))


def _is_of_log(frame: "pd.DataFrame", names: Sequence[str]) -> bool:
    return "nc1.cdnv" in names and logged(frame, "nc1.cdnv")


def _there(frame: "pd.DataFrame", name: str) -> list[str]:
    return having(frame, [name]) or having(frame, [_INSTEAD.get(name, name)])


def _panel(frame: "pd.DataFrame", name: str, colour: Colour | None) -> Any:
    import altair as alt

    about = shown(name)
    log = logged(frame, name)
    values = np.log(frame[name]) if log else frame[name]
    fits = None if mean_crosses_0(frame, name) else r_squared(values, frame["val_loss"])
    hover = [
        alt.Tooltip("model:N"),
        alt.Tooltip("val_loss:Q", format=".4f"),
        alt.Tooltip(f"{field(name)}:Q", title=name),
    ]
    if colour and colour.column != "called":
        hover.append(alt.Tooltip(field(colour.column), type=colour.kind, title=colour.title))
    encoding = {
        "x": axis("x", "val_loss", frame["val_loss"]),
        "y": axis("y", name, frame[name], log=log),
        "tooltip": hover,
        **coloured(colour),
    }
    if len(corpora_of(frame)) > 1:
        encoding["shape"] = alt.Shape(
            "corpus:N", title="corpus", legend=alt.Legend(columns=1, labelLimit=220, titleOrient="top")
        )
    title = headed(about.title, f"R² = {fits:.3f}" if fits is not None else "")
    return alt.Chart(title=title).mark_point().encode(**encoding)
