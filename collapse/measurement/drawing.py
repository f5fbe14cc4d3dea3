"""Draw a figure: run its function on results or stores, and check the specification that it returns."""

import json
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from collapse.core.escaping import visible
from collapse.core.extras import missing_package
from collapse.errors import CollapseError, PluginError, UsageError
from collapse.measurement.analyzing import results_of
from collapse.measurement.named_results import file_of
from collapse.measurement.output import RESULTS
from collapse.measurement.results import Results, Row
from collapse.plugin.figures import Drawing, Figure
from collapse.plugin.guarding import described
from collapse.plugin.plugin_manager import plugins
from collapse.stores.shards import Part
from collapse.stores.store import Store

Drawable = Results | Iterable[Row] | Store | Iterable[Store] | Part | Iterable[Part] | str | Path
"""What a figure is drawn from."""

_VIEWS = {"mark", "layer", "hconcat", "vconcat", "concat", "facet", "repeat"}


def draw(name: str, source: Drawable) -> Drawing:
    r"""Draw a figure of a plugin, such as ``loss``.

    Args:
        name: The figure.
        source: A results table, its file, or rows; for a figure of stores or parts, these or the folder of one.

    Returns:
        The drawing: its specification is a dictionary of Vega-Lite with all data inside, in which numbers that are not
        finite are null, and control characters of names are visible, as ``\x1b``. Notebooks show it.

    Raises:
        UsageError: There is no such figure, or it is of something else.
        CollapseError: The source lacks what the figure needs, or a package is not installed; the message names it.
        PluginError: The figure's function failed, or returned something else.
    """
    return drawn(plugins().figure(name), source)


def drawn(found: Figure, source: Any) -> Drawing:
    """Draw a declared figure, as :func:`draw` does one of a plugin; raises as it does."""
    given = results_of(source) if found.of == "results" else _stores(source, found)
    for what, lacking in _lacking(found, given):
        raise CollapseError(f"figure {found.name} needs {', '.join(lacking)}, {what}")
    called = f"figure {found.name} of {found.function.__module__}"
    try:
        drawing = found.function(given)
        if not isinstance(drawing, Drawing):
            raise PluginError(f"it returned {type(drawing).__name__}, not a collapse.Drawing")
        spec = _plain(drawing.spec.to_dict() if hasattr(drawing.spec, "to_dict") else drawing.spec)
        _check_spec(spec)
    except CollapseError as error:  # the figure's own message about what is missing
        if not isinstance(error, PluginError):
            raise
        raise PluginError(f"{called} failed: {error}") from error
    except Exception as error:
        if missing := missing_package(error):
            raise CollapseError(f"figure {found.name} cannot be drawn: {missing}") from error
        raise PluginError(f"{called} failed: {described(error)}") from error
    texts = {"title": drawing.title or found.title, "caption": drawing.caption}
    notes = tuple(map(_visible, drawing.notes))
    return replace(drawing, spec=spec, notes=notes, **{name: _visible(text) for name, text in texts.items()})


def _stores(source: Any, found: Figure) -> Sequence[Store | Part]:
    kind: type[Part | Store] = Part if found.of == "parts" else Store
    path = Path(source) if isinstance(source, str | Path) else None
    if isinstance(source, Results) or (path and (file_of(path) != path or path.suffix in RESULTS)):
        raise UsageError(f"figure {found.name} is drawn from {found.of}, and this is a results table: give a store")
    if path:
        return [kind.load(path)]
    stores = [source] if isinstance(source, kind) else list(source)
    if not stores or not all(isinstance(each, kind) for each in stores):
        raise UsageError(f"figure {found.name} is drawn from {found.of}: give {found.of}")
    return stores


def _lacking(found: Figure, given: Results | Sequence[Store | Part]) -> Iterator[tuple[str, list[str]]]:
    """Yield what lacks something that a figure needs, and the names of it."""
    if isinstance(given, Results):
        frame = given.frame()
        if names := [name for name in found.needs if name not in frame or not frame[name].notna().any()]:
            yield "of which the table has no value", names
        return
    for store in given:
        if isinstance(store, Store):
            s = store.statistics()
            if names := [name for name in found.needs if not s.has(name)]:
                yield f"which the store of {store.model} lacks", names


def _check_spec(spec: Any) -> None:
    """Refuse what is not a specification, and data that it would have to load: a figure holds its own numbers."""
    if not isinstance(spec, dict) or not _VIEWS & set(spec):
        raise PluginError("it returned no Vega-Lite specification: give a dictionary or an Altair chart")
    try:
        json.dumps(spec, allow_nan=False)
    except (TypeError, ValueError, RecursionError) as error:
        raise PluginError(f"its specification cannot be written as JSON: {error}") from error
    if _loads(spec):
        raise PluginError("its specification loads data from a URL: put the data into it")


def _loads(node: Any) -> bool:
    if isinstance(node, dict):
        data = node.get("data")
        return (isinstance(data, dict) and "url" in data) or any(
            _loads(value) for key, value in node.items() if key not in ("values", "datasets")
        )
    return isinstance(node, list) and any(map(_loads, node))


def _plain(node: Any) -> Any:
    """Return a specification of plain values: numbers of NumPy as Python's, those that are not finite as null.

    Control characters of texts become visible: XML has none, vl-convert aborts the process for some.
    """
    if hasattr(node, "tolist"):
        node = node.tolist()
    if isinstance(node, Mapping):
        return {_visible(str(key)): _plain(value) for key, value in node.items()}
    if isinstance(node, list | tuple):
        return [_plain(each) for each in node]
    if isinstance(node, float):
        return node if math.isfinite(node) else None
    return _visible(node) if isinstance(node, str) else node


def _visible(text: str) -> str:
    return visible(text, keep="\n")
