"""Validation loss and GNC2 against the effective dimension of class means."""

import numpy as np

from collapse import Drawing, Results, figure
from collapse.plugin.metrics import limit_at
from collapse.plugin.plugin_manager import plugins
from collapse_figures.panels import axis, headed, panel, together
from collapse_figures.tables import (
    caution,
    colour_of,
    drawn_in,
    having,
    measured,
    models,
    r_squared,
    records,
    remarks,
    shown,
)

D_EFF = "nc2.effective_dimension"


@figure("dimension", title="Effective dimension of class means", needs=["val_loss", D_EFF])
def dimension(results: Results) -> Drawing:
    """Loss against effective dimension d_eff, with a fitted line; GNC2 against d_eff, with GNC2 of uniform points."""
    import altair as alt

    frame = measured(results, needs=["val_loss", D_EFF])
    log_d, loss = np.log(frame[D_EFF]), frame["val_loss"]
    fit = r_squared(log_d, loss)
    frame["fitted"] = np.nan if fit is None else np.poly1d(np.polyfit(log_d, loss, 1))(log_d)
    present = having(frame, drawn_in("dimension")) if "classes" in frame else []
    if present:
        pairs = zip(frame["classes"], frame[D_EFF], strict=True)
        limit = plugins().measurements()[present[0]][1].reachable
        frame["uniform"] = [limit_at(limit, int(c), d) if c > 0 and d >= 3 else None for c, d in pairs]  # pole at d=2
    colour, x = colour_of(frame), axis("x", D_EFF, frame[D_EFF], log=True)
    lines = {"val_loss": ("fitted", f"R² = {fit:.3f}, of log d_eff" if fit is not None else "")}
    lines |= dict.fromkeys(present, ("uniform", "line: uniform points"))
    panels = []
    for name, (line, below) in lines.items():
        y = axis("y", name, [*frame[name], *frame[line].dropna()])
        points = panel(frame, name, x, colour=colour, y=y)
        points.title = alt.Undefined
        drawn = alt.Chart().mark_line(strokeWidth=0.8).encode(x=x, y=alt.Y(f"{line}:Q", title=shown(name).axis))
        panels.append(alt.layer(points, drawn, title=headed(shown(name).title, below)))
    caption = (
        f"Validation loss{' and the CoV of GNC2' if present else ''} of {models(frame)} against the effective "
        "dimension of their class means, d_eff = 1/(mean squared cosine). The line of the loss is fitted to all models "
        f"together.{' The line of GNC2 is the value of uniform points in d_eff ≥ 3 dimensions.' if present else ''}"
        f"{caution(frame)}"
    )
    spec = together(panels, records(frame, ["model", "val_loss", D_EFF, "fitted", *present, "uniform"], colour))
    return Drawing(spec, caption, notes=remarks(frame, len(results) - len(frame)))
