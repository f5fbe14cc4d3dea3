"""Draw the distributions of values per class, and how these values depend on class frequency."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from collapse import CollapseError, Drawing, Store, figure, vectors
from collapse.errors import counted
from collapse_figures.panels import axis, coloured, together
from collapse_figures.tables import Colour, names_of

if TYPE_CHECKING:
    import pandas as pd

Floats = NDArray[np.float64]

VALUES: Mapping[str, tuple[str, bool]] = {
    "nc1.cdnv": ("CDNV (1/h²)", True),
    "nc2.norm": ("norm of μ_c (h)", True),
    "nc3.self_duality": ("cos(w_c, μ_c)", False),
}
"""Measurements whose values per class are drawn, each with the title of its axis, and True for a logarithmic axis."""
_BINS = 40
_COUNT_BINS = 14
_STORES = 6  # the most stores whose colours can be distinguished
_ROUNDING = 1e-9  # relative differences below this are rounding errors, for example between the norms of two classes


@figure(
    "class-distributions",
    title="Distributions over classes, and their dependence on frequency",
    of="stores",
    needs=["means", "variances"],
)
def class_distributions(stores: Sequence[Store]) -> Drawing:
    """Histograms of CDNV, norm and self-duality over classes; medians and quartiles of these values against N_c."""
    if len(stores) > _STORES:
        raise CollapseError(f"this figure can show at most {_STORES} stores, got {len(stores)}: give fewer")
    panels: list[Any] = []
    notes: list[str] = []
    for name, (title, log) in VALUES.items():
        frame = _values(stores, name, log, notes)
        if len(frame):
            panels += [_histogram(frame, title, log), _dependence(frame, title, log)]
    if not panels:
        raise CollapseError(f"no store has values per class: {'; '.join(notes)}")
    caption = (
        f"Values of each class of {', '.join(names_of(stores))}. Left: share of the classes in each of {_BINS} bins. "
        f"Right: median (line) and quartiles (band) in at most {_COUNT_BINS} bins of the number of samples N_c, "
        "of equal width on the log axis. The CDNV of a class is the mean over its pairs; class means are centred."
    )
    return Drawing(together(panels, columns=2), caption, notes=tuple(dict.fromkeys(notes)))


def _values(stores: Sequence[Store], name: str, log: bool, notes: list[str]) -> "pd.DataFrame":
    """Return a table with a row per class and store, and the columns store, value and count.

    For classes and stores without values, append texts to ``notes``.
    """
    import pandas as pd

    found: list[pd.DataFrame] = []
    for store, called in zip(stores, names_of(stores), strict=True):
        try:
            values = vectors(store, name)[1].double().cpu().numpy()
        except CollapseError as error:  # the store lacks a classifier, or has too few classes
            notes.append(f"{name}: {error}")
            continue
        kept = np.isfinite(values) & ((values > 0) | (not log))
        counts = store.statistics().counts.double().cpu().numpy()[kept]
        if len(counts):
            found.append(pd.DataFrame({"store": called, "value": values[kept], "count": counts}))
        if not kept.all():
            notes.append(f"{name} of {called}: {counted(int((~kept).sum()), 'class')} without a value excluded")
    return pd.concat(found, ignore_index=True) if found else pd.DataFrame()


def _histogram(frame: "pd.DataFrame", title: str, log: bool) -> Any:
    import altair as alt

    edges = _edges(frame["value"].to_numpy(), _BINS, log=log)
    rows = []
    for store, part in frame.groupby("store", sort=False):
        shares = [*np.histogram(part["value"], edges)[0] / len(part), 0.0]
        rows += [{"store": store, "value": left, "share": share} for left, share in zip(edges, shares, strict=True)]
    chart = alt.Chart(alt.InlineData(values=rows))
    return chart.mark_area(interpolate="step-after", opacity=0.35, line={"strokeWidth": 1}).encode(
        x=axis("x", "value", edges, title=title, log=log),
        y=alt.Y("share:Q", title="share of classes", stack=None, axis=alt.Axis(format="~%", tickCount=3)),
        tooltip=["store:N", alt.Tooltip("value:Q", format=".3g"), alt.Tooltip("share:Q", format=".2%")],
        **_colour(frame["store"].nunique()),
    )


def _dependence(frame: "pd.DataFrame", title: str, log: bool) -> Any:
    import altair as alt

    rows = []
    for store, part in frame.groupby("store", sort=False):
        edges = _edges(part["count"].to_numpy(), _COUNT_BINS, log=True)
        places = np.clip(np.searchsorted(edges, part["count"], side="right") - 1, 0, _COUNT_BINS - 1)
        for _, inside in part.groupby(places):
            low, median, high = inside["value"].quantile([0.25, 0.5, 0.75])
            row = {"store": store, "count": float(np.exp(np.log(inside["count"]).mean()))}
            rows.append(row | {"low": low, "median": median, "high": high, "classes": len(inside)})
    x = axis("x", "count", [row["count"] for row in rows], title="samples N_c", log=True, format="~s")
    ends = [row[end] for row in rows for end in ("low", "high")]
    low, median = (axis("y", name, ends, title=title, log=log) for name in ("low", "median"))
    base = alt.Chart(alt.InlineData(values=rows)).encode(x=x, **_colour(frame["store"].nunique()))
    hover = ["store:N", "classes:Q", alt.Tooltip("count:Q", format=".3g"), alt.Tooltip("median:Q", format=".3g")]
    band = base.mark_area(opacity=0.25).encode(y=low, y2="high:Q")
    return band + base.mark_line(point={"size": 8, "strokeWidth": 0}).encode(y=median, tooltip=hover)


def _colour(stores: int) -> dict[str, Any]:
    return coloured(Colour("store", "", "nominal")) if stores > 1 else {}


def _edges(values: Floats, bins: int, *, log: bool) -> Floats:
    """Return the edges of bins of equal width on a linear or log axis."""
    low, high = float(values.min()), float(values.max())
    if high - low <= _ROUNDING * max(abs(low), abs(high)):  # widen the range, otherwise edges would be equal
        low, high = (low / 1.1, high * 1.1) if log else (low - 0.5, high + 0.5)
    edges = np.geomspace(low, high, bins + 1) if log else np.linspace(low, high, bins + 1)
    edges[0], edges[-1] = low, high
    return edges
