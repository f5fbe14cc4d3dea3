"""``python -m benchmarks``: small runs, what it refuses, its record and page."""

import doctest
import importlib
import json
import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]


@pytest.fixture(autouse=True)
def importable(monkeypatch):
    monkeypatch.syspath_prepend(ROOT)  # it is a package of the checkout, and not installed


def bench(*words):
    command = [sys.executable, "-m", "benchmarks", *map(str, words)]
    return subprocess.run(command, cwd=ROOT, env={**os.environ, "COLUMNS": "80"}, capture_output=True, text=True)


def test_a_quick_run_prints_and_records_what_was_measured_where(tmp_path):
    done = bench("--quick", "--output", tmp_path)
    assert done.returncode == 0, done.stderr
    for word in ("class moments", "three measurements", "collapse --help", "% of limit", "pairs/s", "transformers'"):
        assert word in done.stdout
    records = {file.stem: json.loads(file.read_text("utf-8")) for file in tmp_path.glob("*.json")}
    assert sorted(records) == ["accumulate", "collect", "pairs", "startup", "train", "validate"]
    for record in records.values():
        assert record["run"]["quick"]
        assert all(row["seconds"] > 0 for table in record["tables"] for row in table["rows"])
    assert [goal["bound"] for goal in records["startup"]["goals"]] == [0.3, 1.5]
    goals = importlib.import_module("benchmarks.record").Record.read(tmp_path / "validate.json").goals
    assert all(goal.met for goal in goals)  # decisions are float64's, at any size
    sources = importlib.import_module("benchmarks.peers").SOURCES
    missing = [source for name, source in sources.items() if find_spec(name) is None]
    assert [source for source in missing if source not in " ".join(records["pairs"]["notes"])] == []


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["pair"], "no benchmark is called 'pair'; did you mean pairs?"),
        (["accumulate", "--threads", "0"], "--threads"),
        (["accumulate", "--quik"], "No such option"),
    ],
)
def test_what_cannot_be_meant_is_refused_in_a_line(words, said):
    done = bench(*words)
    assert done.returncode == 2
    assert said in " ".join(done.stderr.split())
    assert "Traceback" not in done.stderr


def test_exactness_of_what_it_cannot_read_is_told_in_a_line(tiny, run_python):
    program = "import runpy, sys; sys.path.insert(0, ''); runpy.run_module('benchmarks.exactness', run_name='__main__')"
    done = run_python(program, "nowhere", "--text", tiny.text, "--validation-text", tiny.validation, cwd=ROOT)
    assert done.returncode == 2
    assert "is called nowhere" in " ".join(done.stderr.split())
    assert "Traceback" not in done.stderr


def test_works_take_turns_and_the_warm_up_does_not_count():
    memory = importlib.import_module("benchmarks.memory")
    order = []
    times = memory.in_turn({name: lambda name=name: order.append(name) for name in "ab"}, 2)
    assert order == ["a", "b"] * 3
    assert set(times) == {"a", "b"}


def test_the_growth_of_memory_is_seen_behind_an_earlier_peak():
    memory = importlib.import_module("benchmarks.memory")
    bytearray(200 << 20)  # an earlier peak, whose memory is free again
    growth = memory.growth_of(lambda: bytearray(b"x") * (50 << 20))
    assert growth is None or 45 << 20 < growth < 70 << 20


def test_torch_is_not_loaded_before_the_threads_are_set():
    program = "import sys, benchmarks.__main__; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program], cwd=ROOT).returncode == 0


@pytest.mark.parametrize("name", ["machine", "record"])
def test_doctests(name):
    assert doctest.testmod(importlib.import_module(f"benchmarks.{name}")).failed == 0


def test_the_page_shows_whole_runs_from_the_folders_of_their_machines():
    record = importlib.import_module("benchmarks.record")
    for file in record.RESULTS.glob("*/*.json"):
        read = record.Record.read(file)
        assert (read.run["machine"]["name"], read.benchmark) == (file.parent.name, file.stem)
        assert not read.run["quick"]
        assert f"## {read.benchmark}" in record.page()
