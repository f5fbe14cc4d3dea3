"""Sweeps: killed and repeated, as local processes, and as SLURM jobs with a fake SLURM."""

import os
import re

import pytest
from equal_stores import eventually

import collapse
from collapse.stores.lock import locked
from collapse_zoo.catalogue import status
from collapse_zoo.grids import grid
from collapse_zoo.runs import Run, runs_in
from collapse_zoo.sweeping import Job, sweep

MEMBERS = [f"texts-01x00{w}_01d0{s}" for w in (16, 32) for s in (0, 1)]


@pytest.fixture(autouse=True)
def one_thread(monkeypatch):
    """One thread per process, because several processes that each use every core are slow."""
    monkeypatch.setenv("OMP_NUM_THREADS", "1")


@pytest.fixture
def swept(source, tmp_path):
    """The result of a small sweep from Python."""

    def swept(name, *, values=None, **options):
        small = {"chunk_length": 64, "batch_size": 8, "max_steps": 4, "precision": "float32"}
        values = small | (values or {})
        return sweep(grid(name), source, tmp_path, values=values, training={"device": "cpu"}, **options)

    return swept


def stamps(folder):
    """The time at which each finished model was written."""
    runs = [run for run in runs_in(folder) if run.finished]
    return {run.name: (run.path / "model.safetensors").stat().st_mtime_ns for run in runs}


def models(folder):
    return list(collapse.Results.read(folder / "results.csv").frame()["model"])


def test_a_killed_sweep_goes_on_into_one_table(words, tmp_path, run, warm_here):
    output = tmp_path / "runs"
    options = words("--max-steps", 6, "--data-seeds", "0,1", "--output", output)
    command = ["zoo", "sweep", "1x16,32", *options]
    started = warm_here.start(command, tmp_path / "log", environment=dict(os.environ))
    eventually(lambda: len(stamps(output)) >= 2, 120)
    assert warm_here.kill(started)
    before = stamps(output)
    listed = {each["member"]: each for each in status(output)}
    assert list(listed) == MEMBERS
    assert listed[MEMBERS[0]]["state"] == "done"
    assert listed[MEMBERS[-1]]["state"] == "waiting"
    done = run(*command)
    assert "4 measurements of 4 runs" in done.stdout
    assert stamps(output).items() >= before.items()
    assert models(output) == [f"{member}@0" for member in MEMBERS]
    assert len(collapse.Results.read(output / "results.json").rows) == 4
    shown = run("zoo", "status", output).stdout
    assert shown.count("done") == 4


SLURM = {
    "sbatch": """#!/bin/bash
# Keeps the batch file, which its owner moves away, then runs both tasks of its array as SLURM would.
cp "${@: -1}" FOLDER/batch-$$.sh
for task in 0 1; do
    (
        export SLURM_JOB_ID=$$ SLURM_ARRAY_JOB_ID=$$ SLURM_ARRAY_TASK_ID=$task
        echo "$$_$task|RUNNING" > FOLDER/state-$$_$task
        bash FOLDER/batch-$$.sh > FOLDER/out-$$_$task 2>&1
        echo "$$_$task|COMPLETED" > FOLDER/state-$$_$task
    ) > /dev/null 2>&1 &
done
echo "Submitted batch job $$"
""",
    "srun": """#!/bin/bash
while [[ $1 == -* ]]; do [ "$1" = --unbuffered ] || shift; shift; done
exec "$@"
""",
    "sacct": """#!/bin/bash
echo "JobID|State"
cat FOLDER/state-* 2>/dev/null
exit 0
""",
}


@pytest.fixture
def slurm(tmp_path, monkeypatch):
    """A folder with fake sbatch, srun and sacct on PATH, and a record of their arguments."""
    folder = tmp_path / "slurm"
    folder.mkdir()
    for name, text in SLURM.items():
        (folder / name).write_text(text.replace("FOLDER", str(folder)))
        (folder / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")
    return folder


def test_slurm_gets_what_was_asked_for_and_a_failed_job_says_why(words, tmp_path, slurm, run):
    command = ["zoo", "sweep", "1,2x16", *words("--max-steps", 4, "--precision", "float32"), "--launcher", "slurm"]
    asked = "--partition gpu --account mine --qos low --constraint h200 --gpus 1 --cpus 3 --memory 20".split()
    asked += ["--hours", 1.5, "--parallel", 7]
    assert "2 measurements of 2 runs" in run(*command, *asked, "--output", tmp_path / "runs").stdout
    (batch,) = slurm.glob("batch-*.sh")
    lines = [line.removeprefix("#SBATCH --") for line in batch.read_text().splitlines() if "#SBATCH --" in line]
    made = dict(line.partition("=")[::2] for line in lines)
    expected = {
        "partition": "gpu",
        "account": "mine",
        "qos": "low",
        "constraint": "h200",
        "gpus-per-node": "1",
        "cpus-per-task": "3",
        "mem": "20GB",
        "time": "90",
        "nodes": "1",
        "ntasks-per-node": "1",
        "job-name": "collapse-zoo",
        "signal": "USR2@90",
    }
    assert {key: made[key] for key in expected} == expected
    assert re.fullmatch(r"0-1%\d+", made["array"])
    failed = run(*command, "--batch-size", 999, "--output", tmp_path / "b", "--gpus", 0, code=1)
    assert failed.stderr.count("too little text for one batch") == 2
    assert "too little text" in run("zoo", "status", tmp_path / "b").stdout
    again = Job().checkpoint(Run(tmp_path))  # before a job is pre-empted
    assert (type(again.function), again.args) == (Job, (Run(tmp_path),))


def test_a_table_has_every_run_of_the_folder_and_only_runs_of_these_options_are_taken(swept, tmp_path):
    for name in ("1x16", "1x32", "1x16"):
        assert [row.model for row in swept(name).rows] == [f"texts-01x00{name[2:]}_01d@0"]
    both = ["texts-01x0016_01d@0", "texts-01x0032_01d@0"]
    assert models(tmp_path) == both
    before = stamps(tmp_path)
    made = swept("1x16", values={"learning_rate": 0.01})
    (problem,) = made.problems.values()
    assert "holds a run with other settings: learning_rate 5e-05 and 0.01" in problem
    assert not made.rows
    assert models(tmp_path) == both
    assert stamps(tmp_path) == before
    assert {each["state"] for each in status(tmp_path)} == {"done"}


def test_the_last_model_of_so_many_steps_is_the_one_measured(swept, tmp_path):
    made = swept("1x16_10d,03d", values={"epochs": 3, "max_steps": 4, "batch_size": 100})
    (row,) = made.rows  # members that options make equal are one
    assert row.model == "texts-01x0016_03d@1"
    last = Run(tmp_path / "texts-01x0016_03d").checkpoint(1)
    assert last.step == 4
    assert row.measurements["val_loss"] == pytest.approx(last.validation["validation_loss"], rel=1e-6)


def test_one_failure_does_not_stop_the_others(swept, tmp_path):
    (tmp_path / "texts-01x0016_01d").mkdir(parents=True)
    (tmp_path / "texts-01x0016_01d" / "thesis.tex").write_text("mine")
    with locked(tmp_path / "texts-01x0032_01d"):
        made = swept("1x16,32,48")
    assert "is not empty and holds no run" in made.problems["texts-01x0016_01d"]
    assert "is in use by another process" in made.problems["texts-01x0032_01d"]
    assert [row.model for row in made.rows] == ["texts-01x0048_01d@0"]
    assert [file.name for file in (tmp_path / "texts-01x0016_01d").iterdir()] == ["thesis.tex"]


@pytest.mark.usefixtures("group_left")
def test_a_member_on_two_processes(swept, tmp_path):
    made = swept("1x16", gpus=2)
    assert not made.problems
    assert Run(tmp_path / "texts-01x0016_01d").record["processes"] == 2
    assert len(made.rows) == 1
