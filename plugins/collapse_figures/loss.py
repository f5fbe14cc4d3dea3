"""Properties of collapse against validation loss, a point per model: the four panels of Figure 1, and others."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from collapse import CollapseError, Drawing, Results, figure
from collapse.measurement.comparing import corpora_of
from collapse_figures.panels import axis, logged, panel, together
from collapse_figures.tables import (
    Colour,
    caution,
    colour_of,
    drawn_in,
    having,
    mean_crosses_0,
    measured,
    models,
    one_of,
    r_squared,
    records,
    remarks,
)

if TYPE_CHECKING:
    import pandas as pd


@figure("loss", title="Neural collapse and validation loss", needs=["val_loss"], source="Wu & Papyan 2024, Figure 1")
def loss(results: Results) -> Drawing:
    """NC1, GNC2, UNC3 and NC4 against validation loss, coloured by size, with R² (of log CDNV)."""
    return _against_loss(results, drawn_in("loss"))


@figure(
    "geometry",
    title="Norms and angles of class means, and validation loss",
    needs=["val_loss"],
    source="measurements of Wu & Papyan 2024, Eqs. 5 to 7",
)
def geometry(results: Results) -> Drawing:
    """Equinormness, angles (their std and CoV) and hyperspherical uniformity against validation loss, with R²."""
    return _against_loss(results, drawn_in("geometry"))


@figure(
    "duality",
    title="Duality of classifier and class means, and validation loss",
    needs=["val_loss"],
    source="measurements of Wu & Papyan 2024, NC3 and UNC3",
)
def duality(results: Results) -> Drawing:
    """Self-duality (NC3) and uniform duality (UNC3) against validation loss, with R²."""
    return _against_loss(results, drawn_in("duality"))


def _against_loss(results: Results, names: Sequence[str]) -> Drawing:
    whole = measured(results, needs=["val_loss"])
    present = one_of(whole, names)
    frame = whole.dropna(subset=present, how="all")
    if len(frame) < 2:
        raise CollapseError("needs two models or more, with a loss and a measurement, and there is 1")
    colour = colour_of(frame)
    columns = ["model", "val_loss", *present, *([colour.column] if colour else []), "corpus"]
    panels = [_panel(frame, name, colour) for name in present]
    spec = together(panels, records(frame, columns), linked=True, colour=colour)
    said = f", coloured by {colour.title}" if colour and colour.column != "called" else ", a colour per model"
    of_log = " (of log CDNV)" if "nc1.cdnv" in present and logged(frame, "nc1.cdnv") else ""
    listed = " and ".join([", ".join(present[:-1]), present[-1]]) if len(present) > 1 else present[0]
    caption = (
        f"{listed} against validation loss of {models(frame)}{said if colour else ''}. R² is the square of Pearson's "
        f"correlation with the loss{of_log}.{caution(frame)}"
    )
    crossing = [name for name in present if mean_crosses_0(frame, name)]
    caption += f" No R² is given of {' and '.join(crossing)}, a CoV whose mean crosses 0." if crossing else ""
    absent = [name for name in names if not having(whole, [name])]
    notes = (f"not in the table: {', '.join(absent)}",) if absent else ()
    return Drawing(spec, caption, notes=(*remarks(frame, len(results) - len(frame)), *notes))


def _panel(frame: "pd.DataFrame", name: str, colour: Colour | None) -> Any:
    import altair as alt

    values = np.log(frame[name]) if logged(frame, name) else frame[name]
    fits = None if mean_crosses_0(frame, name) else r_squared(values, frame["val_loss"])
    shape = {}
    if len(corpora_of(frame)) > 1:
        legend = alt.Legend(columns=1, labelLimit=220, titleOrient="top")
        shape["shape"] = alt.Shape("corpus:N", title="corpus", legend=legend)
    below = f"R² = {fits:.3f}" if fits is not None else ""
    return panel(frame, name, axis("x", "val_loss", frame["val_loss"]), colour=colour, below=below, **shape)
