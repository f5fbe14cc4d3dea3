"""Pages on the published table: gallery.md, dimension.md and published.md show what its commands print.

``python tests/plugins/test_pages.py`` writes the outputs into published.md; test_docs_examples.py runs the commands.
"""

import importlib.util
import io
import os
import re
import shlex
import subprocess
import sys
from contextlib import redirect_stdout
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

from collapse import analyze
from collapse_metrics.gnc2 import uniform_cov

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
PUBLISHED, GALLERY, DIMENSION = (DOCS / "paper" / f"{name}.md" for name in ("published", "gallery", "dimension"))
BLOCK = re.compile(r"```console\n(.*?)```", re.DOTALL)
COMMAND = re.compile(r"^\$ (?:.*\\\n)*.*\n", re.MULTILINE)
NUMBER = re.compile(r"[+-]?\d[\d,]*\.?\d*(?:e-?\d+)?")
BLOCKS = BLOCK.findall(PUBLISHED.read_text("utf-8"))
D_EFF, UNCENTRED = "nc2.effective_dimension", "gnc2.uncentred_uniformity"


def text_of(page):
    return page.read_text("utf-8").replace("−", "-")


def rows(page, start):
    """The first table after a heading or the start of its first row: its rows of cells, without marks."""
    (table,) = re.findall(rf"^{re.escape(start)}(?:.*\n)*?\|? ?---.*\n((?:\|.*\n)+)", text_of(page), re.M)
    return [[cell.strip().strip("`") for cell in line.strip("|").split("|")] for line in table.splitlines()]


def printed(command):
    """What a command of the page prints in a terminal of 80 columns."""
    from collapse.cli import _add_commands, _run

    _add_commands()
    words = shlex.split(command.replace("\\\n", " "))
    shown = io.StringIO()
    with redirect_stdout(shown):
        assert _run(words[2:]) == 0
    return "\n".join(line.rstrip() for line in shown.getvalue().splitlines()).strip("\n") + "\n"


def runs(block):
    """The commands of a block, with the output below each."""
    starts = [match.start() for match in COMMAND.finditer(block)] + [len(block)]
    for start, end in pairwise(starts):
        command = COMMAND.match(block[start:end])[0]
        yield command, block[start:end].removeprefix(command)


@pytest.mark.parametrize("at", range(len(BLOCKS)))
def test_published_shows_what_its_commands_print(at, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    for command, said in runs(BLOCKS[at]):
        now = printed(command)
        assert max(len(line) for line in now.splitlines()) <= 80
        # resampling may give other last digits with another NumPy
        assert " ".join(NUMBER.sub("#", now).split()) == " ".join(NUMBER.sub("#", said).split()), command
        numbers = [[float(each.replace(",", "")) for each in NUMBER.findall(text)] for text in (now, said)]
        assert numbers[0] == pytest.approx(numbers[1], rel=0.1, abs=0.02), command


def test_the_pictures_are_current_and_shown_with_their_commands():
    spec = importlib.util.spec_from_file_location("docs_gallery", DOCS / "gallery.py")
    script = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(script)
    assert script.outdated() == []
    pages = text_of(GALLERY) + text_of(DIMENSION)
    shown = re.findall(r"\(gallery/([\w-]+)\.svg\)", pages)
    assert sorted(shown) == sorted(script.PICTURES) == sorted(each.stem for each in script.FOLDER.glob("*.svg"))
    assert sum((script.FOLDER / f"{name}.svg").stat().st_size for name in shown) < 2_000_000
    commands = [line for line in pages.splitlines() if line.startswith("$ collapse figures paper")]
    for name, where in script.PICTURES.items():
        (command,) = [line for line in commands if re.search(rf"--figure {name}\b(?!-)", line)]
        assert (where or "--where") in command or where is None, command


def test_figure_1_and_table_1():
    found = analyze("correlation", "paper", columns="figure1", cluster="architecture").records()
    r2 = {row["column"]: f"{row['R2']:.3f}" for row in found}
    figure, table = rows(GALLERY, "## Figure 1"), rows(GALLERY, "## Table 1")
    assert {row[1]: row[2] for row in figure} == r2
    records = analyze("permutation", "paper", columns="paper", where="model=02x0768_01d*").records()
    tested = {row["column"]: row for row in records}
    assert {row[1] for row in table} == set(tested)
    for _, column, published, exact, r2, p in table:
        assert published == r2 == f"{tested[column]['R2']:.6f}"
        assert float(p) == pytest.approx(tested[column]["p"], rel=0.1, abs=2e-4)
        assert float(exact) == pytest.approx(tested[column]["p"], rel=0.1, abs=2e-4)
    survive = {row["column"] for row in records if row["max_t_p"] < 0.05}
    assert survive == {UNCENTRED, "nc3.self_duality", "nc4.agreement"}
    assert {row["column"] for row in records if row["agrees"]} == survive - {UNCENTRED}  # which has no predicted sign


def test_the_example_prints_the_numbers_of_the_page():
    command = [sys.executable, ROOT / "examples" / "effective_dimension.py"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    table = rows(DIMENSION, "| D |")
    lines = [line for line in done.stdout.splitlines() if "D = " in line]
    found = [[*map(float, re.findall(r"(?<!\w)-?\d+\.?\d*", line))] for line in lines]
    assert np.array(found) == pytest.approx(np.array([[*map(float, row[:4])] for row in table]), rel=0.02)
    assert [row[4] for row in table] == [f"{uniform_cov(2000, int(row[0])):.3f}" for row in table]
    assert f"log({D_EFF}) -0.937" in done.stdout


def write():
    """Write the outputs into published.md."""
    os.environ["COLUMNS"] = "80"

    def current(block):
        return "```console\n" + "\n".join(command + printed(command) for command, _ in runs(block[1])) + "```"

    PUBLISHED.write_text(BLOCK.sub(current, PUBLISHED.read_text("utf-8")), "utf-8")


if __name__ == "__main__":
    sys.exit(write())
