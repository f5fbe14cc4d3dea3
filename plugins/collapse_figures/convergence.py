"""How measurements converge with the amount of text: curves over growing merges of the parts of collections."""

import json
from collections.abc import Sequence
from typing import Any

from collapse import CollapseError, Drawing, Store, convergence, figure
from collapse.errors import counted
from collapse.plugin.plugin_manager import plugins
from collapse_figures.labels import shown
from collapse_figures.panels import axis, coloured, logged, together
from collapse_figures.stores import names_of
from collapse_figures.tables import Colour, field, having, records

MEASURED = (
    "nc1.cdnv",
    "nc1.cdnv_ratio",
    "nc1.cdnv_ratio_debiased",
    "nc2.equinormness",
    "nc2.interference_std",
    "gnc2.hyperspherical_uniformity",
    "nc3.self_duality",
    "nc3.self_duality_ratio",
    "nc3.self_duality_ratio_debiased",
    "unc3.uniform_duality",
)
"""Measurements of the training text, for parts are validated after merging."""


@figure("convergence", title="Measurements against the amount of text", of="parts")
def converging(parts: Sequence[Store]) -> Drawing:
    """Measurements of the first part of a collection, the first two, and so on, against their samples."""
    import pandas as pd

    groups = _collections(parts)
    whole = [stores for stores in groups if len(stores) > 1]
    if not whole:
        raise CollapseError(f"needs two parts or more of one collection, and there {_are(len(parts))}")
    metrics = [name for name in MEASURED if name in plugins().measurements()]
    frames = [
        convergence(stores, metrics=metrics).frame().assign(collection=name)
        for stores, name in zip(whole, names_of([stores[0] for stores in whole]), strict=True)
    ]
    frame = pd.concat(frames, ignore_index=True)
    present = having(frame, metrics)
    if not present:
        raise CollapseError(f"needs one of {', '.join(metrics)}, which none of these parts gives")
    colour = Colour("collection", "collection", "nominal") if len(whole) > 1 else None
    panels = [_panel(frame, name, colour) for name in present]
    rows = records(frame, ["collection", "parts", "samples", "classes", *present])
    caption = (
        f"Measurements of growing merges of {counted(len(frame), 'part')} of {counted(len(whole), 'collection')}, in "
        f"the order of the text, against their training samples: {'; '.join(map(_said, whole))}. A curve that is still "
        "moving at its right end needs more text."
    )
    alone = len(groups) - len(whole)
    notes = (f"{counted(alone, 'part')} without another one of the same collection not drawn",) if alone else ()
    return Drawing(together(panels, rows), caption, notes=notes)


def _collections(parts: Sequence[Store]) -> list[list[Store]]:
    """Group parts by what was collected, however many statistics of plugins each holds."""
    found: dict[str, list[Store]] = {}
    for part in parts:
        identity = {key: value for key, value in part.identity.items() if key != "statistics"}
        found.setdefault(json.dumps(identity, sort_keys=True), []).append(part)
    return list(found.values())


def _panel(frame: Any, name: str, colour: Colour | None) -> Any:
    import altair as alt

    return (
        alt.Chart(title=shown(name).title)
        .mark_line(point={"size": 10, "strokeWidth": 0}, strokeWidth=0.8)
        .encode(
            x=axis("x", "samples", frame["samples"], title="samples N", log=True),
            y=axis("y", name, frame[name], log=logged(frame, name)),
            tooltip=[
                alt.Tooltip("collection:N"),
                alt.Tooltip("samples:Q", format=","),
                alt.Tooltip(f"{field(name)}:Q", title=name, format=".4g"),
            ],
            **coloured(colour),
        )
    )


def _said(stores: Sequence[Store]) -> str:
    return f"{stores[0].model} on {stores[0].corpus}, {counted(len(stores), 'part')}"


def _are(count: int) -> str:
    return f"is {count}" if count == 1 else f"are {count}, of different collections"
