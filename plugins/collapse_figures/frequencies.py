"""How often each class occurs: counts by rank, on two log axes."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from collapse import Drawing, Store, figure
from collapse.errors import counted
from collapse_figures.panels import axis, coloured, specification
from collapse_figures.tables import Colour, names_of

_MOST = 2_000  # maximum number of points, so that the specification stays small


@figure(
    "class-frequencies",
    title="Class frequencies",
    of="stores",
    needs=["counts"],
    source="Wu & Papyan 2024, Figure 4",
)
def class_frequencies(stores: Sequence[Store]) -> Drawing:
    """Number of training samples of each class against the rank of the class, from the most frequent to the rarest."""
    import altair as alt

    rows: list[dict[str, Any]] = []
    said: dict[bytes, str] = {}  # by counts: stores of one text have equal counts and share a curve
    most = _MOST // len(stores)
    for store, name in zip(stores, names_of(stores), strict=True):
        counts = np.sort(store.statistics().counts.numpy())[::-1]
        if counts.tobytes() in said:
            continue
        ranks = np.unique(np.geomspace(1, len(counts), most).round().astype(int))
        rows += [{"store": name, "rank": int(rank), "count": int(counts[rank - 1])} for rank in ranks]
        once = int((counts == 1).sum())
        said[counts.tobytes()] = f"{name}: C = {len(counts):,}, N = {int(counts.sum()):,}, {once:,} occur once"
    x = axis("x", "rank", [row["rank"] for row in rows], title="rank of the class", log=True, format="~s")
    y = axis("y", "count", [row["count"] for row in rows], title="samples N_c", log=True, format="~s")
    colour = coloured(Colour("store", "", "nominal")) if len(said) > 1 else {}
    chart = alt.Chart(alt.InlineData(values=rows)).mark_line(point={"size": 5, "strokeWidth": 0})
    chart = chart.encode(x=x, y=y, tooltip=["store:N", "rank:Q", "count:Q"], **colour)
    caption = (
        f"Training samples of each class (next token) by rank, both on log axes, of {counted(len(said), 'text')}: at "
        f"most {most:,} ranks per curve are drawn. {'; '.join(said.values())}."
    )
    same = len(stores) - len(said)
    notes = (f"not drawn: {counted(same, 'store')} with the same counts as another",) if same else ()
    return Drawing(specification(chart), caption, notes=notes)
