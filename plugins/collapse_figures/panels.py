"""Panels in Vega-Altair: axes, colours, and the selections that link panels on a screen and do nothing in print."""

import math
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from collapse_figures.labels import shown
from collapse_figures.tables import Colour, field

if TYPE_CHECKING:
    import altair as alt
    import pandas as pd

BRUSH, PICKED = "brush", "picked"
"""Names of the selections."""

_DECADE = 10
_PADDING = 4  # points between the outermost values and the ends of an axis: half the height of a label
_LARGE, _DIGITS = 10_000, 4  # larger numbers, and such with more digits behind the point, are written shorter


def axis(channel: str, name: str, values: Iterable[Any], *, title: str = "", log: bool = False, **scale: Any) -> Any:
    """Return an axis of numbers, with a title.

    Args:
        channel: "x" or "y".
        name: A column, as in the table.
        values: Its values.
        title: Another title than the measurement's.
        log: On a log scale.
        **scale: More about the scale, such as ``base=2``.
    """
    import altair as alt

    known = [float(each) for each in values if each == each]
    # Ticks inside the range of the values, which is padded, keep labels within their panel: titles are in line.
    kind: dict[str, Any] = {"type": "log"} if log else {"zero": False}
    kind |= {"nice": False, "padding": _PADDING}
    ticks: dict[str, Any] = {"values": log_ticks(known), "format": log_format(known)} if log else linear_ticks(known)
    if len(set(known)) == 1:  # Vega would label the only tick with a rounded number
        kind |= {"domain": [known[0] / 2, known[0] * 2] if log else [known[0] - 0.5, known[0] + 0.5], "nice": False}
        ticks = {"values": known[:1], "format": ".3~g"}
    return {"x": alt.X, "y": alt.Y}[channel](
        field(name),
        type="quantitative",
        title=title or shown(name).axis,
        scale=alt.Scale(**{**kind, **scale}),
        axis=alt.Axis(**ticks),
    )


def linear_ticks(values: Iterable[float]) -> dict[str, Any]:
    """Return even ticks between the least and the largest of some values, and their format: as many digits each.

    >>> linear_ticks([0.06, 0.21]), linear_ticks([120.0, 31_000.0])
    ({'values': [0.1, 0.15, 0.2], 'format': '.2f'}, {'values': [10000.0, 20000.0, 30000.0], 'format': '~s'})
    """
    known = list(values)
    if not known:
        return {"tickCount": 4}
    ticks = _even_ticks(min(known), max(known))
    if max(map(abs, ticks)) >= _LARGE:
        return {"values": ticks, "format": "~s"}
    digits = max(len(f"{each:.12f}".rstrip("0").partition(".")[2]) for each in ticks)
    return {"values": ticks, "format": f".{digits}f" if digits <= _DIGITS else "~g"}


def log_ticks(values: Any) -> list[float]:
    """Return few round numbers between the least and the largest of some positive values; Vega would mark every digit.

    Within less than a decade they are as far apart as on a linear axis, which it nearly is.

    >>> log_ticks([0.0002, 0.3]), log_ticks([30.0, 70.0]), log_ticks([5.04889, 8.82268])
    ([0.001, 0.01, 0.1], [30.0, 40.0, 50.0, 60.0, 70.0], [6.0, 7.0, 8.0])
    """
    known = [float(each) for each in values if each > 0]  # leaves NaN out
    low, high = min(known), max(known)
    if high < _DECADE * low:
        return _even_ticks(low, high)
    powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    for digits in ((1,), (1, 3), (1, 2, 3, 5, 7)):
        ticks = [float(f"{digit}e{power}") for power in powers for digit in digits]
        inside = [each for each in ticks if low <= each <= high]
        if len(inside) > 2:
            return inside[:: -(-len(inside) // 6)]
    return [low, high]


def log_format(values: Iterable[float]) -> str:
    """Return the format of these ticks: as many digits as they have, because they may differ in the last only."""
    known = [float(each) for each in values if each > 0]
    if min(known) >= 1:
        return "~s"
    return "~g" if max(known) < _DECADE * min(known) else ".3~g"


def _even_ticks(low: float, high: float) -> list[float]:
    """Return three to six multiples of 1, 2 or 5 times a power of ten in a range; one number if it is empty."""
    if high <= low:
        return [low]
    power = math.floor(math.log10(high - low))
    for step in (f"{digit}e{below}" for below in (power, power - 1) for digit in (5, 2, 1)):
        first, last = math.ceil(low / float(step)), math.floor(high / float(step))
        if last - first >= 2:
            break
    return [float(f"{each * float(step):.12g}") for each in range(first, last + 1)]


def logged(frame: "pd.DataFrame", name: str) -> bool:
    """Whether a measurement is drawn on a log axis: one of a wide range, if all of its values are positive."""
    return shown(name).log and bool((frame[name].dropna() > 0).all())


def headed(title: str, below: str) -> Any:
    """Return the title of a panel with a line below it."""
    import altair as alt

    return alt.TitleParams(title, subtitle=below) if below else alt.TitleParams(title)


def coloured(colour: Colour | None) -> dict[str, Any]:
    """Return the encoding of a colour, if there is one."""
    import altair as alt

    if colour is None:
        return {}
    scale = alt.Scale(type="log") if colour.kind == "quantitative" else alt.Undefined
    given = {"labelExpr": "datum.value === null ? 'not given' : datum.label"}
    if colour.kind == "nominal":
        legend = alt.Legend(columns=1, labelLimit=170, titleOrient="top", **given)
    else:
        legend = alt.Legend(format="," if colour.column == "n_params" else alt.Undefined, **given)
    if colour.kind == "quantitative":
        legend = alt.Legend(format="~s", gradientLength=90)
    return {"color": alt.Color(field(colour.column), type=colour.kind, title=colour.title, scale=scale, legend=legend)}


def linked(panels: Sequence["alt.Chart"], colour: Colour | None) -> list["alt.Chart"]:
    """Return panels whose points fade unless they are in the brush and chosen in the legend (see :func:`together`)."""
    import altair as alt

    chosen = alt.when(alt.selection_interval(name=BRUSH))
    if _is_listed(colour):
        chosen = alt.when(alt.selection_interval(name=BRUSH), alt.selection_point(name=PICKED))
    faded = chosen.then(alt.value(1)).otherwise(alt.value(0.08))
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


def beside(panels: Sequence[Any], *, columns: int) -> dict[str, Any]:
    """Return the specification of panels side by side that have their own data."""
    import altair as alt

    return specification(alt.concat(*panels, columns=columns).resolve_scale(color="shared"))


def specification(chart: Any) -> dict[str, Any]:
    """Return a chart as a dictionary without the sizes that Altair adds: who shows a figure chooses them."""
    import altair as alt

    with alt.data_transformers.enable("default", max_rows=None), alt.theme.enable("none"):
        made: dict[str, Any] = chart.to_dict(validate=False)  # slow, and a test renders every figure
    return made
