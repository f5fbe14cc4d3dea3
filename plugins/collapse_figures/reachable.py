"""Draw measurements divided by the values that C classes in d dimensions can reach."""

import math
from typing import Any

from collapse import CollapseError, Drawing, Results, figure
from collapse.errors import counted
from collapse.plugin.metrics import limit_at
from collapse.plugin.plugin_manager import plugins
from collapse_figures.panels import axis, coloured, specification
from collapse_figures.tables import colour_of, field, having, measured, remarks, shown

_NEAR_A_LIMIT = ("nc2.etf_error", "nc3.duality_error")  # not headlines, but they show the distance to a limit


@figure("reachable", title="Measurements as multiples of what is reachable", needs=["classes", "dim"])
def reachable(results: Results) -> Drawing:
    """Headline measurements divided by the value that C classes in d dimensions can reach, a mark per model."""
    import altair as alt

    frame, known = measured(results, needs=["classes", "dim"]), plugins().measurements()
    colour = colour_of(frame)
    rows: list[dict[str, Any]] = []
    for name in sorted(each for each in having(frame, [*plugins().headlines(), *_NEAR_A_LIMIT]) if each in known):
        for row in frame.dropna(subset=[name]).to_dict("records"):
            if limit := reachable_value(name, int(row["classes"]), int(row["dim"])):
                made = {"model": row["model"], "measurement": shown(name).title, "name": name}
                made |= {"value": row[name], "limit": limit, "ratio": row[name] / limit}
                rows.append(made | ({field(colour.column): row[colour.column]} if colour else {}))
    if not rows:
        raise CollapseError(
            "this figure needs a measurement that collapse measure prints by default, and whose reachable value is not "
            "0: use collapse measure without --metrics"
        )
    ratios = [row["ratio"] for row in rows]
    log = min(ratios) > 0 and max(ratios) > 10 * min(ratios)
    hover = ["model:N", "name:N", *(alt.Tooltip(f"{each}:Q", format=".4g") for each in ("value", "limit", "ratio"))]
    x = axis("x", "ratio", [*ratios, 1.0], title="value ÷ reachable", log=log)
    y = alt.Y("measurement:N", title=None)
    marks = alt.Chart().mark_tick(thickness=1.2, opacity=1).encode(x=x, y=y, tooltip=hover, **coloured(colour))
    rule = alt.Chart().mark_rule().encode(x=alt.datum(1, type="quantitative", title="value ÷ reachable"))
    chart = alt.layer(marks, rule, data=alt.InlineData(values=rows))
    caption = (
        f"Measurements of {counted(len({row['model'] for row in rows}), 'model')} divided by the value that their C "
        "classes in d dimensions can reach. The dashed line is 1."
    )
    if (frame["classes"] > frame["dim"] + 1).any():  # otherwise it is the value of a simplex, which is a bound
        caption += " For GNC2, this value is that of uniform random points: it is not a bound, and no sign of collapse."
    return Drawing(specification(chart), caption, notes=remarks(frame, len(results) - len(frame)))


def reachable_value(name: str, classes: int, dim: int) -> float | None:
    """Return the value of a measurement that C classes in d dimensions can reach; None if it is not finite."""
    _, measure = plugins().measurements()[name]
    found = limit_at(measure.towards if measure.reachable is None else measure.reachable, classes, dim)
    return found if found is not None and math.isfinite(found) else None
