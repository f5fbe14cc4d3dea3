"""Plugins: a metric in ten lines works, and built-in plugins are loaded in the same way."""

import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from collapse.plugin.plugin_manager import plugins

ROOT = Path(__file__).resolve().parents[1]


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
