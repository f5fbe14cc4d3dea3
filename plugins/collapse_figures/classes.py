"""Values per class behind the measurements: their distributions, and how they depend on the samples of a class."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from collapse import CollapseError, Drawing, Store, figure, vectors
from collapse.errors import counted
from collapse_figures.panels import axis, beside
from collapse_figures.stores import MOST, names_of

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Value:
    """A value that each class has.

    Attributes:
        name: The measurement whose :func:`collapse.vectors` are drawn.
        axis: The axis title.
        log: On a log axis.
    """

    name: str
    axis: str
    log: bool


VALUES = (
    Value("nc1.cdnv", "CDNV (1/h²)", True),
    Value("nc2.norm", "norm of μ_c (h)", True),
    Value("nc3.self_duality", "cos(w_c, μ_c)", False),
)
_BINS = 40
_COUNT_BINS = 14
_STORES = 6
_ROUNDING = 1e-9  # a share of the largest value; norms of two classes differ in their last digits only


@figure(
    "class-distributions",
    title="Distributions over classes, and their dependence on frequency",
    of="stores",
    needs=["means", "variances"],
)
def class_distributions(stores: Sequence[Store]) -> Drawing:
    """CDNV, norm and self-duality of each class: a histogram, and medians and quartiles against N_c."""
    if len(stores) > _STORES:
        raise CollapseError(f"at most {_STORES} stores can be told apart in one picture, got {len(stores)}")
    panels: list[Any] = []
    notes: list[str] = []
    for value in VALUES:
        shares, quartiles = _rows_of(stores, value, notes)
        if shares:
            panels += [_histogram(shares, value), _dependence(quartiles, value)]
    if not panels:
        raise CollapseError(f"no store has values per class: {'; '.join(dict.fromkeys(notes))}")
    caption = (
        f"Each class of {', '.join(names_of(stores))}. Left: share of the classes in each of {_BINS} bins. Right: "
        f"median (line) and quartiles (band) in at most {_COUNT_BINS} bins of the number of samples N_c, "
        "of equal width on the log axis. The CDNV of a class is the mean over its pairs; means are centred."
    )
    return Drawing(beside(panels, columns=2), caption, notes=tuple(dict.fromkeys(notes)))


def _histogram(rows: list[dict[str, Any]], value: Value) -> Any:
    import altair as alt

    return (
        alt.Chart(alt.InlineData(values=rows))
        .mark_area(interpolate="step-after", opacity=0.35, line={"strokeWidth": 1})
        .encode(
            x=axis("x", "value", _values(rows, "value"), title=value.axis, log=value.log),
            y=alt.Y("share:Q", title="share of classes", stack=None, axis=alt.Axis(format="~%", tickCount=3)),
            color=_store_colour(rows),
            tooltip=["store:N", alt.Tooltip("value:Q", format=".3g"), alt.Tooltip("share:Q", format=".2%")],
        )
    )


def _dependence(rows: list[dict[str, Any]], value: Value) -> Any:
    import altair as alt

    ends = [*_values(rows, "low"), *_values(rows, "high")]
    base = alt.Chart(alt.InlineData(values=rows)).encode(
        x=axis("x", "count", _values(rows, "count"), title="samples N_c", log=True), color=_store_colour(rows)
    )
    hover = ["store:N", "classes:Q", alt.Tooltip("count:Q", format=".3g"), alt.Tooltip("median:Q", format=".3g")]
    band = base.mark_area(opacity=0.25).encode(y=axis("y", "low", ends, title=value.axis, log=value.log), y2="high:Q")
    middle = axis("y", "median", ends, title=value.axis, log=value.log)
    line = base.mark_line(point={"size": 8, "strokeWidth": 0}).encode(y=middle, tooltip=hover)
    return band + line


def _store_colour(rows: list[dict[str, Any]]) -> Any:
    import altair as alt

    several = len({row["store"] for row in rows}) > 1
    return alt.Color("store:N", title=None, legend=alt.Legend(columns=1, labelLimit=220) if several else None)


def _values(rows: list[dict[str, Any]], name: str) -> list[float]:
    return [row[name] for row in rows]


def _rows_of(
    stores: Sequence[Store], value: Value, notes: list[str]
) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Return the bins of each store, and the quartiles by number of samples."""
    found: list[tuple[str, Floats, Floats]] = []
    for store, name in zip(stores, names_of(stores), strict=True):
        try:
            values = vectors(store, value.name)[1].double().cpu().numpy()
        except CollapseError as error:  # it lacks a classifier, or has too few classes
            notes.append(f"{value.name}: {error}")
            continue
        counts = store.statistics().counts.double().cpu().numpy()
        kept = np.isfinite(values) & ((values > 0) | (not value.log))
        if kept.any():
            found.append((name, values[kept], counts[kept]))
        if not kept.all():
            lacking = counted(int((~kept).sum()), "class")
            notes.append(f"{value.name} of {name}: {lacking} without a value to draw left out")
    if not found:
        return [], []
    together = np.concatenate([values for _, values, _ in found])
    edges = _edges(together, _BINS, log=value.log)
    shares: list[dict[str, Any]] = []
    quartiles: list[dict[str, Any]] = []
    for name, values, counts in found:
        bins = np.histogram(values, edges)[0] / len(values)
        shares += [
            {"store": name, "value": float(left), "share": float(share)}
            for left, share in zip(edges, [*bins, 0.0], strict=True)
        ]
        quartiles += _quartiles(name, values, counts)
    assert len(shares) + len(quartiles) <= MOST
    return shares, quartiles


def _quartiles(name: str, values: Floats, counts: Floats) -> list[dict[str, Any]]:
    edges = _edges(counts, _COUNT_BINS, log=True)
    place = np.clip(np.searchsorted(edges, counts, side="right") - 1, 0, len(edges) - 2)
    rows = []
    for each in np.unique(place):
        inside = place == each
        low, median, high = np.quantile(values[inside], [0.25, 0.5, 0.75])
        rows.append(
            {
                "store": name,
                "count": float(np.exp(np.log(counts[inside]).mean())),
                "low": float(low),
                "median": float(median),
                "high": float(high),
                "classes": int(inside.sum()),
            }
        )
    return rows


def _edges(values: Floats, bins: int, *, log: bool) -> Floats:
    """Return edges of bins of equal width, on a log axis if asked; values equal to rounding get a range around them."""
    low, high = float(values.min()), float(values.max())
    if high - low <= _ROUNDING * max(abs(low), abs(high)):  # else edges between them would be equal
        low, high = (low / 1.1, high * 1.1) if log else (low - 0.5, high + 0.5)
    edges = np.geomspace(low, high, bins + 1) if log else np.linspace(low, high, bins + 1)
    edges[0], edges[-1] = low, high
    return edges
