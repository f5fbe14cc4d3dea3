"""Draw measurements against the amount of text, which grows as more and more parts of a collection are merged."""

from collections.abc import Sequence

from collapse import CollapseError, Drawing, Part, convergence, figure
from collapse.errors import counted
from collapse.plugin.plugin_manager import plugins
from collapse_figures.panels import axis, curves
from collapse_figures.tables import Colour, drawn_in, names_of


@figure("convergence", title="Measurements against the amount of text", of="parts")
def converging(parts: Sequence[Part]) -> Drawing:
    """Measurements of the first part of a collection, the first two parts, and so on, against the number of samples."""
    import pandas as pd

    groups: dict[str, list[Part]] = {}
    for part in parts:
        groups.setdefault(part.digest, []).append(part)
    whole = [stores for stores in groups.values() if len(stores) > 1]
    if not whole:
        raise CollapseError("this figure needs two parts of the same collection: give the folder with all parts")
    metrics = [name for name in drawn_in("parts") if name in plugins().measurements()]
    names = names_of([stores[0] for stores in whole])
    tables = [convergence(stores, metrics=metrics).frame() for stores in whole]
    frame = pd.concat([table.assign(collection=name) for table, name in zip(tables, names, strict=True)])
    colour = Colour("collection", "collection", "nominal") if len(whole) > 1 else None
    x = axis("x", "samples", frame["samples"], title="samples N", log=True, format="~s")
    hover = ["collection", "parts", "classes"]
    spec = curves(frame, metrics, x, "samples", colour, ["collection"], hover=hover)
    said = [f"{stores[0].model} on {stores[0].corpus}, {counted(len(stores), 'part')}" for stores in whole]
    caption = (
        f"Measurements of the first part, the first two parts, and so on, of {counted(len(whole), 'collection')}, in "
        f"the order of the text, against the number of training samples: {'; '.join(said)}. A measurement whose curve "
        "is still moving at its right end needs more text."
    )
    alone = len(groups) - len(whole)
    notes = (f"not drawn: {counted(alone, 'part')} without another part of the same collection",) if alone else ()
    return Drawing(spec, caption, notes=notes)
