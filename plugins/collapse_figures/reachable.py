"""Measurements as multiples of what C classes in d dimensions can reach."""

import math
from typing import TYPE_CHECKING, Any

from collapse import CollapseError, Drawing, Results, figure
from collapse.errors import counted
from collapse.plugin.metrics import limit_at
from collapse.plugin.plugin_manager import plugins
from collapse_figures.labels import shown
from collapse_figures.panels import axis, coloured, specification
from collapse_figures.tables import colour_of, field, having, measured, remarks

if TYPE_CHECKING:
    import pandas as pd


@figure("reachable", title="Measurements as multiples of what is reachable", needs=["classes", "dim"])
def reachable(results: Results) -> Drawing:
    """Headline measurements divided by the value that C classes in d dimensions can reach, a mark per model."""
    import altair as alt

    frame = measured(results, needs=["classes", "dim"])
    colour = colour_of(frame)
    rows: list[dict[str, Any]] = []
    for name in _limited(frame):
        _, measure = plugins().measurements()[name]
        limit = measure.towards if measure.reachable is None else measure.reachable
        for row in frame.dropna(subset=[name]).to_dict("records"):
            at = limit_at(limit, int(row["classes"]), int(row["dim"]))
            if at is None or not math.isfinite(at) or at == 0:
                continue
            made = {
                "model": row["model"],
                "measurement": shown(name).title,
                "name": name,
                "value": row[name],
                "limit": at,
                "ratio": row[name] / at,
            }
            rows.append(made | ({field(colour.column): row[colour.column]} if colour else {}))
    if not rows:
        raise CollapseError("no headline measurement of the table has a reachable value other than 0")
    ratios = [row["ratio"] for row in rows]
    log = min(ratios) > 0 and max(ratios) > 10 * min(ratios)
    x = axis("x", "ratio", [*ratios, 1.0], title="value ÷ reachable", log=log)
    marks = (
        alt.Chart()
        .mark_tick(thickness=1.2, opacity=1)
        .encode(
            x=x,
            y=alt.Y("measurement:N", title=None),
            tooltip=[
                "model:N",
                "name:N",
                *(alt.Tooltip(f"{each}:Q", format=".4g") for each in ("value", "limit", "ratio")),
            ],
            **coloured(colour),
        )
    )
    rule = alt.Chart().mark_rule().encode(x=alt.datum(1, type="quantitative", title="value ÷ reachable"))
    chart = alt.layer(marks, rule, data=alt.InlineData(values=rows))
    models = counted(len({row["model"] for row in rows}), "model")
    caption = (
        f"Measurements of {models} divided by the value that their C classes in d dimensions can reach "
        "(that of full collapse where the two are equal). The dashed line is 1. "
        "That of GNC2 is the value of uniform random points, which is no bound and shows no collapse."
    )
    return Drawing(specification(chart), caption, notes=remarks(frame, len(results) - len(frame)))


def _limited(frame: "pd.DataFrame") -> list[str]:
    """Return the headlines, and others that say how near they are to a limit, which the table has."""
    wanted = [*plugins().headlines(), "nc2.etf_error", "nc3.duality_error"]
    known = plugins().measurements()
    return sorted(name for name in having(frame, wanted) if name in known)
