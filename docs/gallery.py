"""Make the pictures of docs/gallery.md from the published table, and the list of their numbers, gallery/figures.json.

Run ``python docs/gallery.py`` after changing a figure. ``--check`` only compares numbers and captions, and exits with 1
and the names of outdated pictures: a picture's bytes differ between versions of vl-convert, its numbers do not.
"""

import json
import math
import re
import sys
import xml.etree.ElementTree as ET
from itertools import groupby
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import collapse
from collapse import Results

FOLDER = Path(__file__).resolve().parent / "gallery"
INDEX = FOLDER / "figures.json"
SEEDS = "model=02x0768_01d*"
PICTURES: dict[str, str | None] = {
    "loss": None,
    "geometry": None,
    "duality": None,
    "permutation-null": SEEDS,
    "scaling-width": None,
    "scaling-depth": None,
    "scaling-epochs": None,
    "scaling-decay": None,
    "reachable": None,
    "dimension": "seed=",
}
"""The figures, and the rows that each shows (None for all)."""

_CLOSE = 1e-3  # of means: p-values of a permutation test may differ by one permutation
_SVG = "http://www.w3.org/2000/svg"
_DROPPED = re.compile(r"aria-.*|role|class|pointer-events|stroke-miterlimit|font-family")
_NUMBER = re.compile(r"-?\d+\.\d+(?:e-\d+)?")
_PLACES = {"d", "transform", "x", "y", "x2", "y2", "width", "height", "viewBox"}
_PLACED = re.compile(r"translate\((.+),(.+)\)")


def main(arguments: list[str]) -> int:
    """Write or check every picture; return the exit code."""
    if arguments not in ([], ["--check"]):
        print("usage: python docs/gallery.py [--check]", file=sys.stderr)  # noqa: T201  # a script's own output
        return 2
    if arguments:
        stale = outdated()
        for name in stale:
            print(f"docs/gallery/{name}.svg is out of date: run python docs/gallery.py", file=sys.stderr)  # noqa: T201
        return 1 if stale else 0
    FOLDER.mkdir(exist_ok=True)
    made = {}
    with TemporaryDirectory() as folder:
        for name in PICTURES:
            made[name] = about(name, Path(folder), "svg,csv")
            small = slim((Path(folder) / f"{name}.svg").read_text("utf-8"), made[name]["title"])
            (FOLDER / f"{name}.svg").write_text(small, "utf-8")
    INDEX.write_text(json.dumps(made, indent=1, ensure_ascii=False) + "\n", "utf-8")
    return 0


def outdated() -> list[str]:
    """Return the pictures whose numbers, caption or file are not those of the installed figures."""
    kept = json.loads(INDEX.read_text("utf-8"))
    with TemporaryDirectory() as folder:
        now = {name: about(name, Path(folder), "csv") for name in PICTURES}
    missing = [name for name in now if not (FOLDER / f"{name}.svg").is_file()]
    return [name for name in {**now, **kept} if name in missing or not _same(now.get(name), kept.get(name))]


def about(name: str, folder: Path, formats: str) -> dict[str, Any]:
    """Draw a figure into a folder; return its title, caption, number of rows and the mean of each column of numbers."""
    (saved,) = collapse.save_figures("paper", folder, formats=formats, names=name, width="page", where=PICTURES[name])
    if saved.problem:
        raise SystemExit(f"figure {name} is not drawn: {saved.problem}")
    frame = Results.read(folder / f"{name}.csv").frame()
    means = {str(each): float(f"{frame[each].mean():.6g}") for each in frame.select_dtypes("number")}
    return {"title": saved.title, "caption": saved.caption, "rows": len(frame), "means": means}


def _same(now: dict[str, Any] | None, kept: dict[str, Any] | None) -> bool:
    if not now or not kept or now["means"].keys() != kept["means"].keys():
        return False
    close = all(math.isclose(value, kept["means"][name], rel_tol=_CLOSE) for name, value in now["means"].items())
    return close and all(now[key] == kept[key] for key in ("title", "caption", "rows"))


def slim(svg: str, title: str) -> str:
    """Return a picture that looks the same in a fifth of the bytes, for a repository.

    What a screen reader would say of each of a thousand points gives way to the title, coordinates have one decimal,
    invisible paths are left out, and equal ones become references in groups of one style.
    """
    ET.register_namespace("", _SVG)
    root = ET.fromstring(svg)
    fonts = [font for each in root.iter() if (font := each.get("font-family"))]
    shapes: dict[str, str] = {}
    _slim(root, shapes)
    defined = ET.Element(f"{{{_SVG}}}defs")
    defined.extend(ET.Element(f"{{{_SVG}}}path", {"id": name, "d": d}) for d, name in shapes.items())
    root.insert(0, defined)
    root.attrib |= {"role": "img", "aria-label": title, "font-family": fonts[0] if fonts else "sans-serif"}
    return ET.tostring(root, "unicode").replace(" />", "/>") + "\n"


def _slim(node: ET.Element, shapes: dict[str, str]) -> None:
    for name in [each for each in node.attrib if _DROPPED.fullmatch(each) or node.get(each) == "translate(0,0)"]:
        del node.attrib[name]
    if node.get("opacity") == "1":
        del node.attrib["opacity"]
    for name in _PLACES & {*node.attrib}:
        node.attrib[name] = _NUMBER.sub(_rounded, node.attrib[name])
    if node.tag.endswith(("clipPath", "defs")):
        return
    for child in list(node):
        _slim(child, shapes)
    kept: list[ET.Element] = []
    for child in node:
        if child.tag == f"{{{_SVG}}}g" and not child.attrib:
            kept += child
        elif not _invisible(child):
            kept.append(_referred(child, shapes))
    node[:] = _grouped(kept)


def _invisible(node: ET.Element) -> bool:
    unpainted = node.tag == f"{{{_SVG}}}path" and not {"fill", "stroke"} & {*node.attrib}
    return unpainted or node.get("display") == "none" or (node.tag == f"{{{_SVG}}}g" and len(node) == 0)


def _referred(node: ET.Element, shapes: dict[str, str]) -> ET.Element:
    """Return a reference instead of a symbol, which is a path at a place."""
    placed = _PLACED.fullmatch(node.get("transform", ""))
    if node.tag != f"{{{_SVG}}}path" or not placed or "A" not in node.get("d", ""):
        return node
    name = shapes.setdefault(node.attrib.pop("d"), f"s{len(shapes)}")
    del node.attrib["transform"]
    return ET.Element(f"{{{_SVG}}}use", {"href": f"#{name}", "x": placed[1], "y": placed[2], **node.attrib})


def _grouped(nodes: list[ET.Element]) -> list[ET.Element]:
    """Put neighbours of one style into a group that has it."""
    own = {*_PLACES, "href"}
    made: list[ET.Element] = []
    leaves = ("path", "use", "line")

    def style(node: ET.Element) -> tuple[Any, ...]:
        leaf = node.tag.endswith(leaves) and len(node) == 0
        return (leaf, *sorted(each for each in node.items() if each[0] not in own)) if leaf else (leaf, id(node))

    for key, run in groupby(nodes, key=style):
        alike = list(run)
        if not key[0] or len(alike) < 2:
            made += alike
            continue
        group = ET.Element(f"{{{_SVG}}}g", dict(key[1:]))
        for each in alike:
            each.attrib = {name: value for name, value in each.items() if name in own}
        group.extend(alike)
        made.append(group)
    return made


def _rounded(number: re.Match[str]) -> str:
    return f"{round(float(number[0]), 1) + 0.0:g}"  # + 0.0 takes the sign from a zero


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
