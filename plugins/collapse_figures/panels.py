"""Panels in Vega-Altair: axes, colours, and the selections that link panels on a screen and do nothing in print."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from collapse_figures.labels import shown
from collapse_figures.tables import Colour, field

if TYPE_CHECKING:
    import altair as alt

BRUSH, PICKED = "brush", "picked"
"""Names of the selections."""


def axis(channel: str, name: str, *, title: str = "", log: bool = False, **scale: Any) -> Any:
    """Return an axis of numbers, with a title; a log axis shows few, round ticks.

    Args:
        channel: "x" or "y".
        name: A column, as in the table.
        title: Another title than the measurement's.
        log: On a log scale.
        **scale: More about the scale, such as ``base=2``.
    """
    import altair as alt

    kind = {"type": "log", "nice": False} if log else {"zero": False}
    ticks: dict[str, Any] = {"format": "~g", "tickCount": 3} if log else {"tickCount": 4}
    return {"x": alt.X, "y": alt.Y}[channel](
        field(name),
        type="quantitative",
        title=title or shown(name).axis,
        scale=alt.Scale(**{**kind, **scale}),
        axis=alt.Axis(**ticks),
    )


def coloured(colour: Colour | None) -> dict[str, Any]:
    """Return the encoding of a colour, if there is one."""
    import altair as alt

    if colour is None:
        return {}
    scale = alt.Scale(type="log") if colour.kind == "quantitative" else alt.Undefined
    legend = alt.Legend(columns=2, symbolLimit=8, labelLimit=90) if colour.kind == "nominal" else alt.Legend()
    if colour.kind == "quantitative":
        legend = alt.Legend(format="~s", gradientLength=90)
    return {"color": alt.Color(field(colour.column), type=colour.kind, title=colour.title, scale=scale, legend=legend)}


def linked(panels: Sequence["alt.Chart"], colour: Colour | None) -> list["alt.Chart"]:
    """Return panels whose points fade unless they are in the brush and chosen in the legend (see :func:`together`)."""
    import altair as alt

    chosen = alt.when(alt.selection_interval(name=BRUSH))
    if _is_listed(colour):
        chosen = alt.when(alt.selection_interval(name=BRUSH), alt.selection_point(name=PICKED))
    faded = chosen.then(alt.value(0.85)).otherwise(alt.value(0.08))
    return [panel.encode(opacity=faded).properties(name=f"panel_{index}") for index, panel in enumerate(panels)]


def together(
    panels: Sequence[Any], rows: list[dict[str, Any]], *, columns: int = 4, colour: Colour | None = None
) -> dict[str, Any]:
    """Return the specification of panels side by side, all of the same rows.

    Panels of :func:`linked` get their selections here, once for all of them: one that each panel brings would be
    merged by Altair with a warning, and named differently in each process.

    Args:
        panels: Charts without data.
        rows: The data.
        columns: Panels side by side, at most.
        colour: What gives the points of linked panels their colour.
    """
    import altair as alt

    chart = alt.concat(*panels, data=alt.InlineData(values=rows), columns=columns).resolve_scale(color="shared")
    spec = specification(chart)
    views = [each["name"] for each in spec["concat"] if "name" in each]
    if views:
        spec["params"] = [{"name": BRUSH, "select": {"type": "interval"}, "views": views}]
        if colour is not None and _is_listed(colour):
            fields = {"type": "point", "fields": [field(colour.column)]}
            spec["params"].append({"name": PICKED, "select": fields, "bind": "legend", "views": views})
    return spec


def _is_listed(colour: Colour | None) -> bool:
    """Whether the legend lists values that can be chosen."""
    return colour is not None and colour.kind != "quantitative"


def specification(chart: Any) -> dict[str, Any]:
    """Return a chart as a dictionary without the sizes that Altair adds: who shows a figure chooses them."""
    import altair as alt

    with alt.data_transformers.enable("default", max_rows=None), alt.theme.enable("none"):
        made: dict[str, Any] = chart.to_dict()
    return made
