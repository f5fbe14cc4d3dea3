"""Plugins: what ten lines add, and that built-ins have no other door."""

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

PLUGIN = '''
from collapse import Mean, Statistic, class_metric, derived, metric, pair_metric

class Largest(Statistic):
    """The largest norm of an embedding."""
    name = "largest"
    def update(self, batch): self.norm = batch.h.norm(dim=1).max()
    def merge(self, other, mine, theirs): self.norm = max(getattr(self, "norm", other.norm), other.norm)

@derived
def samples(counts): return counts.sum()

@metric("mine.mean_count")
def mean_count(samples, C): return samples / C

@class_metric(Mean("mine.first"))
def first(centred_means): return centred_means[:, 0]

@pair_metric(Mean("mine.distance"))
def between(distance): return distance

@metric("mine.largest")
def longest(largest): return largest["norm"]
'''
MINE = {"mine.mean_count", "mine.first", "mine.distance", "mine.largest"}


@pytest.fixture
def features(tmp_path) -> Path:
    save_file(random_features(12, 6, 200), tmp_path / "features.safetensors")
    return tmp_path / "features.safetensors"


def measured(run, *words, **options) -> dict[str, float | None]:
    (row,) = json.loads(run(*words, "--json", **options).stdout)
    return row["measurements"]


def test_a_plugin_file_adds_metrics_and_a_statistic(run, features, tmp_path):
    (tmp_path / "mine.py").write_text(PLUGIN)
    values = measured(run, "-p", tmp_path / "mine.py", "measure", features)
    assert values.keys() > MINE
    data = random_features(12, 6, 200)
    assert values["mine.mean_count"] == pytest.approx(200 / 12)
    assert values["mine.largest"] == pytest.approx(float(data["train_features"].double().norm(dim=1).max()))
    assert values["mine.distance"] > 0
    assert run("-p", tmp_path / "mine.py", "metrics", "mine").stdout.count("mine.") >= 4


def test_the_same_code_in_an_installed_package(run, features, tmp_path):
    package = tmp_path / "package"
    package.mkdir()
    (package / "collapse_mine.py").write_text(PLUGIN)
    (package / "pyproject.toml").write_text(
        '[build-system]\nrequires = ["hatchling"]\nbuild-backend = "hatchling.build"\n'
        '[project]\nname = "collapse-mine"\nversion = "1.2"\n[project.entry-points.collapse]\nmine = "collapse_mine"\n'
        '[tool.hatch.build.targets.wheel]\ninclude = ["collapse_mine.py"]\n'
    )
    site = tmp_path / "site"
    install = [sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--no-index", "--no-build-isolation"]
    subprocess.run([*install, "--target", site, package], check=True, capture_output=True)
    environment = os.environ | {"PYTHONPATH": str(site)}
    values = measured(run, "measure", features, env=environment)
    assert values.keys() > MINE
    listed = json.loads(run("plugins", "--json", env=environment).stdout)
    assert {"name": "mine", "origin": "collapse-mine 1.2"}.items() <= next(
        p for p in listed if p["name"] == "mine"
    ).items()


def test_help_and_import_load_nothing_heavy():
    probe = (
        "import sys, collapse, collapse.cli, collapse.plugin.hookspecs, collapse.plugin.metrics\n"
        "collapse.cli._add_commands(); collapse.cli._run(['--help'])\n"
        "print([name for name in ('torch', 'transformers', 'datasets', 'pandas', 'rich') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", probe], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[]"


NOT_INSTALLED = {"collapse_metrics.kappa_groups"}
"""Given with -p: its statistic would be part of the identity of every new store."""


def test_entry_points_are_the_files():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    declares = re.compile(
        r"^(@((class_|pair_)?metric|analysis|figure)\b|class \w+\((Validation)?Statistic\))", re.MULTILINE
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
