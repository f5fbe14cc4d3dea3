"""Plugins: what ten lines add, what a broken one costs, and that built-ins have no other door."""

import ast
import json
import os
import py_compile
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

FAILING = """
import torch
from collapse import Mean, class_metric, metric, pair_metric

@metric("bad.raises")
def raises(means): raise ZeroDivisionError("on purpose")

@metric("bad.nan")
def nan(means): return float("nan")

@class_metric(Mean("bad.shape"))
def shape(means): return torch.zeros(2)

@pair_metric(Mean("bad.pair"))
def pair(gram): return gram.nonsense
"""


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


def test_a_plugin_file_runs_as_it_is_now_and_not_as_bytecode_has_it(run, features, tmp_path):
    file = tmp_path / "mine.py"
    for factor in (2, 3):  # of one size and one time, by which bytecode knows its file
        file.write_text(PLUGIN.replace("samples / C", f"{factor} * samples / C"))
        os.utime(file, (1_000_000_000, 1_000_000_000))
        if factor == 2:
            py_compile.compile(str(file), doraise=True)
    values = measured(run, "-p", file, "measure", features)
    assert values["mine.mean_count"] == pytest.approx(3 * 200 / 12)


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


def test_a_metric_that_fails_costs_only_its_own_rows(run, features, tmp_path):
    (tmp_path / "failing.py").write_text(FAILING)
    done = run("-p", tmp_path / "failing.py", "measure", features, "--json")
    (row,) = json.loads(done.stdout)
    assert {name for name in row["measurements"] if name.startswith("bad.")} == {
        "bad.raises",
        "bad.nan",
        "bad.shape",
        "bad.pair",
    }
    nulls = {name for name, value in row["measurements"].items() if value is None}
    assert nulls == {"bad.raises", "bad.nan", "bad.shape", "bad.pair", "n_params"}
    notes = {note["measurement"]: note["text"] for note in row["notes"]}
    assert "ZeroDivisionError: on purpose" in notes["bad.raises"]
    assert "came out as nan" in notes["bad.nan"]
    assert "must return a tensor of shape (12,), not (2,)" in notes["bad.shape"]
    assert "nonsense" in notes["bad.pair"]
    for name in ("bad.raises", "bad.shape", "bad.pair"):
        assert name in done.stderr


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


def test_the_core_imports_neither_plugins_nor_zoo():
    for file in (ROOT / "collapse").rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text())):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            assert not any(
                name.split(".")[0] in ("collapse_analyses", "collapse_figures", "collapse_metrics", "collapse_zoo")
                for name in names
            ), file


KNOWN = plugins().measurements()


@pytest.mark.parametrize("name", KNOWN)
def test_every_metric_says_what_it_is(name):
    metric, _ = KNOWN[name]
    assert metric.source
    assert metric.summary.endswith(".")
    assert ">>>" in (metric.function.__doc__ or "")
    assert metric.equation or name == "n_params"


@pytest.mark.parametrize("name", ["mine", "./mine"])
def test_a_file_that_is_named_without_its_suffix_is_told(run, tmp_path, name):
    (tmp_path / "mine.py").write_text(" ")
    done = run("-p", name, "metrics", ok=False, cwd=tmp_path, env=os.environ | {"PYTHONSAFEPATH": "1"})
    assert done.returncode == 2
    assert f"file {name}.py" in done.stderr
