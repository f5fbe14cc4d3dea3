"""Write a report of results and stores: one HTML file with what stands out, figures, tables and methods."""

import os
from collections.abc import Iterable
from importlib.util import find_spec
from pathlib import Path

from collapse.errors import CollapseError, UsageError
from collapse.figures.sources import Material, Source, gather
from collapse.figures.theme import theme
from collapse.plugin.plugin_manager import plugins
from collapse.progress import Report
from collapse.progress_bar import shows_progress
from collapse.reading import open_regular
from collapse.reporting.drawn import Drawn, draw_all
from collapse.reporting.measurements import measurement_table
from collapse.reporting.methods import definition_table, row_table, source_table, store_tables, version_table
from collapse.reporting.overview import LOSS, called, findings, warnings
from collapse.reporting.page import MARK, Section, bullets, figure, page_of, paragraphs, table
from collapse.reporting.tables import analysis_table, tests_of, token_tables
from collapse.stores.writing import check_output_place, write_output
from collapse.vocabulary.choosing import check_number

_SUFFIXES = (".html", ".htm")
_TEXT = 11.0  # pixels, of the labels of figures
_BEGINNING = 200  # bytes of a file in which the mark of a report must be


@shows_progress
def report(
    sources: Source | Iterable[Source],
    output: str | Path = "report.html",
    *,
    title: str | None = None,
    permutations: int = 9_999,
    tokens: int = 2_000,
    tokenizer: str | Path | None = None,
    progress: Report | None = None,
) -> Path:
    """Write a report of results and stores as one HTML file, which opens from disk and loads nothing.

    It holds what stands out in words, every figure that the rows or stores allow, sortable tables of measurements and
    tokens, what goes with validation loss, and how all of it was made. Needs the extra ``report``.

    Args:
        sources: Results tables or their files (.csv, .json, .parquet), rows, stores or their folders, or names of
            stores on the Hub; or one of these. Stores are measured, unless they keep the present measurements; parts
            of a collection give no row, but a curve of convergence.
        output: The file, .html. An existing file is replaced only if it is a report.
        title: Its title; by default it names the sources.
        permutations: Random permutations of the test against validation loss.
        tokens: How many of the most frequent tokens of a store are in its table.
        tokenizer: Folder or Hub id of the stores' tokenizer; None for the one that each records.
        progress: Called as progress(what, done, total).

    Returns:
        The path of the file.

    Raises:
        UsageError: A source is unknown, or the file cannot be written or is no report.
        CollapseError: A source cannot be read, there is no row, or the extra is not installed.
    """
    if not isinstance(output, str | Path):
        raise UsageError(f"output is of type {type(output).__name__}: give the path of a page, as report.html")
    output = Path(output)
    check_report_place(output)
    for number, name in ((permutations, "permutations"), (tokens, "tokens")):
        check_number(number, name)
    if find_spec("vl_convert") is None:
        raise CollapseError("vl_convert is not installed: pip install 'linguistic-collapse[report]'")
    material = gather(sources, progress)
    if not len(material.results):
        names = ", ".join(name for _, name, _ in material.origins)
        raise CollapseError(f"{names}: parts of a collection make no row: merge them (collapse merge), or add results")
    frame = material.results.frame()
    if not any(name in frame and frame[name].notna().any() for name in (LOSS, *plugins().measurements())):
        names = ", ".join(name for _, name, _ in material.origins)
        raise CollapseError(
            f"{names}: no row has a measurement or a validation loss: collapse measure MODEL --output results.csv "
            f"makes such rows (the columns are {', '.join(map(called, frame.columns[:6]))})"
        )
    figures = draw_all(material, progress)
    themes = {name: theme(dark=name == "dark", text=_TEXT) for name in ("light", "dark")}
    of_tokens, lacking = token_tables(material.stores, tokens, tokenizer, progress)
    about_tokens = "".join(table(f"tokens-{number}", each) for number, each in enumerate(of_tokens))
    about_tokens += paragraphs(lacking, "note")
    sections = [
        *_about_rows(material, permutations, figures),
        *([Section("tokens", "Tokens", about_tokens)] if about_tokens else []),
        *_methods(material, figures),
    ]
    made = page_of(title or _title(material), sections, vega=_vega(), themes=themes)
    write_output(output, made.encode())
    return output


def check_report_place(output: Path) -> None:
    """Check that a report may be written to a path, before any work is done for it.

    Raises:
        UsageError: It is no .html file, cannot be written, or exists and is no report.
    """
    if output.suffix.lower() not in _SUFFIXES:
        raise UsageError(f"{output} is not a page: the name of a report must end in .html")
    check_output_place(output, in_folder=True)
    if not output.exists():
        return
    try:
        with open_regular(output) as file:
            beginning = file.read(_BEGINNING)
    except OSError as error:
        raise UsageError(f"{output} exists and cannot be read: {os.strerror(error.errno or 0)}") from error
    if beginning and MARK.encode() not in beginning:
        raise UsageError(f"{output} exists and is not a report of collapse: choose another --output")


def _title(material: Material) -> str:
    names = [called(name) for _, name, _ in material.origins]
    return f"Neural collapse: {', '.join(names[:3])}{f' and {len(names) - 3} more' if len(names) > 3 else ''}"


def _about_rows(material: Material, permutations: int, figures: list[Drawn]) -> list[Section]:
    frame = material.results.frame()
    tests = tests_of(material.results, permutations)
    overview = paragraphs(warnings(frame), "warning") + bullets(findings(frame, tests))
    drawn = "".join(figure(each) for each in figures if each.drawing is not None)
    analyses = {**tests.over, **{f"{name}-within": each for name, each in tests.within.items()}}
    association = "".join(table(name, analysis_table(each)) for name, each in analyses.items())
    association += paragraphs(tests.lacking, "note")
    sections = [Section("overview", "What stands out", overview)]
    if drawn:
        sections.append(Section("figures", "Figures", drawn))
    measured = table("measurements", measurement_table(material.results), heading=False)
    sections.append(Section("measurements", "Measurements", measured))
    if association:
        sections.append(Section("association", "What goes with loss", association))
    return sections


def _methods(material: Material, figures: list[Drawn]) -> list[Section]:
    frame = material.results.frame()
    rows = row_table(frame)
    content = table("definitions", definition_table(frame)) + table("sources", source_table(material))
    content += table("rows", rows) if rows is not None else ""
    for number, each in enumerate(store_tables(material)):
        content += table(f"store-{number}", each, folded=True)
    content += table("versions", version_table())
    missing = "".join(figure(each) for each in figures if each.drawing is None)
    if missing:
        content += f"<h3>Figures that are not drawn</h3>\n{missing}"
    return [Section("methods", "Methods", content + paragraphs(plugins().problems, "note"))]


def _vega() -> str:
    """Return Vega, Vega-Lite and Vega-Embed as one script."""
    import vl_convert

    return str(vl_convert.javascript_bundle("window.vegaEmbed = vegaEmbed;"))
