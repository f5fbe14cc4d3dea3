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


def test_exactness_of_a_model_and_of_none(tiny, tmp_path):
    texts = ["--text", tiny.text, "--validation-text", tiny.validation, "--chunk-length", 64, "--chunks", 8]
    done = bench("benchmarks.exactness", tiny.model, *texts, "--output", tmp_path)
    assert done.returncode == 0, done.stderr
    (row,) = json.loads((tmp_path / "exactness.json").read_text("utf-8"))["rows"]
    assert row["decisions that differ"] == 0
    missing = bench("benchmarks.exactness", "nowhere", *texts)
    assert missing.returncode == 2
    assert "is called nowhere" in " ".join(missing.stderr.split())


def test_the_page_shows_the_newest_run_on_a_cpu_and_on_a_gpu(tmp_path):
    record = importlib.import_module("benchmarks.record")
    machine = {"cpu": "CPU", "instructions": "AVX2", "cores": 2}
    for day, name, more in ((1, "old", {}), (2, "cpu", {}), (1, "gpu", {"gpu": "NVIDIA H100"})):
        run = {"machine": {**machine, **more}, "versions": {"torch": "2"}, "commit": name, "threads": 2, "date": day}
        made = record.Record("pairs", "Pairs.", run=run)
        made.add("C = 2", {"product": 1.0})
        made.write(tmp_path / name)
    page = record.page(tmp_path)
    assert "commit old" not in page
    assert page.index("## pairs\n") < page.index("CPU with AVX2") < page.index("## pairs on a GPU\n")
    assert page.index("## pairs on a GPU") < page.index("NVIDIA H100")


def test_the_page_shows_whole_runs_from_the_folders_of_their_machines():
    record = importlib.import_module("benchmarks.record")
    for file in record.RESULTS.glob("*/*.json"):
        read = record.Record.read(file)
        assert (read.run["machine"]["name"], read.benchmark) == (file.parent.name, file.stem)
        assert not read.run["quick"]
        assert f"## {read.benchmark}" in record.page()
