"""Gather the sources of figures and reports: open and join results files and stores, measure stores, open parts."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from collapse.core.progress import Report
from collapse.errors import CollapseError, counted, first_line
from collapse.hub.opening import load
from collapse.measurement.drawing import drawn
from collapse.measurement.last_results import keep_row, kept_row
from collapse.measurement.measuring import measure_store
from collapse.measurement.output import RESULTS
from collapse.measurement.results import Results, Row, chosen, file_of, join
from collapse.plugin.figures import Drawing, Figure, Of
from collapse.plugin.plugin_manager import plugins
from collapse.stores.manifest import is_part
from collapse.stores.shards import Part
from collapse.stores.store import Store

Source = Results | Row | Store | Part | str | Path
_SAME = ("store", "min_count", "class_set", "layer", "group", "ood", "step")
"""Columns that are equal in duplicate rows; ``step`` is included, because checkpoints may share a store."""


@dataclass(frozen=True)
class Material:
    """The opened sources of figures and reports.

    Attributes:
        results: The rows of all sources, without duplicates; empty if all sources are parts.
        stores: The stores, in the given order.
        parts: Parts of collections, which have no row.
        origins: For each source, three texts: its kind, its name without folders, and a summary of its content.
    """

    results: Results
    stores: list[Store] = field(default_factory=list)
    parts: list[Part] = field(default_factory=list)
    origins: list[tuple[str, str, str]] = field(default_factory=list)

    def drawn(
        self, figures: Sequence[Figure], progress: Report | None = None
    ) -> Iterator[tuple[Figure, Drawing | None, str]]:
        """Yield each figure with its drawing and "", or with None and the reason why it was not drawn.

        A CollapseError in one figure does not stop the other figures.
        """
        given: dict[Of, Any] = {"results": self.results, "stores": self.stores, "parts": self.parts}
        for done, figure in enumerate(figures, start=1):
            drawing, problem = None, f"it needs {figure.of}, and none are given"
            if len(given[figure.of]):
                try:
                    drawing, problem = drawn(figure, given[figure.of]), ""
                except CollapseError as error:
                    problem = first_line(error).removeprefix(f"figure {figure.name} ")
            yield figure, drawing, problem
            if progress is not None:
                progress("figures", done, len(figures))


def gather(
    sources: Source | Iterable[Source],
    progress: Report | None = None,
    *,
    where: str | Sequence[str] | None = None,
) -> Material:
    """Open all sources, and measure each store that has no current measurements.

    Saved measurements are current if they were made by exactly the installed metrics, with ``min_count`` 1.

    Parts of a collection are not measured, because numbers from a part of the text differ from those of the whole text.
    The arguments are those of :func:`collapse.report` and :func:`collapse.save_figures`.

    Raises:
        UsageError: A source is neither a results table nor a store, or no row matches a filter.
        CollapseError: A source cannot be read.
    """
    tables, found = list[Results](), Material(Results([]))
    for source in [sources] if isinstance(sources, Source) else sources:
        opened = _open(source)
        if isinstance(opened, Store):
            name = opened.origin or (opened.path.name if opened.path else opened.model)
            if opened.digest not in [each.digest for each in found.stores]:
                found.stores.append(opened)
            tables.append(Results([_measured(opened, progress)]))
            found.origins.append(("store", name, f"{opened.model}, digest {opened.digest[:12]}"))
        elif isinstance(opened, Part):
            found.parts.append(opened)
            found.origins.append(("part", opened.path.name, f"{opened.model}, {opened.covered()}"))
        else:
            name = Path(source).name if isinstance(source, str | Path) else "in memory"
            tables.append(opened)
            found.origins.append(("results", name, f"{counted(len(opened), 'row')}"))
    results = _each_once(join(tables, where=where)) if tables else Results([])
    return Material(results, found.stores, found.parts, found.origins)


def _each_once(results: Results) -> Results:
    """Remove duplicate rows of a store, which arise if a results file and the store itself are both sources."""
    frame = results.frame()
    if "store" not in frame:
        return results
    again = frame.duplicated([name for name in frame if name in _SAME])
    return chosen(results, frame.index[frame["store"].fillna("").eq("") | ~again])


def _open(source: Source) -> Results | Store | Part:
    if isinstance(source, Results | Store | Part):
        return source
    if isinstance(source, Row):
        return Results([source])
    path = Path(source)
    if file_of(source) != path or (path.suffix in RESULTS and not path.is_dir()):
        return Results.read(source)
    return Part.load(path) if is_part(path) else load(source)


def _measured(store: Store, progress: Report | None) -> Row:
    """Return the saved measurements of a store if they are those of the installed metrics; otherwise measure it."""
    kept, known = kept_row(store), plugins().chosen(None)
    present = {name: metric.version for name, (metric, _) in known.items()}
    if kept is not None and (kept.min_count, kept.versions, kept.made_by) == (1, present, plugins().made_by(known)):
        return kept
    row = measure_store(store, progress=progress)
    keep_row(store, row)
    return row
