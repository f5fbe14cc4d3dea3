"""The effective dimension of class means: validation loss against it, and GNC2 against what it lets expect."""

from typing import TYPE_CHECKING, Any

import numpy as np

from collapse import Drawing, Results, figure
from collapse.errors import counted
from collapse.plugin.metrics import limit_at
from collapse.plugin.plugin_manager import plugins
from collapse_figures.labels import shown
from collapse_figures.panels import axis, coloured, headed, together
from collapse_figures.tables import (
    Colour,
    caution,
    colour_of,
    field,
    having,
    measured,
    models_in,
    r_squared,
    records,
    remarks,
)

if TYPE_CHECKING:
    import pandas as pd

D_EFF = "nc2.effective_dimension"
_UNIFORMITY = ("gnc2.hyperspherical_uniformity", "gnc2.uncentred_uniformity")
_LINE, _CURVE = "fitted", "uniform"


@figure("dimension", title="Effective dimension of class means", needs=["val_loss", D_EFF])
def dimension(results: Results) -> Drawing:
    """Loss against effective dimension d_eff with one line for all models; GNC2 with that of d_eff dimensions."""
    frame = measured(results, needs=["val_loss", D_EFF])
    log_d, loss = np.log(frame[D_EFF]), frame["val_loss"]
    fits = r_squared(log_d, loss)
    frame[_LINE] = np.nan if fits is None else np.poly1d(np.polyfit(log_d, loss, 1))(log_d)
    present = having(frame, _UNIFORMITY) if "classes" in frame else []
    if present:
        pairs = zip(frame["classes"], frame[D_EFF], strict=True)
        limit = plugins().measurements()[present[0]][1].reachable
        frame[_CURVE] = [limit_at(limit, int(c), d) if c > 0 and d >= 3 else None for c, d in pairs]  # a pole at d = 2
    colour = colour_of(frame)
    below = f"R² = {fits:.3f}, of log d_eff" if fits is not None else ""
    panels = [_panel(frame, "val_loss", _LINE, below, colour)]
    panels += [_panel(frame, name, _CURVE, "line: uniform points", colour) for name in present]
    columns = ["model", "val_loss", D_EFF, _LINE, *present, _CURVE, *([colour.column] if colour else [])]
    models = counted(models_in(frame), "model")
    caption = (
        f"Validation loss{' and the CoV of GNC2' if present else ''} of {models} against the effective dimension of "
        "their class means, d_eff = 1/(mean squared cosine). The line of the loss is fitted to all models together."
        f"{' That of GNC2 is the value of uniform points in d_eff dimensions, from 3 on.' if present else ''}"
        f"{caution(frame)}"
    )
    spec = together(panels, records(frame, columns))
    return Drawing(spec, caption, notes=remarks(frame, len(results) - len(frame)))


def _panel(frame: "pd.DataFrame", name: str, line: str, below: str, colour: Colour | None) -> Any:
    import altair as alt

    about = shown(name)
    x = axis("x", D_EFF, frame[D_EFF], log=True)
    y = axis("y", name, [*frame[name], *frame[line].dropna()])
    hover = [alt.Tooltip("model:N"), *(alt.Tooltip(f"{field(each)}:Q", title=each) for each in (D_EFF, name))]
    points = alt.Chart().mark_point().encode(x=x, y=y, tooltip=hover, **coloured(colour))
    drawn = alt.Chart().mark_line(strokeWidth=0.8).encode(x=x, y=alt.Y(f"{line}:Q", title=about.axis))
    return alt.layer(points, drawn, title=headed(about.title, below))
