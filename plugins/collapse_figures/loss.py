"""Properties of collapse against validation loss, with a point per model: the four panels of Figure 1, and others."""

from collections.abc import Sequence

import numpy as np

from collapse import CollapseError, Drawing, Results, figure
from collapse_figures.panels import axis, logged, panel, together
from collapse_figures.tables import caution, colour_of, drawn_in, measured, models, one_of, r_squared, records, remarks


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
        raise CollapseError("needs at least two models with a loss and a measurement, got 1")
    colour, x = colour_of(frame), axis("x", "val_loss", frame["val_loss"])
    logs = {name: np.log(frame[name]) if logged(frame, name) else frame[name] for name in present}
    fits = {name: r_squared(values, frame["val_loss"]) for name, values in logs.items()}
    said = {name: f"R² = {fit:.3f}" if fit is not None else "" for name, fit in fits.items()}
    panels = [panel(frame, name, x, colour=colour, below=said[name]) for name in present]
    spec = together(panels, records(frame, ["model", "val_loss", *present], colour), linked=True, colour=colour)
    by = f", coloured by {colour.title}" if colour and colour.column != "called" else ", a colour per model"
    of_log = " (of log CDNV)" if "nc1.cdnv" in present and logged(frame, "nc1.cdnv") else ""
    listed = " and ".join([", ".join(present[:-1]), present[-1]]) if len(present) > 1 else present[0]
    caption = (
        f"{listed} against validation loss of {models(frame)}{by if colour else ''}. R² is the square of Pearson's "
        f"correlation with the loss{of_log}.{caution(frame)}"
    )
    absent = [name for name in names if name not in present]
    notes = (f"not in the table: {', '.join(absent)}",) if absent else ()
    return Drawing(spec, caption, notes=(*remarks(frame, len(results) - len(frame)), *notes))
