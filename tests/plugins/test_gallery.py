"""docs/gallery.md: pictures and numbers are those of the installed table; test_docs_examples.py runs the commands."""

import importlib.util
import re
from pathlib import Path

import pytest

from collapse import Results, analyze

DOCS = Path(__file__).parents[2] / "docs"
PAGE = (DOCS / "gallery.md").read_text("utf-8")


@pytest.fixture(scope="module")
def script():
    pytest.importorskip("altair", reason="needs the extra report")
    spec = importlib.util.spec_from_file_location("docs_gallery", DOCS / "gallery.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def rows(heading):
    """The first table of a section: its rows of cells, without marks."""
    section = PAGE.partition(f"## {heading}")[2].partition("\n## ")[0]
    lines = [line.strip("|").split("|") for line in section.splitlines() if line.startswith("|")]
    return [[cell.strip().strip("`") for cell in line] for line in lines[2:]]


def test_the_pictures_are_current(script):
    assert script.outdated() == []


def test_every_picture_is_shown_with_its_command_and_is_small(script):
    pages = PAGE + (DOCS / "dimension.md").read_text("utf-8")
    shown = re.findall(r"\(gallery/([\w-]+)\.svg\)", pages)
    assert sorted(shown) == sorted(script.PICTURES) == sorted(each.stem for each in script.FOLDER.glob("*.svg"))
    sizes = [(script.FOLDER / f"{name}.svg").stat().st_size for name in shown]
    assert sum(sizes) < 2_000_000
    commands = [line for line in pages.splitlines() if line.startswith("$ collapse figures paper")]
    for name, where in script.PICTURES.items():
        (command,) = [line for line in commands if re.search(rf"--figure {name}\b(?!-)", line)]
        assert (where or "--where") in command or where is None, command


def test_figure_1_and_table_1():
    paper = Results.read("paper")
    found = analyze("correlation", paper, columns="figure1", cluster="architecture").records()
    r2 = {row["column"]: f"{row['R2']:.3f}" for row in found}
    assert {row[1]: row[3] for row in rows("Figure 1")} == r2
    assert all(row[2] == row[3] for row in rows("Figure 1"))
    tested = {
        row["column"]: row
        for row in analyze("permutation", paper, columns="paper", where="model=02x0768_01d*").records()
    }
    assert {row[1] for row in rows("Table 1")} == set(tested)
    for _, column, published, exact, r2, p in rows("Table 1"):
        assert published == r2 == f"{tested[column]['R2']:.6f}"
        assert float(p) == pytest.approx(tested[column]["p"], rel=0.1, abs=2e-4)
        assert float(exact) == pytest.approx(tested[column]["p"], rel=0.1, abs=2e-4)
