"""``python -m benchmarks``: small runs, errors, its records and its page."""

import importlib
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

NAMES = ("accumulate", "collect", "monitor", "pack", "pairs", "placed", "ranks", "startup", "train", "validate")
ROOT = Path(__file__).resolve().parents[1]


@pytest.fixture(autouse=True)
def importable(monkeypatch):
    monkeypatch.syspath_prepend(ROOT)  # it is a package of the checkout, and not installed


def bench(module, *words):
    command = [sys.executable, "-m", module, *map(str, words)]
    return subprocess.run(command, cwd=ROOT, env={**os.environ, "COLUMNS": "100"}, capture_output=True, text=True)


def test_a_quick_run_prints_and_records_what_was_measured_where(tmp_path):
    done = bench("benchmarks", "--quick", "--output", tmp_path)
    assert done.returncode == 0, done.stderr
    for word in ("class moments", "three measurements", "collapse --help", "% of limit", "pairs/s", "transformers'"):
        assert word in done.stdout
    records = {file.stem: json.loads(file.read_text("utf-8")) for file in tmp_path.glob("*.json")}
    assert sorted(records) == sorted(NAMES)
    for record in records.values():
        assert record["run"]["quick"]
        assert all(row["seconds"] > 0 for row in record["rows"])
    assert all("0 decisions differ" in note for note in records["validate"]["notes"])


def test_the_page_shows_whole_runs_from_the_folders_of_their_machines():
    record = importlib.import_module("benchmarks.record")
    for file in record.RESULTS.glob("*/*.json"):
        read = record.Record.read(file)
        assert (read.run["machine"]["name"], read.benchmark) == (file.parent.name, file.stem)
        assert not read.run["quick"]
        assert f"## {read.benchmark}" in record.page()
