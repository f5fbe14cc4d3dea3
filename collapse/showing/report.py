"""Write a report of results and stores: one HTML file with what stands out, figures, tables and methods."""

import base64
import hashlib
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from importlib import resources
from pathlib import Path
from typing import Any

from collapse.core.escaping import visible
from collapse.core.extras import missing_package
from collapse.core.progress import Report, shows_progress
from collapse.core.theme import theme
from collapse.errors import CollapseError, UsageError, shortened, some
from collapse.measurement.cells import number, plain
from collapse.measurement.prepared import of_top
from collapse.measurement.table import Table
from collapse.plugin.plugin_manager import plugins
from collapse.showing.material import Material, Source, gather
from collapse.showing.report_findings import LOSS, Associations, associations, findings, warnings
from collapse.showing.report_tables import (
    definition_table,
    layer_table,
    measurement_table,
    row_table,
    store_table,
)
from collapse.stores.store import Store
from collapse.stores.writing import check_output_place, write_output
from collapse.version import VERSION

Tokens = Callable[..., Table]
"""A function that makes the table of a store's tokens, such as :func:`collapse.tokens`."""
_TEXT = 11.0  # size of figure labels in pixels
_MOST_TOKENS = 2_000
_FOLDER = resources.files("collapse.showing")


@shows_progress
def report(
    sources: Source | Iterable[Source],
    output: str | Path = "report.html",
    *,
    title: str | None = None,
    figures: Iterable[str] | None = None,
    tokens: Tokens | None = None,
    progress: Report | None = None,
) -> Path:
    """Write a report of results and stores as one HTML file, which opens from disk and loads no other file.

    It has a summary in words, every figure that the rows or stores allow, sortable tables of measurements and tokens,
    correlations with validation loss, and the methods. Needs the extra ``report``.

    Args:
        sources: One source or several: results tables, their files (.csv, .json, .parquet), rows, stores, the folders
            of stores, or their names on the Hub. Stores without current measurements are measured. Parts of a
            collection have no row, but give a curve of convergence.
        output: The .html file; an existing file is replaced.
        title: Title of the report; by default it names the sources.
        figures: Names of the figures to draw; the report then has no correlations. None for all figures that the
            sources allow, and correlations.
        tokens: The function that makes a table of each store's most frequent tokens, such as :func:`collapse.tokens`;
            None for no such table.
        progress: Called as progress(what, done, total[, note]).

    Returns:
        The path of the file.

    Raises:
        UsageError: A source or figure is unknown, the suffix is not .html or .htm, or no file can be created there.
        CollapseError: A source cannot be read, no row has a measurement, the extra is not installed, or the write
            fails.
    """
    output = Path(output)
    if output.suffix.lower() not in (".html", ".htm"):
        raise UsageError(f"{output}: a report is an HTML file: use a name that ends in .html or .htm")
    check_output_place(output)
    try:
        import jinja2
        import vl_convert
    except ImportError as error:
        raise CollapseError(missing_package(error) or str(error)) from error
    material = gather(sources, progress)
    names = [shortened(name) for _, name, _ in material.origins]
    frame = material.results.frame()
    if not any(name in frame and frame[name].notna().any() for name in (LOSS, *plugins().measurements())):
        raise CollapseError(
            f"{some(names)}: no row has a measurement or a validation loss. Make rows with collapse measure MODEL "
            "--output results.csv (merge parts first, with collapse merge). For your own metrics, name their file: "
            "collapse -p FILE report …"
        )
    content = {"title": title or f"Neural collapse: {some(names)}", "version": VERSION}
    content |= _content(material, figures, tokens, progress)
    content |= _scripts(str(vl_convert.javascript_bundle("window.vegaEmbed = vegaEmbed;")))
    environment = jinja2.Environment(autoescape=True, finalize=_visible, trim_blocks=True)
    environment.policies["json.dumps_kwargs"] = {"separators": (",", ":"), "allow_nan": False}
    page = environment.from_string(_FOLDER.joinpath("page.html").read_text("utf-8"))
    write_output(output, page.render(content).encode())
    return output


def _content(
    material: Material, chosen: Iterable[str] | None, tokens: Tokens | None, progress: Report | None
) -> dict[str, Any]:
    """Return the content for the template: the sections with their texts, figures and tables.

    Only the section on layers has rows of other layers than ``top``. ``chosen`` are the names of the figures to draw;
    None for all figures, and correlations.
    """
    results, _ = of_top(material.results)
    frame = results.frame()
    tests = associations(results) if chosen is None else Associations({})
    names = plugins().figures if chosen is None else chosen
    wanted = [plugins().figure(name) for name in names]
    figures = list(
        replace(material, results=results).drawn([each for each in wanted if "layer" not in each.needs], progress)
    )
    of_layers = list(material.drawn([each for each in wanted if "layer" in each.needs], progress))
    of_tokens, without_tokens = _token_tables(material.stores, tokens) if tokens else ({}, [])
    sources = Table("Sources", ["kind", "name", "holds"], material.origins)
    methods = {"definitions": definition_table(frame), "sources": sources, "rows": row_table(frame)}
    methods |= {f"store-{at}": store_table(each) for at, each in enumerate(material.stores)}
    missing = [f"{each.title}: not drawn: {why}" for each, drawing, why in (*figures, *of_layers) if drawing is None]
    layered = {"layers": layer_table(material.results.frame())} if results is not material.results else {}
    sections = [
        ("overview", "What stands out", [], {}, []),
        ("figures", "Figures", figures, {}, []),
        ("measurements", "Measurements", [], {"measurements": measurement_table(results)}, []),
        ("layers", "Layers", of_layers, layered, []),
        ("association", "Correlation with validation loss", [], tests.tables, tests.lacking),
        ("tokens", "Tokens", [], of_tokens, without_tokens),
        ("methods", "Methods", [], methods, [*missing, *plugins().problems]),
    ]
    return {
        "sections": [
            (name, heading, pictures, [_data(*each) for each in tables.items()], notes)
            for name, heading, pictures, tables, notes in sections
            if tables or notes or name == "overview" or any(drawing for _, drawing, _ in pictures)
        ],
        "warnings": warnings(frame),
        "findings": findings(frame, tests, has_nulls=any(row.nulls for row in results.rows)),
        "themes": {name: theme(dark=name == "dark", text=_TEXT) for name in ("light", "dark")},
    }


def _token_tables(stores: Sequence[Store], tokens: Tokens) -> tuple[dict[str, Table], list[str]]:
    """Return a table of each store's most frequent tokens, and reasons for stores without a table."""
    tables, lacking = {}, []
    for at, store in enumerate(stores):
        try:
            tables[f"tokens-{at}"] = tokens(store, top=_MOST_TOKENS, by="count")
        except CollapseError as error:
            lacking.append(f"tokens of {store.model}: {error}")
    return tables, lacking


def _data(name: str, table: Table) -> dict[str, Any]:
    """Return a table as data for the template and for the page's script, which shows the rows."""
    shown = table.for_people()
    rows = [[_cell(value) for value in row] for row in shown.rows]
    data = {"name": name, "columns": [visible(each) for each in shown.columns], "rows": rows}
    return {"title": shown.title, "notes": shown.notes, "folded": name.startswith("store-"), **data, "data": data}


def _cell(value: Any) -> Any:
    """Convert a value of a table for JSON: infinite numbers to text, NaN and pandas' NA to None.

    >>> [_cell(each) for each in (1.5, float("nan"), float("-inf"), "a\\n", True)]
    [1.5, None, '−∞', 'a\\\\n', 'yes']
    """
    import pandas as pd

    if pd.isna(value) is True or value == "–":
        return None
    value = number(value) if isinstance(value, float) and math.isinf(value) else plain(value)
    return {True: "yes", False: "no"}[value] if isinstance(value, bool) else _visible(value)


def _visible(value: Any) -> Any:
    """Make control characters of a text visible; return HTML and other values unchanged."""
    return visible(value) if isinstance(value, str) and not hasattr(value, "__html__") else value


def _scripts(vega: str) -> dict[str, Any]:
    """Return the style sheet, the page's two scripts and their hashes; the browser runs no other script."""
    from markupsafe import Markup

    css, *parts = (_FOLDER.joinpath(name).read_text("utf-8") for name in ("page.css", "tables.js", "figures.js"))
    vega, script = vega.replace("\r", "").replace("</script", "<\\/script"), "\n".join(parts)
    digests = [base64.b64encode(hashlib.sha256(each.encode()).digest()).decode() for each in (vega, script)]
    hashes = " ".join(f"'sha256-{each}'" for each in digests)
    safe = {"css": css, "vega": vega, "script": script, "hashes": hashes}
    return {name: Markup(text) for name, text in safe.items()}
