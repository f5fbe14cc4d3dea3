"""What the published table says, from the packaged table alone; docs/published.md shows what its commands print.

``python tests/plugins/test_findings.py`` writes the outputs into that page.
"""

import io
import os
import re
import shlex
import sys
from contextlib import redirect_stdout
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

from collapse import Results, analyze

PAGE = Path(__file__).parents[2] / "docs" / "published.md"
BLOCK = re.compile(r"```console\n(.*?)```", re.DOTALL)
COMMAND = re.compile(r"^\$ (?:.*\\\n)*.*\n", re.MULTILINE)
NUMBER = re.compile(r"[+-]?\d[\d,]*\.?\d*(?:e-?\d+)?")
SEEDS = "model=02x0768_01d*"


@pytest.fixture(scope="module")
def paper():
    return Results.read("paper")


def correlations(table, what="r"):
    return {row["column"]: row[what] for row in table.records()}


def digits(values, digits=3):
    return {name: f"{value:.{digits}f}" for name, value in values.items()}


def test_table_1(paper):
    found = analyze("permutation", paper, columns="paper", where=SEEDS)
    r2 = {
        "nc1.cdnv": "0.192011",
        "nc2.equinormness": "0.026174",
        "nc2.equiangularity": "0.218574",
        "gnc2.uncentred_uniformity": "0.487935",
        "nc3.self_duality": "0.322210",
        "unc3.uniform_duality": "0.000036",
        "nc4.agreement": "0.490278",
    }
    p = {  # of 6 million permutations
        "nc1.cdnv": 0.0476,
        "nc2.equinormness": 0.4814,
        "nc2.equiangularity": 0.0322,
        "gnc2.uncentred_uniformity": 0.00051,
        "nc3.self_duality": 0.0073,
        "unc3.uniform_duality": 0.9791,
        "nc4.agreement": 0.00036,
    }
    assert digits(correlations(found, "R2"), 6) == r2
    for row in found.records():
        expected = p[row["column"]]
        assert row["p"] == pytest.approx(expected, abs=4 * np.sqrt(expected * (1 - expected) / 99_999))
    assert [row["p"] for row in found.records()] == sorted(row["p"] for row in found.records())
    survive = {row["column"] for row in found.records() if row["max_t_p"] < 0.05}
    assert survive == {"gnc2.uncentred_uniformity", "nc3.self_duality", "nc4.agreement"}
    assert {row["column"] for row in found.records() if row["agrees"]} == survive


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


BLOCKS = BLOCK.findall(PAGE.read_text("utf-8"))


@pytest.mark.parametrize("at", range(len(BLOCKS)))
def test_the_page_shows_what_its_commands_print(at, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    for command, said in runs(BLOCKS[at]):
        now = printed(command)
        assert max(len(line) for line in now.splitlines()) <= 80
        # resampling may give other last digits with another NumPy
        assert " ".join(NUMBER.sub("#", now).split()) == " ".join(NUMBER.sub("#", said).split()), command
        numbers = [[float(each.replace(",", "")) for each in NUMBER.findall(text)] for text in (now, said)]
        assert numbers[0] == pytest.approx(numbers[1], rel=0.1, abs=0.02), command


def write():
    """Write the outputs into the page."""
    os.environ["COLUMNS"] = "80"
    page = PAGE.read_text("utf-8")
    PAGE.write_text(
        BLOCK.sub(lambda block: "```console\n" + "\n".join(c + printed(c) for c, _ in runs(block[1])) + "```", page),
        "utf-8",
    )


if __name__ == "__main__":
    sys.exit(write())
