"""Draw figures and write them into a folder, as pictures or as tables of their numbers."""

from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast, get_args

from collapse.core.images import Format, converted, inches, svg_of, vl_convert
from collapse.core.paths import expanded
from collapse.core.progress import Report
from collapse.core.reading import read_json
from collapse.errors import CollapseError, UsageError, first_line, near_names
from collapse.measurement.output import as_csv, as_json
from collapse.plugin.figures import Drawing, numbers_of
from collapse.plugin.plugin_manager import plugins
from collapse.showing.material import Source, gather
from collapse.stores.writing import check_output_place, write_output

FORMATS = (*get_args(Format), "csv")
INDEX = "figures.json"
"""The file with the captions of the figures that were written into a folder."""


@dataclass(frozen=True)
class SavedFigure:
    """The result of saving a figure.

    Attributes:
        name: Name of the figure.
        files: The written files.
        problem: Why the figure was not drawn, or "".
        title: Title of the figure.
        caption: What is drawn, from which data.
        notes: Remarks, such as excluded rows.
    """

    name: str
    files: tuple[Path, ...] = ()
    problem: str = ""
    title: str = ""
    caption: str = ""
    notes: tuple[str, ...] = ()


def save_figures(
    sources: Source | Iterable[Source],
    folder: str | Path,
    *,
    formats: str | Sequence[str] = "pdf",
    names: str | Sequence[str] | None = None,
    width: str | float = "column",
    where: str | Sequence[str] | None = None,
    progress: Report | None = None,
) -> list[SavedFigure]:
    """Draw figures of results and stores, as wide as a printed column or page, and write them into a folder.

    Args:
        sources: One source or several: results tables or their files, which are joined; stores, their folders, or their
            names on the Hub; or parts of collections (``--part k/n``). Parts are drawn only by figures of parts, such
            as ``convergence``.
        folder: Folder for a file per figure and format, such as ``loss.pdf``, and for ``figures.json`` with titles and
            captions. Existing files are replaced.
        formats: One or more of "pdf", "svg", "png" (300 pixels per inch), and "csv" for the drawn numbers; as a list or
            as one text with commas.
        names: A name or names of figures; None for all that can be drawn.
        width: "column" (3.25 inches), "page" (6.75), or inches.
        where: Keep the rows whose column matches a glob, such as ``model=*_10L@9``.
        progress: Called as progress(what, done, total[, note]) while stores are measured and figures are drawn.

    Returns:
        The result for each figure; its ``problem`` says why a figure was not drawn.

    Raises:
        UsageError: A source, figure, format or width is unknown; no row matches ``where``; or no file can be created
            in the folder.
        CollapseError: A source cannot be read, writing a file fails, or the extra ``report`` is not installed.
    """
    kinds = list(dict.fromkeys(formats.split(",") if isinstance(formats, str) else formats))
    for each in kinds:
        if each not in FORMATS:
            raise UsageError(f"--format {each!r} is unknown; {near_names(each, FORMATS)}")
    known, size = plugins(), inches(width)
    wanted = sorted(known.figures) if names is None else [names] if isinstance(names, str) else list(names)
    figures = [known.figure(name) for name in dict.fromkeys(wanted)]
    if set(kinds) - {"csv"}:
        vl_convert()  # raise before any work if it is not installed
    folder = expanded(folder)
    check_output_place(folder / INDEX)
    saved, index = [], dict[str, Any]()
    with suppress(OSError, ValueError, TypeError):  # captions of figures that an earlier command wrote
        index |= read_json(folder / INDEX)
    for figure, drawing, problem in gather(sources, progress, where=where).drawn(figures, progress):
        try:
            made = {} if drawing is None else _made(drawing, kinds, size)
        except CollapseError as error:
            drawing, problem = None, first_line(error)
        if drawing is None:
            saved.append(SavedFigure(figure.name, problem=problem))
            continue
        files = tuple(folder / f"{figure.name}.{kind}" for kind in made)
        for path, content in zip(files, made.values(), strict=True):
            write_output(path, content)
        about: dict[str, Any] = {"title": drawing.title, "caption": drawing.caption, "notes": drawing.notes}
        index[figure.name] = about | {"files": [path.name for path in files]}
        saved.append(SavedFigure(figure.name, files, **about))
    if any(each.files for each in saved):
        write_output(folder / INDEX, f"{as_json(index)}\n".encode(errors="replace"))
    return saved


def _made(drawing: Drawing, kinds: Sequence[str], width: float) -> dict[str, bytes]:
    import pandas as pd

    pictures = set(kinds) - {"csv"}
    svg = svg_of({**drawing.spec, "description": drawing.title}, width=width) if pictures else ""
    made = {kind: converted(svg, cast(Format, kind)) for kind in kinds if kind in pictures}
    return made | ({"csv": as_csv(pd.DataFrame(numbers_of(drawing.spec))).encode()} if "csv" in kinds else {})
