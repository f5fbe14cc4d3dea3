"""Plugins: a metric in ten lines works, and built-in plugins are loaded in the same way."""

import json
import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from safetensors.torch import save_file

from collapse.plugin.plugin_manager import plugins
from collapse.testing import random_features

ROOT = Path(__file__).resolve().parents[1]


def test_the_package_of_the_page_is_installed_and_measured(run, tmp_path):
    page = (ROOT / "docs" / "guides" / "plugins.md").read_text("utf-8")
    for name, text in re.findall(r'```\w+ title="(mine.py|pyproject.toml)"\n(.*?)```', page, re.DOTALL):
        (tmp_path / name).write_text(text, "utf-8")
    site = tmp_path / "site"
    install = [sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--no-index", "--no-build-isolation"]
    subprocess.run([*install, "--target", site, tmp_path], check=True, capture_output=True)
    environment = os.environ | {"PYTHONPATH": str(site)}
    save_file(random_features(12, 6, 200), tmp_path / "features.safetensors")
    words = ("measure", tmp_path / "features.safetensors", "--metrics", "mine,nc1", "--json")
    (row,) = json.loads(run(*words, env=environment).stdout)
    h = random_features(12, 6, 200)["train_features"].double()
    assert row["measurements"]["mine.rms_norm"] == pytest.approx(float(h.square().sum(dim=1).mean().sqrt()))
    assert row["made_by"]["mine.distance"] == "collapse-mine 0.1"
    assert not [note for note in row["notes"] if note["measurement"].startswith("mine.")]
    listed = {each["name"]: each for each in json.loads(run("plugins", "--json", env=environment).stdout)}
    assert listed["mine"]["origin"] == "collapse-mine 0.1"


def test_help_and_import_load_nothing_heavy():
    probe = (
        "import sys, collapse, collapse.cli, collapse.plugin.hookspecs, collapse.plugin.metrics\n"
        "collapse.cli._add_commands(); collapse.cli._run(['--help'])\n"
        "print([name for name in ('torch', 'transformers', 'datasets', 'pandas', 'rich') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", probe], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[]"


NOT_INSTALLED = {"collapse_metrics.kappa_groups"}
"""Given with -p: every new store would hold its statistic."""


def test_entry_points_are_the_files():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    declares = re.compile(
        r"^(@((class_|pair_)?metric|analysis|figure)\b|METRICS\b|class \w+\((Validation)?Statistic\))", re.MULTILINE
    )
    files = [file for file in (ROOT / "plugins").glob("*/*.py") if declares.search(file.read_text())]
    own = {f"{file.parent.name}.{file.stem}" for file in files} - NOT_INSTALLED
    entries = project["entry-points"]["collapse"]
    assert set(entries.values()) == own | {"collapse_zoo.plugin", "collapse_zoo.figures"}
    assert len(entries) == len(own) + 2


KNOWN = plugins().measurements()


@pytest.mark.parametrize("name", KNOWN)
def test_every_metric_says_what_it_is(name):
    metric, _ = KNOWN[name]
    assert metric.source
    assert metric.summary.endswith(".")
    assert ">>>" in (metric.function.__doc__ or "")
    assert metric.equation or name == "n_params"
