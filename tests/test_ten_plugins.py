"""Ten broken plugins, installed at once: each is told of in one line, and costs only itself."""

import json
import os
import re
import subprocess
import sys
from dataclasses import replace

import pytest
from safetensors.torch import save_file

import collapse
from collapse.cli.rendering import print_rows
from collapse.measurement.rows import Note
from collapse.testing import random_features, tiny_statistics

HEAD = """
import torch
from collapse import Mean, metric, pair_metric
"""


def metric(body, name):
    return f"{HEAD}\n@metric('{name}')\ndef value(means):\n    {body}\n"


def pair(body, name):
    return f"{HEAD}\n@pair_metric(Mean('{name}'))\ndef value(cosine):\n    {body}\n"


# Each plugin's text, the group of its entry point, and what the line about it says: plugin, function, remedy.
BROKEN = {
    "keyword": (
        metric("return 1.0", "bad.keyword").replace("(means)", "(maens)"),
        "collapse",
        r"plugin keyword: module_\d+\.value asks for 'maens', which nothing gives; did you mean means",
    ),
    "shape": (
        pair("return cosine.sum(dim=0)", "bad.shape"),
        "collapse",
        r"plugin shape: module_\d+\.value failed: .*must return a tensor of shape.*-p no:shape",
    ),
    "dtype": (
        pair("return cosine.to(torch.complex64)", "bad.dtype"),
        "collapse",
        r"plugin dtype: module_\d+\.value failed: .*not .*complex64.*-p no:dtype",
    ),
    "writes": (
        pair("return cosine.abs_()", "bad.writes"),
        "collapse",
        r"plugin writes: module_\d+\.value failed: .*wrote to cosine.*write to a copy",
    ),
    "raises": (
        metric("raise KeyError('no such thing')", "bad.raises"),
        "collapse",
        r"plugin raises: module_\d+\.value failed: .*KeyError: 'no such thing' \(-p no:raises leaves it out\)",
    ),
    "nan": (
        metric("return float('nan')", "bad.nan"),
        "collapse",
        r"plugin nan: came out as nan in module_\d+\.value, which can say why: collapse\.Noted",
    ),
    "pairs": (
        metric("return 1.0", "bad.pairs").replace("(means)", "(cosine)"),
        "collapse",
        r"plugin pairs: module_\d+\.value asks for 'cosine', which only functions of pairs get",
    ),
    "clash": (
        metric("return 1.0", "nc1.cdnv"),
        "collapse",
        r"plugin clash.*nc1\.cdnv of module_\d+ is already defined in collapse_metrics\.nc1: give it another name",
    ),
    "nothing": ("import math\n", "collapse", r"plugin nothing .*it declares nothing: decorate a function with"),
    "newer": (
        "COLLAPSE_API = 3\n" + metric("return 1.0", "bad.newer"),
        "collapse",
        r"plugin newer .*written for API 3 of collapse, and this is API 2",
    ),
}


def measured(file, *paths):
    path = os.pathsep.join(str(each) for each in (*paths, os.environ.get("PYTHONPATH")) if each)
    words = [sys.executable, "-m", "collapse", "measure", file, "--json"]
    done = subprocess.run(words, capture_output=True, text=True, env=os.environ | {"PYTHONPATH": path}, timeout=120)
    assert "Traceback" not in done.stderr
    return done


@pytest.fixture(scope="module")
def installed(tmp_path_factory):
    """What is measured without them and with all of them."""
    folder = tmp_path_factory.mktemp("ten")
    save_file(random_features(12, 6, 200), folder / "features.safetensors")
    for number, (name, (text, group, _)) in enumerate(BROKEN.items()):
        info = folder / "site" / f"bad_{name}-1.0.dist-info"
        info.mkdir(parents=True)
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: bad-{name}\nVersion: 1.0\n")
        (info / "entry_points.txt").write_text(f"[{group}]\n{name} = module_{number}\n")
        (folder / "site" / f"module_{number}.py").write_text(text)
    file = folder / "features.safetensors"
    return measured(file), measured(file, folder / "site")


def test_a_table_leaves_errors_to_stderr(capsys):
    row = collapse.measure(tiny_statistics(), metrics="nc2")
    noted = (Note("nc2.norm", "error", "broken"), Note("nc2.norm", "rank", "small"))
    rows = [replace(row, model=name, notes=noted) for name in ("a", "b")]
    print_rows([*rows, replace(row, model="c", notes=())])
    said = capsys.readouterr()
    assert said.err == "collapse: a, b: nc2.norm: broken\n"
    assert "broken" not in said.out
    assert "  a, b: nc2.norm: small\n" in said.out


@pytest.mark.parametrize("name", BROKEN)
def test_one_line_names_plugin_function_and_remedy(installed, name):
    done = installed[1]
    (row,) = json.loads(done.stdout)  # what is no error stands in the notes alone
    told = [*done.stderr.splitlines(), *(each["text"] for each in row["notes"] if each["measurement"] == "bad.nan")]
    assert sum(bool(re.search(BROKEN[name][2], line)) for line in told) == 1, told
    assert len(told) == len(BROKEN)


def test_they_cost_only_themselves(installed):
    alone, done = installed
    assert alone.returncode == 0
    (before,), (after,) = json.loads(alone.stdout), json.loads(done.stdout)
    numbers = {name: value for name, value in after["measurements"].items() if not name.startswith("bad.")}
    assert numbers == before["measurements"]
    assert all(value is None for name, value in after["measurements"].items() if name.startswith("bad."))
