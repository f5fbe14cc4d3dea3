"""The command line: output for people and for programs, on stdout and stderr."""

import json
import subprocess
import sys
from pathlib import Path

import click
import pytest
from safetensors.torch import save_file

import collapse
from collapse.measurement.last_results import kept_row
from collapse.testing import random_features


@pytest.fixture
def two(tmp_path) -> list[Path]:
    paths = [tmp_path / "first.safetensors", tmp_path / "second.safetensors"]
    for seed, path in enumerate(paths):
        save_file(random_features(10, 8, 120, seed=seed), path)
    return paths


def test_the_table_has_a_column_a_model_limits_and_notes(out, two, monkeypatch):
    monkeypatch.setenv("COLUMNS", "120")
    text = out("measure", *two, "--all")
    heading = next(line for line in text.splitlines() if "measurement" in line)
    assert heading.split() == ["property", "measurement", "first", "second", "at", "full", "collapse", "reachable"]
    assert "first on first.safetensors: C = 10 classes, d = 8, N = 120 samples" in text
    line = next(line for line in text.splitlines() if " nc2.interference " in line)
    assert line.split()[-1] == "-0.1111"
    assert "  nc1.covariance_ratio: the between-class covariance has rank 8 of d = 8" in text


def test_rows_are_printed_and_written_for_programs(out, two, tmp_path):
    results = tmp_path / "results.parquet"
    rows = json.loads(out("measure", *two, "--metrics", "nc4,nc2.norm", "--json", "--output", results))
    frame = collapse.Results.read(results).frame()
    assert [row["model"] for row in rows] == list(frame["model"]) == ["first", "second"]
    nc4 = {"nc4.agreement", "nc4.chance_agreement", "nc4.kappa", "nc4.ncc_accuracy"}
    assert rows[0]["measurements"].keys() == {"nc2.norm", *nc4}
    assert rows[0]["store"] == collapse.collect(two[0]).digest
    for name in rows[0]["measurements"]:
        assert list(frame[name]) == [row["measurements"][name] for row in rows], name


def test_a_store_is_collected_verified_shown_and_measured(out, two, tmp_path):
    store = tmp_path / "store"
    said = out("collect", two[0], "--store", store)
    assert f"{store} is complete" in said
    assert "4 files" in out("verify", store)
    assert "top/train.safetensors" in out("info", store)
    assert json.loads(out("info", store, "--json"))["digest"] == collapse.load(store).digest
    row = json.loads(out("measure", store, "--json"))[0]
    assert row["measurements"] == json.loads(out("measure", two[0], "--json"))[0]["measurements"]
    assert kept_row(collapse.load(store)) is not None


def test_metrics_lists_limits_at_any_size(out):
    listed = {row["name"]: row for row in json.loads(out("metrics", "--classes", 101, "--dim", 10, "--json"))}
    assert listed["nc2.interference"]["at full collapse"] == -0.01
    assert listed["nc2.etf_error"]["reachable"] == pytest.approx((2 - 2 * 0.1**0.5) ** 0.5)
    assert listed["nc1.log_cdnv"]["at full collapse"] == "-inf"
    assert listed["unc3.uniform_duality"]["equation"] == "CoV of cos(w_c, μ_c − μ̄)"
    assert out("metrics", "nc1,NC4") == out("metrics", "nc1", "nc4")


def test_results_go_to_stdout_and_everything_else_to_stderr(run, tiny, tmp_path):
    words = tiny.words("--store", tmp_path / "s", "--max-chunks", 20)
    first = run("measure", *words, "--json", "-v")
    assert len(json.loads(first.stdout)) == 1
    assert "train: slice 1 of" in first.stderr
    again = run("measure", *words, "--json")
    assert again.stdout == first.stdout
    assert "slice" not in again.stderr
    probe = (
        "import sys; from collapse.cli import _add_commands, _run; _add_commands(); assert _run(sys.argv[1:]) == 0; "
        "sys.exit(any(name in sys.modules for name in ('transformers', 'datasets', 'scipy', 'pandas')))"
    )  # a second run loads only what it needs
    subprocess.run([sys.executable, "-c", probe, "measure", *map(str, words)], check=True, capture_output=True)


def test_an_empty_argument_is_refused(two, told):
    for words in (("--output", ""), ("--store=",), ("",)):
        assert "check whether a shell variable is not set" in told(2, "measure", two[0], *words)


def test_every_help_fits_80_columns():
    from click.testing import CliRunner

    from collapse.cli import _add_commands, cli

    def check(command, words):
        shown = CliRunner().invoke(cli, [*words, "--help"], terminal_width=80).stdout
        lines = shown.splitlines()
        assert [line for line in lines if len(line) > 80] == [], words
        assert [line for line in lines if line.endswith("...") and not line.startswith("Usage: ")] == [], words
        if isinstance(command, click.Group):
            for name in command.list_commands(click.Context(command)):
                check(command.get_command(click.Context(command), name), [*words, name])

    _add_commands()
    check(cli, [])
