"""The look of every figure: a Vega-Lite configuration, light or dark, for print and screen.

Categories have the colours of Okabe & Ito 2008, which people with colour blindness can distinguish. Ordered values,
such as sizes of models, have the colours of viridis, without the end that would not be visible on the background.
"""

from typing import Any

TEXT = 7.5
"""Size of labels in points, for figures in print; titles are half a point larger."""

_CATEGORIES = {
    False: ["#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000", "#999999"],
    True: ["#56B4E9", "#E69F00", "#009E73", "#CC79A7", "#F0E442", "#D55E00", "#FFFFFF", "#999999"],
}
_VIRIDIS = ["#440154", "#472D7B", "#3B528B", "#2C728E", "#21918C", "#28AE80", "#5EC962", "#ADDC30", "#FDE725"]
_ORDERED = {False: _VIRIDIS[:-2], True: _VIRIDIS[2:]}
_FONT = "Arial, Helvetica, Liberation Sans, sans-serif"


_AXIS = {
    "gridWidth": 0.5,
    "labelLimit": 130,
    "labelOverlap": "parity",  # "greedy" would drop labels at irregular distances
    "labelPadding": 2,
    "labelSeparation": 4,
    "tickSize": 3,
    "titleFontWeight": "normal",
    "titleLimit": 0,
    "titlePadding": 3,
}
_LEGEND = {
    "columnPadding": 6,
    "gradientThickness": 6,
    "labelLimit": 130,
    "offset": 4,
    "orient": "bottom",
    "rowPadding": 1,
    "symbolSize": 30,
    "titleFontWeight": "normal",
    "titleLimit": 0,
    "titleOrient": "left",
    "titlePadding": 5,
}
_TITLE = {"anchor": "start", "frame": "group", "offset": 5, "subtitlePadding": 1}


def theme(*, dark: bool = False, text: float = TEXT) -> dict[str, Any]:
    """Return the ``config`` of a Vega-Lite specification.

    Args:
        dark: Whether marks are light and the background is dark.
        text: Size of labels, in points (in pixels on a screen).

    >>> theme()["axis"]["labelFontSize"], theme(dark=True)["background"]
    (7.5, '#15171c')
    """
    ink, faint, paper = ("#E6E6E6", "#3A3F49", "#15171c") if dark else ("#1A1A1A", "#DDDDDD", "white")
    title, ordered = text + 0.5, {"scheme": _ORDERED[dark]}
    words = {"labelColor": ink, "titleColor": ink, "labelFontSize": text, "titleFontSize": title}
    # the base colours are those of legend symbols that show only a shape or a size
    legend = {**_LEGEND, **words, "symbolBaseFillColor": ink, "symbolBaseStrokeColor": ink}
    return {
        "background": paper,
        "font": _FONT,
        "padding": 3,
        "axis": {**_AXIS, **words, "domainColor": ink, "gridColor": faint, "tickColor": ink},
        "axisX": {"labelFlush": False},  # keep every label at its tick, otherwise the scale looks wrong
        "axisDiscrete": {"labelOverlap": False},  # never drop a label, which would leave a row without a name
        "legend": legend,
        "title": {**_TITLE, "color": ink, "fontSize": title, "subtitleColor": ink, "subtitleFontSize": text},
        "view": {"stroke": None},
        "concat": {"spacing": 10},
        "facet": {"spacing": 10},
        # opaque, because transparency makes a PDF of a thousand points twenty times as large
        "point": {"filled": True, "opacity": 1, "size": 15 * (text / TEXT) ** 2, "stroke": paper, "strokeWidth": 0.4},
        "line": {"strokeWidth": 1.2},
        "rule": {"color": ink, "strokeDash": [3, 2], "strokeWidth": 0.8},
        "text": {"color": ink, "fontSize": text},
        "mark": {"color": _CATEGORIES[dark][0]},
        "range": {"category": _CATEGORIES[dark], **dict.fromkeys(("ordinal", "ramp", "heatmap"), ordered)},
    }


def themed(spec: dict[str, Any]) -> dict[str, Any]:
    """Add the theme to a specification's configuration; the specification's own settings take precedence.

    The panel sizes of the specification (``config.view``, such as ``continuousWidth``) are dropped, because the caller
    sets them.

    >>> made = themed({"mark": "point", "config": {"view": {"continuousWidth": 300}, "point": {"size": 9}}})
    >>> made["config"]["point"]["size"], made["config"]["view"]
    (9, {'stroke': None})
    """
    own = {key: value for key, value in (spec.get("config") or {}).items() if key != "view"}
    ours = theme()
    both = {key: {**ours.get(key, {}), **value} if isinstance(value, dict) else value for key, value in own.items()}
    return {**spec, "config": {**ours, **both}}
