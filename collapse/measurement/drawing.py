"""Draw a figure: run its function on results or stores."""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from collapse.errors import CollapseError, UsageError
from collapse.measurement.analyzing import attempted, results_of
from collapse.measurement.cells import plain
from collapse.measurement.columns import read_column, split_columns
from collapse.measurement.prepared import of_top, prepared
from collapse.measurement.results import Results, Row
from collapse.plugin.figures import Drawing, Figure
from collapse.plugin.plugin_manager import plugins
from collapse.stores.shards import Part
from collapse.stores.store import Store

Drawable = Results | Iterable[Row] | Store | Iterable[Store] | Part | Iterable[Part] | str | Path
"""The sources that a figure can be drawn from."""


def draw(name: str, source: Drawable) -> Drawing:
    """Draw a figure of a plugin, such as ``loss``.

    Args:
        name: The figure.
        source: A results table, its file, or rows. For a figure of stores or parts: one or more of these, or their
            folders.

    Returns:
        The drawing. Its specification is a dictionary of Vega-Lite that contains all data. Numbers that are not finite
        become null.

    Raises:
        UsageError: There is no such figure, or it needs another kind of source.
        CollapseError: The source lacks what the figure needs, or a package is not installed; the message names it.
        PluginError: The figure's function failed.
    """
    return drawn(plugins().figure(name), source)


def plot(
    results: Results | Iterable[Row] | str | Path, columns: str | Sequence[str], *, against: str = "val_loss"
) -> Drawing:
    """Draw columns of a results table against another column, one panel per column; notebooks show the drawing.

    Args:
        results: A table, its file, rows, or ``"paper"``, the published measurements.
        columns: Names, prefixes or arithmetic, as ``--columns`` of ``collapse analyze``.
        against: The column of the horizontal axis. If it is ``step`` or ``checkpoint``, a line joins the rows of a run.

    Raises:
        UsageError: There is no such column.
        CollapseError: Fewer than two rows have numbers; or as in :func:`draw`.
    """
    frame = prepared(results_of(results))
    read = [read_column(frame, each) for each in (*split_columns(columns, frame), against)]
    *names, along = [each.label for each in read]
    table = Results.from_frame(frame.assign(**{each.label: each.values for each in read}))
    found = replace(plugins().figure("loss"), title=f"{', '.join(names)} against {along}", needs=(along,))
    return drawn(found, table, columns=names, against=along)


def drawn(found: Figure, source: Any, **options: Any) -> Drawing:
    """Draw a declared figure; raises the exceptions of :func:`draw`.

    A figure of results that does not need the column ``layer`` is drawn from the rows of the layer ``top``.
    """
    given: Any = results_of(source) if found.of == "results" else _stores(source, found)
    given, notes = of_top(given) if found.of == "results" and "layer" not in found.needs else (given, [])
    _check_needs(found, given)
    made = attempted(f"figure {found.name}", found, lambda: _plain(found.function(given, **options), found.title))
    return replace(made, notes=(*notes, *made.notes))


def _stores(source: Any, found: Figure) -> Sequence[Store | Part]:
    kind: type[Part | Store] = Part if found.of == "parts" else Store
    alone = isinstance(source, str | Path) or not isinstance(source, Iterable)
    stores = [kind.load(each) if isinstance(each, str | Path) else each for each in ([source] if alone else source)]
    if not stores or not all(isinstance(each, kind) for each in stores):
        raise UsageError(f"figure {found.name} needs {found.of}: give one or more {found.of}, or their folders")
    return stores


def _check_needs(found: Figure, given: Results | Sequence[Store | Part]) -> None:
    """Raise CollapseError if a figure needs a column or a tensor that the table or store lacks."""
    if isinstance(given, Results):
        frame = given.frame()
        if names := [name for name in found.needs if name not in frame or not frame[name].notna().any()]:
            raise CollapseError(
                f"figure {found.name} needs values of {', '.join(names)}, which the table does not have: give a "
                "table with these values, or choose another figure"
            )
        return
    for store in given:
        if not isinstance(store, Store):
            continue
        s = store.statistics()
        if names := [name for name in found.needs if not s.has(name)]:
            raise CollapseError(
                f"figure {found.name} needs {', '.join(names)}, which the store of {store.model} lacks: choose another "
                "store or figure"
            )


def _plain(drawing: Drawing, title: str) -> Drawing:
    """Convert a drawing's values for JSON; ``title`` is for a drawing without a title."""
    return replace(drawing, spec=plain(drawing.spec), title=drawing.title or title)
