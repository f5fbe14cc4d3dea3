"""``python -m benchmarks``: small runs of the cheap ones, what it refuses, its laws of growth and its record."""

import doctest
import importlib
import json
import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from collapse.errors import CollapseError, UsageError

ROOT = Path(__file__).resolve().parents[1]
PLAIN = ("machine", "page", "record", "timing")


@pytest.fixture(autouse=True)
def importable(monkeypatch):
    monkeypatch.syspath_prepend(ROOT)  # it is a package of the checkout, and not installed


def bench(*words):
    command = [sys.executable, "-m", "benchmarks", *map(str, words)]
    environment = {**os.environ, "COLUMNS": "80", "CUDA_VISIBLE_DEVICES": ""}
    return subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)


@pytest.fixture(scope="module")
def quick(tmp_path_factory):
    """What is printed by a quick run of cheap ones, and their records."""
    folder = tmp_path_factory.mktemp("results")
    done = bench("accumulate", "pairs", "startup", "--quick", "--output", folder)
    assert done.returncode == 0, done.stderr
    return done.stdout, {file.stem: json.loads(file.read_text("utf-8")) for file in folder.glob("*.json")}


def test_a_quick_run_prints_tables_that_fit_eighty_columns(quick):
    printed, _ = quick
    assert [line for line in printed.splitlines() if len(line) > 80 and not line.startswith("written to")] == []
    for word in ("class moments", "three measurements", "collapse --help", "% of limit", "pairs/s", "peak MB"):
        assert word in printed


def test_a_record_says_what_was_measured_where(quick):
    _, records = quick
    assert sorted(records) == ["accumulate", "pairs", "startup"]
    for record in records.values():
        run = record["run"]
        assert run["quick"]
        assert run["machine"]["cores"] >= 1
        assert run["machine"]["name"].count("-") >= 1
        assert set(run["versions"]) == {"python", "torch", "transformers", "collapse"}
        rows = [row for table in record["tables"] for row in table["rows"]]
        assert all(row["seconds"] > 0 for row in rows)
    (first, *_) = records["pairs"]["tables"]
    assert first["rows"][0]["of_limit"] == 1
    assert first["rows"][1]["peak"] is None or first["rows"][1]["peak"] > 0
    assert records["pairs"]["growth"] == []  # small sizes show no law
    assert [goal["bound"] for goal in records["startup"]["goals"]] == [0.3, 1.5]


def test_a_size_that_no_memory_holds_ends_in_a_line():
    done = bench("pairs", "--quick", "--classes", 100_000_000, "--dim", 1_000_000)
    assert done.returncode == 1
    assert "pairs: this machine's memory does not hold it" in done.stderr
    assert "Traceback" not in done.stderr


def test_packages_that_are_not_there_are_named_with_their_place(quick):
    _, records = quick
    peers = importlib.import_module("benchmarks.peers")
    missing = [source for name, source in peers.SOURCES.items() if find_spec(name) is None]
    assert [source for source in missing if source not in " ".join(records["pairs"]["notes"])] == []


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["pair"], "no benchmark is called 'pair'; did you mean pairs?"),
        (["accumulate", "--against", "HEAD"], "--against is an option of the benchmark validate"),
        (["collect", "--model", "runs/a"], "--model and --text belong together"),
        (["accumulate", "--threads", "0"], "--threads"),
        (["train", "--quick", "--compile"], "there is no CUDA device"),
        (["accumulate", "--quik"], "No such option"),
    ],
)
def test_what_cannot_be_meant_is_refused_in_a_line(words, said):
    done = bench(*words)
    assert done.returncode == 2
    assert said in " ".join(done.stderr.split())
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("model", "said"), [("nowhere", "is called nowhere"), ("tiny", "--chunk-length 512 is longer than the")]
)
def test_exactness_of_what_it_cannot_read_is_told_in_a_line(tiny, run_python, model, said):
    program = "import runpy, sys; sys.path.insert(0, ''); runpy.run_module('benchmarks.exactness', run_name='__main__')"
    texts = ["--text", tiny.text, "--validation-text", tiny.validation]
    done = run_python(program, tiny.model if model == "tiny" else model, *texts, cwd=ROOT)
    assert done.returncode == 2
    assert said in " ".join(done.stderr.split())
    assert "Traceback" not in done.stderr


def test_a_model_of_yours_is_measured_on_as_many_tokens_and_has_no_goals(tiny):
    collect = importlib.import_module("benchmarks.collect")
    given = importlib.import_module("benchmarks.options").Options(
        model=str(tiny.model), text=str(tiny.text), chunk_length=32, quick=True
    )
    record = collect.benchmark(given)
    assert record.goals == []
    assert record.notes == ["collection of 1,024 tokens"]


def test_a_folder_that_cannot_be_written_into_is_refused_before_anything_is_measured(tmp_path):
    (tmp_path / "a file").write_text("")
    for folder in (tmp_path / "a file", tmp_path / "a file" / "below"):
        done = bench("startup", "--quick", "--output", folder)
        assert (done.returncode, done.stdout) == (2, "")
        assert f"{folder} cannot be written into" in " ".join(done.stderr.split())
        assert "Traceback" not in done.stderr


def test_exponents_are_those_of_the_law_that_made_the_times():
    timing = importlib.import_module("benchmarks.timing")
    sizes = list(timing.varied({"C": 12_000, "d": 768, "T": 5}))
    assert len(sizes) == 7
    fixed = [{**each, "T": 5} for each in sizes]
    found = timing.exponents([(each, 3e-9 * each["C"] ** 2 * each["d"] ** 0.5) for each in fixed])
    assert found == pytest.approx({"C": 2, "d": 0.5})


def test_works_take_turns_and_the_warm_up_does_not_count():
    timing = importlib.import_module("benchmarks.timing")
    order = []
    times = timing.in_turn({name: lambda name=name: order.append(name) for name in "ab"}, 2)
    assert order == ["a", "b"] * 3
    assert set(times) == {"a", "b"}


def test_the_growth_of_memory_is_seen_behind_an_earlier_peak():
    memory = importlib.import_module("benchmarks.memory")
    bytearray(200 << 20)  # an earlier peak, whose memory is free again
    growth = memory.growth_of(lambda: bytearray(b"x") * (50 << 20))
    assert growth is None or 45 << 20 < growth < 70 << 20


def test_a_process_repeats_its_work_and_says_why_it_failed():
    workers = importlib.import_module("benchmarks.workers")
    with workers.Worker("import time; works['nap'] = lambda: time.sleep(0.01)") as worker:
        assert worker.seconds("nap") >= 0.01
        assert worker.seconds("nap") >= 0.01
    with (
        workers.Worker("raise ValueError('no such thing')") as worker,
        pytest.raises(CollapseError, match="no such thing"),
    ):
        worker.wait()


def test_a_commit_that_is_not_there_is_named():
    workers = importlib.import_module("benchmarks.workers")
    with pytest.raises(UsageError, match="--against nothing"), workers.tree_of("nothing"):
        pass


def test_a_control_group_grants_what_is_asked_for_and_is_removed():
    control_group = importlib.import_module("benchmarks.control_group")
    with control_group.group(0.5) as folder:  # None where this process may not make one
        if folder is not None:
            assert (folder / "cpu.max").read_text().split()[0] == "50000"
    assert folder is None or not folder.exists()


def test_torch_is_not_loaded_before_the_threads_are_set():
    done = subprocess.run(
        [sys.executable, "-c", "import sys, benchmarks.__main__; sys.exit('torch' in sys.modules)"], cwd=ROOT
    )
    assert done.returncode == 0


def test_a_record_is_read_as_it_was_written_and_shown_on_the_page(tmp_path):
    record, page = (importlib.import_module(f"benchmarks.{name}") for name in ("record", "page"))
    run = {
        "machine": {"name": "mine", "cpu": "A CPU", "instructions": "AVX2", "cores": 2, "memory_gib": 8.0, "gpu": None}
    }
    run |= {"versions": {"python": "3.11", "torch": "2.13"}, "threads": 2, "date": "2026-01-01", "commit": "abc"}
    run |= {"dirty": True, "quick": False, "waiting": ""}
    made = record.Record(
        "pairs",
        "Pairs.",
        [record.Table("C = 3", [record.Row("sweep", 1.5, 2e6, 0.5, 3_000_000)], unit="pairs", limit="products")],
        [record.Goal("sweep over products", 2, 1.3)],
        [record.Growth("sweep", "time", {"C": 2.0})],
        ["a note"],
        run,
    )
    file = made.write(tmp_path / "mine")
    assert record.Record.read(file) == made
    text = page.page(tmp_path)
    for part in (
        "A CPU with AVX2, 2 cores",
        "## pairs",
        "Commit abc with changes.",
        "| C = 3 | sweep | 1.500 | 2,000,000 | 50 | 3 |",
    ):
        assert part in text
    assert "| sweep over products | 2 × | ≤ 1.3 × | no |" in text


@pytest.mark.parametrize("name", PLAIN)
def test_doctests(name):
    assert doctest.testmod(importlib.import_module(f"benchmarks.{name}")).failed == 0


def test_the_records_in_the_checkout_are_of_whole_runs_on_the_machine_that_their_folder_names():
    record = importlib.import_module("benchmarks.record")
    for file in (ROOT / "benchmarks" / "results").glob("*/*.json"):
        read = record.Record.read(file)
        assert (read.run["machine"]["name"], read.benchmark) == (file.parent.name, file.stem)
        assert not read.run["quick"]
