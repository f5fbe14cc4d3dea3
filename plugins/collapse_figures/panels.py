"""Panels in Vega-Altair: one measurement per panel, side by side, with selections that link panels on screen."""

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from collapse.plugin.plugin_manager import plugins
from collapse_figures.tables import Colour, field, one_of, records, shown

if TYPE_CHECKING:
    import pandas as pd

_PADDING = 4  # points between the outermost values and the ends of an axis: half the height of a label
_LINE = {"point": {"size": 10, "strokeWidth": 0}, "strokeWidth": 0.8}


def axis(channel: str, name: str, numbers: Iterable[Any], *, title: str = "", log: bool = False, **more: Any) -> Any:
    """Return the Vega-Altair channel ("x" or "y") that draws the column ``name``.

    The axis spans ``numbers``; ``more`` contains further options of the axis.
    """
    import altair as alt

    known = [float(each) for each in numbers if each == each and (each > 0 or not log)]
    ends = [min(known, default=0.0), max(known, default=1.0)]  # explicit: a panel with missing rows would lack ticks
    scale = alt.Scale(domain=ends, nice=False, padding=_PADDING, **({"type": "log"} if log else {"zero": False}))
    labels: dict[str, Any] = {"tickCount": 4, "grid": not log}  # a log axis has too many ticks for grid lines
    if ends[0] == ends[1]:  # Vega would not say which value this is
        labels |= {"values": ends[:1], "format": ".6~g"}
    kind, about = {"x": alt.X, "y": alt.Y}[channel], title or shown(name).axis
    return kind(field(name), type="quantitative", title=about, scale=scale, axis=alt.Axis(**labels | more))


def logged(frame: "pd.DataFrame", name: str) -> bool:
    """Return whether a measurement is drawn on a log axis.

    All its values must be positive, and its entry in :data:`MEASUREMENTS` must have ``log=True``.
    """
    return shown(name).log and bool((frame[name].dropna() > 0).all())


def panel(
    frame: "pd.DataFrame",
    name: str,
    x: Any,
    *,
    colour: Colour | None = None,
    lines: Sequence[str] | None = None,
    hover: Sequence[str] = ("model",),
    below: str = "",
    **more: Any,
) -> Any:
    """Return a panel that draws a measurement against the Vega-Altair channel ``x``, as points or as lines with points.

    If ``lines`` is None, points are drawn. Otherwise, rows with the same colour and equal values in the columns
    ``lines`` form a line. The tooltip shows the columns ``hover``; ``below`` is the text below the title, and ``more``
    contains other channels of Vega-Altair.
    """
    import altair as alt

    channels: dict[str, Any] = {
        "x": x,
        "y": axis("y", name, frame[name], log=logged(frame, name)),
        "detail": [alt.Detail(f"{field(each)}:N") for each in lines or ()],
        "tooltip": [*(f"{each}:N" for each in hover), alt.Tooltip(f"{field(name)}:Q", title=name, format=".4g")],
    }
    chart = alt.Chart(title=headed(shown(name).title, below))
    marked = chart.mark_point() if lines is None else chart.mark_line(**_LINE)
    return marked.encode(**channels | coloured(colour) | more)


def headed(title: str, below: str) -> Any:
    """Return the title of a panel with a line of text below it."""
    import altair as alt

    return alt.TitleParams(title, subtitle=below or alt.Undefined)


def coloured(colour: Colour | None) -> dict[str, Any]:
    """Return the "color" channel of Vega-Altair; an empty dictionary without a colour."""
    import altair as alt

    if colour is None:
        return {}
    scale, legend = alt.Undefined, alt.Legend(labelExpr="datum.value === null ? 'not given' : datum.label")
    if colour.kind == "nominal":
        legend = alt.Legend(columns=1, labelLimit=220, titleOrient="top")
    elif colour.kind == "quantitative":
        scale, legend = alt.Scale(type="log"), alt.Legend(format="~s", gradientLength=90)
    title = colour.title or None
    return {"color": alt.Color(field(colour.column), type=colour.kind, title=title, scale=scale, legend=legend)}


def curves(
    frame: "pd.DataFrame",
    names: Sequence[str],
    x: Any,
    along: str,
    colour: Colour | None,
    lines: Sequence[str],
    *,
    hover: Sequence[str] = ("model",),
    collapsed: bool = False,
    **more: Any,
) -> dict[str, Any]:
    """Return the specification of curves along the column ``along``, with a panel for each measurement with a number.

    ``x`` is the Vega-Altair channel that draws this column. Rows with the same colour, the same ``--min-count`` and
    equal values in the columns ``lines`` form a curve. With ``collapsed``, a straight line shows the value at full
    collapse. ``more`` contains other channels of Vega-Altair.
    """
    present = one_of(frame, names)
    limits = ["min_count"] if "min_count" in frame and frame["min_count"].nunique() > 1 else []
    panels = [panel(frame, name, x, colour=colour, lines=[*lines, *limits], hover=hover, **more) for name in present]
    if collapsed:
        panels = [_beside_limit(each, frame, name) for each, name in zip(panels, present, strict=True)]
    return together(panels, records(frame, [*hover, along, *lines, *limits, *present], colour))


def _beside_limit(chart: Any, frame: "pd.DataFrame", name: str) -> Any:
    """Add a line at a measurement's value at full collapse, unless the line would lengthen the axis by half or more."""
    import altair as alt

    known, values = plugins().measurements(), frame[name].dropna()
    limit = known[name if name in known else name.removeprefix("val_")][1].towards
    low, high = values.min(), values.max()
    if not isinstance(limit, int | float) or logged(frame, name) or 2 * max(low - limit, limit - high) >= high - low:
        return chart
    y = axis("y", name, [*values, limit])
    at = alt.datum(limit, type="quantitative", axis=y["axis"])  # without this axis, the panel would lose ticks
    rule = alt.Chart().mark_rule().transform_aggregate(rows="count()").encode(y=at)
    return alt.layer(chart.encode(y=y), rule)


def together(
    panels: Sequence[Any],
    rows: list[dict[str, Any]] | None = None,
    *,
    columns: int = 4,
    linked: bool = False,
    colour: Colour | None = None,
) -> dict[str, Any]:
    """Return the specification of panels side by side.

    Args:
        panels: Charts.
        rows: The data of all panels; None if each has its own data.
        columns: Maximum number of panels side by side.
        linked: If true, a selection applies to all panels. Points fade if the brush or the legend does not select them.
        colour: The colour of the points. With ``linked``, its legend also selects points, unless it is quantitative.
    """
    import altair as alt

    data = alt.Undefined if rows is None else alt.InlineData(values=rows)
    params: list[dict[str, Any]] = []
    if linked:  # name the selections, because the names that Altair chooses differ between processes
        params = [{"name": "brush", "select": {"type": "interval"}}]
        if colour is not None and colour.kind != "quantitative":
            of_legend = {"type": "point", "fields": [field(colour.column)]}
            params.append({"name": "picked", "select": of_legend, "bind": "legend"})
        chosen = alt.when(*(alt.param(each["name"]) for each in params))
        faded = chosen.then(alt.value(1)).otherwise(alt.value(0.08))
        panels = [each.encode(opacity=faded).properties(name=f"panel_{at}") for at, each in enumerate(panels)]
    spec = specification(alt.concat(*panels, data=data, columns=columns).resolve_scale(color="shared"))
    views = [each.get("name") for each in spec["concat"]]
    return spec | ({"params": [{**each, "views": views} for each in params]} if params else {})


def specification(chart: Any) -> dict[str, Any]:
    """Return a chart as a dictionary, without Altair's default sizes, because the caller chooses the sizes."""
    import altair as alt

    with alt.data_transformers.enable("default", max_rows=None), alt.theme.enable("none"):
        made: dict[str, Any] = chart.to_dict(validate=False)  # validation is slow, and a test renders every figure
    return made
