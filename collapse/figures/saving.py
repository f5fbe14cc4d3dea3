"""Draw figures and write them into a folder, as pictures and as tables of their numbers."""

import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, cast, get_args

from collapse.errors import CollapseError, UsageError, first_line, near_names
from collapse.figures.rendering import Format, check_installed, converted, inches, svg_of
from collapse.figures.sources import Material, Source, gather
from collapse.measurement.drawing import draw
from collapse.measurement.results import as_csv
from collapse.paths import expanded
from collapse.plugin.figures import Drawing, Figure, numbers_of
from collapse.plugin.plugin_manager import plugins
from collapse.progress import Report
from collapse.reading import read_json
from collapse.stores.files import sha256_file
from collapse.stores.manifest import is_store
from collapse.stores.writing import ANOTHER_FOLDER, check_output_place, write_output

FORMATS = (*get_args(Format), "csv")
INDEX = "figures.json"
"""The list of what was written into a folder, with captions; files whose hash it holds may be replaced."""


@dataclass(frozen=True)
class SavedFigure:
    """What became of a figure.

    Attributes:
        name: The figure.
        files: What was written.
        problem: Why it was not drawn, or "".
        title: Its title.
        caption: What is drawn, and of what.
        notes: Remarks, such as rows left out.
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
    dark: bool = False,
    where: str | Sequence[str] | None = None,
    progress: Report | None = None,
) -> list[SavedFigure]:
    """Draw figures of results and stores into a folder, at a width in print.

    Args:
        sources: Results tables or their files, which are joined; and stores, their folders, or their names on the Hub;
            parts of collections (``--part k/n``) are drawn by figures of parts, such as ``convergence``, only.
        folder: Gets a file per figure and format, ``loss.pdf``, and ``figures.json`` with titles and captions.
        formats: "pdf", "svg", "png" (300 pixels an inch), and "csv" for the numbers that are drawn.
        names: The figures; None for all that can be drawn.
        width: "column" (3.25 inches), "page" (6.75), or inches.
        dark: On a dark background.
        where: Keep the rows whose column matches a glob, such as ``model=*_10L@9``.
        progress: Called as ``progress("figures", done, total)``.

    Returns:
        What became of each figure; ``problem`` says why one was not drawn.

    Raises:
        UsageError: An unknown figure, format or width; a file cannot be written, or exists and is not of this command.
        CollapseError: A source cannot be read, a file cannot be written, or the extra ``report`` is not installed.
    """
    chosen, kinds, size = _figures(names), _formats(formats), inches(width)
    if set(kinds) - {"csv"}:
        check_installed()
    folder = expanded(folder)
    written = _check_place(folder, [f"{each.name}.{kind}" for each in chosen for kind in kinds])
    given = gather(sources, progress, where=where)
    saved = []
    for done, each in enumerate(chosen):
        if progress is not None:
            progress("figures", done, len(chosen))
        try:
            drawing = _drawn(each, given)
            files = {folder / f"{each.name}.{kind}": made for kind, made in _made(drawing, kinds, size, dark).items()}
        except CollapseError as error:
            saved.append(SavedFigure(each.name, problem=_reason(each, error)))
            continue
        for path, made in files.items():
            write_output(path, made, other=ANOTHER_FOLDER)
        saved.append(
            SavedFigure(each.name, tuple(files), title=drawing.title, caption=drawing.caption, notes=drawing.notes)
        )
        written |= _entries(saved[-1], written)
        index = json.dumps(written, indent=1, ensure_ascii=False) + "\n"
        write_output(folder / INDEX, index.encode("utf-8", "replace"), other=ANOTHER_FOLDER)
    if progress is not None:
        progress("figures", len(chosen), len(chosen))
    return saved


def _figures(names: str | Sequence[str] | None) -> list[Figure]:
    known = plugins()
    if names is None:
        return [known.figures[name] for name in sorted(known.figures)]
    listed = [names] if isinstance(names, str) else list(names)
    return [known.figure(name) for name in dict.fromkeys(listed)]


def _formats(formats: str | Sequence[str]) -> list[str]:
    listed = formats.split(",") if isinstance(formats, str) else formats
    if not isinstance(listed, Sequence) or not all(isinstance(each, str) for each in listed):
        raise UsageError(f"formats is {formats!r:.40}: give names of formats ({', '.join(FORMATS)})")
    kinds = list(dict.fromkeys(each.strip().lower() for each in listed))
    for each in kinds:
        if each not in FORMATS:
            raise UsageError(f"--format {each!r} is not a format of figures; {near_names(each, FORMATS)}")
    return kinds


def _check_place(folder: Path, names: Sequence[str]) -> dict[str, Any]:
    """Check that every file can be written and replaces only one of ours; return what the index holds."""
    if folder.exists() and not folder.is_dir():
        raise UsageError(f"--out {folder} is not a folder: choose another one")
    for each in (folder, *folder.resolve().parents):
        if is_store(each):
            raise UsageError(f"--out {folder} would write figures into the store {each}: choose another folder")
    written = _index(folder)
    for name in (*names, INDEX):
        path = folder / name
        check_output_place(path, other=ANOTHER_FOLDER)
        if name != INDEX and path.exists() and sha256_file(path, remember=False) not in _hashes(written):
            raise UsageError(
                f"{path} exists and was not written by collapse figures: choose another --out, or remove it"
            )
    return written


def _index(folder: Path) -> dict[str, Any]:
    path = folder / INDEX
    if not path.exists():
        return {}
    try:
        found = read_json(path)
        if isinstance(found, dict) and all("files" in each and "caption" in each for each in found.values()):
            return found
    except (OSError, ValueError, TypeError):
        pass
    raise UsageError(f"{path} exists and is not a list of figures of collapse: choose another --out, or remove it")


def _hashes(written: dict[str, Any]) -> set[str]:
    return {each for entry in written.values() for each in dict(entry["files"]).values()}


def _entries(saved: SavedFigure, written: dict[str, Any]) -> dict[str, Any]:
    """Return the index's entry of a figure; files of other formats, written before, stay listed."""
    about = {key: value for key, value in asdict(saved).items() if key in ("title", "caption", "notes")}
    before = dict(written.get(saved.name, {}).get("files", {}))
    return {
        saved.name: {**about, "files": before | {path.name: sha256_file(path, remember=False) for path in saved.files}}
    }


def _drawn(each: Figure, given: Material) -> Drawing:
    made_of = given.of(each.of)
    if not len(made_of):
        raise CollapseError(f"it is drawn from {each.of}, and none is given")
    return draw(each.name, made_of)


def _made(drawing: Drawing, kinds: Sequence[str], width: float, dark: bool) -> dict[str, bytes]:
    made: dict[str, bytes] = {}
    svg = ""
    for kind in kinds:
        if kind == "csv":
            made[kind] = _numbers(drawing)
            continue
        svg = svg or svg_of({**drawing.spec, "description": drawing.title}, width=width, dark=dark)
        made[kind] = converted(svg, cast(Format, kind))
    return made


def _numbers(drawing: Drawing) -> bytes:
    import pandas as pd

    return as_csv(pd.DataFrame(numbers_of(drawing.spec)))


def _reason(each: Figure, error: CollapseError) -> str:
    """Return an error without the name of the figure, which is shown before it."""
    return first_line(error).removeprefix(f"figure {each.name} ")
