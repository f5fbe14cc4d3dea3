"""How often each class occurs: counts by rank, on two log axes."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from collapse import CollapseError, Drawing, Store, figure
from collapse.errors import counted
from collapse_figures.panels import axis, specification
from collapse_figures.stores import MOST, names_of

_LEAST = 50  # points of a curve, however many stores


@figure(
    "class-frequencies",
    title="Class frequencies",
    of="stores",
    needs=["counts"],
    source="Wu & Papyan 2024, Figure 4",
)
def class_frequencies(stores: Sequence[Store]) -> Drawing:
    """Samples of each class in the training text against its rank, from the most frequent to the rarest."""
    import altair as alt

    rows: list[dict[str, Any]] = []
    said = []
    drawn: dict[str, str] = {}  # stores of one text have equal counts: one curve
    each_most = max(MOST // len(stores), _LEAST)
    for store, name in zip(stores, names_of(stores), strict=True):
        counts = np.sort(store.statistics().counts.numpy())[::-1]
        if not len(counts) or counts[0] <= 0:
            raise CollapseError(f"the store of {store.model} has no class with a sample")
        known = drawn.setdefault(counts.tobytes().hex(), name)
        if known != name:
            continue
        ranks = np.unique(np.geomspace(1, len(counts), each_most).round().astype(int))
        rows += [{"store": name, "rank": int(rank), "count": int(counts[rank - 1])} for rank in ranks]
        said.append(f"{name}: C = {len(counts):,}, N = {int(counts.sum()):,}, {int((counts == 1).sum()):,} occur once")
    encoding: dict[str, Any] = {
        "x": axis("x", "rank", [row["rank"] for row in rows], title="rank of the class", log=True),
        "y": axis("y", "count", [row["count"] for row in rows], title="samples N_c", log=True),
        "tooltip": ["store:N", "rank:Q", "count:Q"],
    }
    if len(said) > 1:
        encoding["color"] = alt.Color("store:N", title=None, legend=alt.Legend(columns=1, labelLimit=220))
    chart = alt.Chart(alt.InlineData(values=rows)).mark_line(point={"size": 5, "strokeWidth": 0}).encode(**encoding)
    caption = (
        f"Training samples of each class (next token) by rank, both on log axes, of {counted(len(said), 'text')}: at "
        f"most {each_most:,} ranks a curve are drawn. {'; '.join(said)}."
    )
    same = len(stores) - len(said)
    notes = (f"{counted(same, 'store')} with the same counts as another one drawn once",) if same else ()
    return Drawing(specification(chart), caption, notes=notes)
