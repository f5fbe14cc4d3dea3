"""--format and --output of every command that prints a table, and the options of every command."""

import csv
import io
import json
import shutil

import pytest
from safetensors.torch import save_file

import collapse
from collapse import Table
from collapse.testing import random_features

FORMATS = ("table", "markdown", "latex", "csv", "json")
COMMANDS = ["measure", "compare", "metrics", "analyze", "zoo list"]


@pytest.fixture(scope="module")
def prepared(tmp_path_factory):
    """Four models, their stores, and a table of them."""
    folder = tmp_path_factory.mktemp("prepared")
    rows = []
    for seed in range(4):
        path = folder / f"model_{seed}.safetensors"
        save_file(random_features(10, 8, 120, seed=seed), path)
        rows.append(collapse.measure(collapse.collect(path, store=folder / f"store_{seed}")))
    collapse.Results(rows).write(folder / "results.csv")
    return folder


@pytest.fixture
def measured(prepared, tmp_path):
    """A copy of them, and the commands that print tables."""
    shutil.copytree(prepared, tmp_path, dirs_exist_ok=True)
    stores = [str(tmp_path / f"store_{seed}") for seed in range(4)]
    return {
        "measure": ["measure", tmp_path / "model_0.safetensors", tmp_path / "model_1.safetensors"],
        "compare": ["compare", *stores[:2], "--metrics", "nc2"],
        "metrics": ["metrics", "nc2"],
        "analyze": ["analyze", "permutation", tmp_path / "results.csv", "--columns", "nc1,nc3.dot"],
        "zoo list": ["zoo", "list", "--published", "--width", 64, "--metrics", "val_loss"],
    }


@pytest.mark.parametrize("name", COMMANDS)
def test_each_format_holds_the_same(out, run, measured, tmp_path, name):
    words = measured[name]
    shown = {format_: out(*words, "--format", format_) for format_ in FORMATS}
    assert out(*words) == shown["table"]
    assert out(*words, "--format", "csv", "--json") == shown["json"]  # the last counts
    data = json.loads(shown["json"])
    records = data["rows"] if isinstance(data, dict) else data
    assert len(list(csv.DictReader(io.StringIO(shown["csv"])))) == len(records)
    assert shown["markdown"].count("\n| ") >= 2
    assert shown["latex"].count(r"\\") >= 2
    for suffix, format_ in ((".md", "markdown"), (".TEX", "latex"), (".csv", "csv"), (".json", "json")):
        file = tmp_path / f"made{suffix}"
        file.write_text("what was there is replaced")
        assert f"written to {file}" in run(*words, "--output", file).stderr.splitlines()[-1]
        assert file.read_text().rstrip("\n") == shown[format_].rstrip("\n")


def test_measure_prints_the_headlines_or_what_is_asked_for(out, measured):
    def names(*words):
        lines = [line for line in out(*words, "--format", "markdown").splitlines() if line.startswith("| ")]
        return {line.split("|")[2].strip() for line in lines[2:]}

    words = measured["measure"]
    few, every = names(*words), names(*words, "--all")
    assert {"nc1.cdnv", "nc2.equinormness", "unc3.uniform_duality"} <= few < every
    assert "more measurements" not in out(*words, "--all")
    assert names(*words, "--metrics", "NC3") == {name for name in every if name.startswith("nc3.")}


def test_latex_has_no_markup_of_the_texts():
    made = Table("", ["[a]", "b_c"], [["*x|y", "$μ <y"], ["-1.5 to -0.5", "‖u‖ 1.5e-05"]]).latex()
    assert r"{[}a] & b\_c \\" in made  # a bracket after the end of a line would be an argument
    assert r"{*}x\textbar{}y & \$\ensuremath{\mu} \ensuremath{<}y \\" in made
    assert r"$-$1.5 to $-$0.5 & \ensuremath{\|}u\ensuremath{\|} $1.5 \times 10^{-5}$ \\" in made
