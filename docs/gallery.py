"""Make the pictures of docs/paper/gallery.md from the published table, and the list of their numbers, figures.json.

Run ``python docs/gallery.py`` after changing a figure. ``--check`` only compares numbers and captions, and exits with 1
and the names of outdated pictures: a picture's bytes differ between versions of vl-convert, its numbers do not.
"""

import json
import math
import re
import sys
from html import escape
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import collapse
from collapse import Results

FOLDER = Path(__file__).resolve().parent / "paper" / "gallery"
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


def main(arguments: list[str]) -> int:
    """Write or check every picture; return the exit code."""
    if arguments not in ([], ["--check"]):
        print("usage: python docs/gallery.py [--check]", file=sys.stderr)  # noqa: T201  # a script's own output
        return 2
    if arguments:
        stale = outdated()
        for name in stale:
            print(f"docs/paper/gallery/{name}.svg is out of date: run python docs/gallery.py", file=sys.stderr)  # noqa: T201
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
    """Return a picture that looks the same in less than half of the bytes, for a repository.

    A description of each of a thousand points gives way to the title, and coordinates have two decimals.
    """
    short = re.sub(r' (?:aria-[\w-]+|role|class|pointer-events|stroke-miterlimit)="[^"]*"', "", svg)
    short = re.sub(r"\d+\.\d{3,}(?![^<>]*<)", lambda number: f"{float(number[0]):.2f}", short)  # not in texts
    return short.replace("<svg ", f'<svg role="img" aria-label="{escape(title)}" ', 1) + "\n"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
