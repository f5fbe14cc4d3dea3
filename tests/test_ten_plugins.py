"""Ten broken plugins, installed at once: each is reported in one line, and costs only itself."""

import json
import os
import re
import subprocess
import sys

import pytest
from safetensors.torch import save_file

from collapse.testing import random_features

HEAD = """
import torch
from collapse import Mean, metric, pair_metric
"""


def metric(body, name, asks="means"):
    return f"{HEAD}\n@metric('{name}')\ndef value({asks}):\n    {body}\n"


def pair(body, name):
    return f"{HEAD}\n@pair_metric(Mean('{name}'))\ndef value(cosine):\n    {body}\n"


# Each plugin's text, and what the line about it says: plugin, function, remedy.
BROKEN = {
    "keyword": (metric("return 1.0", "bad.keyword", "maens"), r"value asks for 'maens', .*; did you mean means"),
    "pairs": (metric("return 1.0", "bad.pairs", "cosine"), r"value asks for 'cosine', which only functions of pairs"),
    "shape": (pair("return cosine.sum(dim=0)", "bad.shape"), r"value failed: .*tensor of shape.*-p no:shape"),
    "dtype": (pair("return cosine.to(torch.complex64)", "bad.dtype"), r"value failed: .*not .*complex64.*-p no:dtype"),
    "writes": (pair("return cosine.abs_()", "bad.writes"), r"value failed: .*wrote to cosine.*write to a copy"),
    "raises": (metric("raise KeyError('no')", "bad.raises"), r"value failed: KeyError: 'no' \(-p no:raises leaves it"),
    "nan": (metric("return float('nan')", "bad.nan"), r"came out as nan in .*value, .*say why: collapse\.Noted"),
    "clash": (metric("return 1.0", "nc1.cdnv"), r"nc1\.cdnv of .* is already defined in .*nc1: give it another name"),
    "nothing": ("import math\n", r"it declares nothing: decorate a function with"),
    "newer": ("COLLAPSE_API = 3\n" + metric("return 1.0", "bad.newer"), r"written for API 3 of collapse, and this is"),
}


def measured(file, *paths):
    path = os.pathsep.join(str(each) for each in (*paths, os.environ.get("PYTHONPATH")) if each)
    words = [sys.executable, "-m", "collapse", "measure", file, "--json"]
    done = subprocess.run(words, capture_output=True, text=True, env=os.environ | {"PYTHONPATH": path}, timeout=120)
    assert "Traceback" not in done.stderr
    assert done.returncode == 0
    return done


@pytest.fixture(scope="module")
def installed(tmp_path_factory):
    """What is measured without them and with all of them."""
    folder = tmp_path_factory.mktemp("ten")
    save_file(random_features(12, 6, 200), folder / "features.safetensors")
    for number, (name, (text, _)) in enumerate(BROKEN.items()):
        info = folder / "site" / f"bad_{name}-1.0.dist-info"
        info.mkdir(parents=True)
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: bad-{name}\nVersion: 1.0\n")
        (info / "entry_points.txt").write_text(f"[collapse]\n{name} = module_{number}\n")
        (folder / "site" / f"module_{number}.py").write_text(text)
    file = folder / "features.safetensors"
    return measured(file), measured(file, folder / "site")


@pytest.mark.parametrize("name", BROKEN)
def test_one_line_names_plugin_function_and_remedy(installed, name):
    done = installed[1]
    (row,) = json.loads(done.stdout)  # what is no error stands in the notes alone
    told = [*done.stderr.splitlines(), *(each["text"] for each in row["notes"] if each["measurement"] == "bad.nan")]
    assert sum(bool(re.search(rf"plugin {name}\b.*{BROKEN[name][1]}", line)) for line in told) == 1, told
    assert len(told) == len(BROKEN)


def test_they_cost_only_themselves(installed):
    (before,), (after,) = (json.loads(done.stdout) for done in installed)
    numbers = {name: value for name, value in after["measurements"].items() if not name.startswith("bad.")}
    assert numbers == before["measurements"]
    assert all(value is None for name, value in after["measurements"].items() if name.startswith("bad."))
