"""Properties of collapse against validation loss, with a point per model: the four panels of Figure 1, and others."""

from collections.abc import Sequence

import numpy as np

from collapse import CollapseError, Drawing, Results, figure
from collapse.core.steps import run_and_step
from collapse_figures.panels import axis, curves, logged, panel, together
from collapse_figures.tables import caution, colour_of, drawn_in, measured, models, one_of, r_squared, records, remarks

_TIMES = ("step", "checkpoint")
"""If one of these columns is on the x-axis, a line joins the rows of each run."""


@figure("loss", title="Neural collapse and validation loss", needs=["val_loss"], source="Wu & Papyan 2024, Figure 1")
def loss(results: Results, *, columns: Sequence[str] = (), against: str = "val_loss") -> Drawing:
    """NC1, GNC2, UNC3 and NC4 against validation loss, coloured by size, with R² (for NC1, of log CDNV).

    ``collapse.plot`` also uses this figure for other columns, and for an x-axis other than the loss.
    """
    return _against(results, columns or drawn_in("loss"), against)


@figure(
    "geometry",
    title="Norms and angles of class means, and validation loss",
    needs=["val_loss"],
    source="measurements of Wu & Papyan 2024, Eqs. 5 to 7",
)
def geometry(results: Results) -> Drawing:
    """Equinormness, angles (their std and CoV) and hyperspherical uniformity against validation loss, with R²."""
    return _against(results, drawn_in("geometry"))


@figure(
    "duality",
    title="Duality of classifier and class means, and validation loss",
    needs=["val_loss"],
    source="measurements of Wu & Papyan 2024, NC3 and UNC3",
)
def duality(results: Results) -> Drawing:
    """Self-duality (NC3) and uniform duality (UNC3) against validation loss, with R²."""
    return _against(results, drawn_in("duality"))


def _against(results: Results, names: Sequence[str], against: str = "val_loss") -> Drawing:
    whole = measured(results, needs=[against])
    present = one_of(whole, names)
    frame = whole.dropna(subset=present, how="all")
    if len(frame) < 2:
        raise CollapseError(
            f"this figure needs at least two models that have both {against} and a measurement, got 1: give more models"
        )
    called, again = ("validation loss", "the loss") if against == "val_loss" else (against, against)
    listed = " and ".join([", ".join(present[:-1]), present[-1]]) if len(present) > 1 else present[0]
    absent = [name for name in names if name not in present]
    notes = remarks(frame, len(results) - len(frame)) + ((f"not in the table: {', '.join(absent)}",) if absent else ())
    x = axis("x", against, frame[against], log=logged(frame, against))
    if against in _TIMES:
        frame = frame.assign(run=[run_and_step(str(model))[0] for model in frame["model"]])
        spec = curves(frame, present, x, against, colour_of(frame, names="run"), ["run"])
        return Drawing(spec, f"{listed} against {called}, a line per run.", notes=notes)
    colour = colour_of(frame)
    logs = {name: np.log(frame[name]) if logged(frame, name) else frame[name] for name in (*present, against)}
    fits = {name: r_squared(logs[name], logs[against]) for name in present}
    said = {name: f"R² = {fit:.3f}" if fit is not None else "" for name, fit in fits.items()}
    panels = [panel(frame, name, x, colour=colour, below=said[name]) for name in present]
    spec = together(panels, records(frame, ["model", against, *present], colour), linked=True, colour=colour)
    by = ""
    if colour:
        by = ", a colour per model" if colour.column == "called" else f", coloured by {colour.title}"
    of = ", ".join(f"log {'CDNV' if name == 'nc1.cdnv' else name}" for name in logs if logged(frame, name))
    of = f" (of {of})" if of else ""
    caption = (
        f"{listed} against {called} of {models(frame)}{by}. R² is the square of Pearson's correlation with "
        f"{again}{of}.{caution(frame)}"
    )
    return Drawing(spec, caption, notes=notes)
