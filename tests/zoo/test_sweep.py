"""Sweeps: killed and run again, as jobs of submitit, and through SLURM's files."""

import os
import re
import signal
import stat
import subprocess
import sys
import threading
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

import collapse
from collapse.stores.lock import locked
from collapse_zoo import sweeping
from collapse_zoo.catalogue import status
from collapse_zoo.grids import grid
from collapse_zoo.launching import Job, Resources
from collapse_zoo.runs import Run, runs_in
from collapse_zoo.sources import find_source
from collapse_zoo.sweeping import sweep, work

GRID = ["1x16,32", "--data-seeds", "0,1"]
MEMBERS = [f"texts-01x00{w}_01d0{s}" for w in (16, 32) for s in (0, 1)]


@pytest.fixture(autouse=True)
def one_thread(monkeypatch):
    """Several processes that each use every core get in each other's way."""
    monkeypatch.setenv("OMP_NUM_THREADS", "1")


def words(texts, *more):
    given = ["--text", texts / "train.jsonl", "--validation-text", texts / "validation.jsonl"]
    sizes = ["--tokenizer", texts / "tokenizer", "--chunk-length", 64, "--batch-size", 8, "--max-steps", 6]
    return [str(word) for word in (*given, *sizes, "--learning-rate", "1e-3", "--device", "cpu", *more)]


def stamps(folder):
    """When each finished model was written."""
    runs = [run for run in runs_in(folder) if run.finished]
    return {run.name: (run.path / "model.safetensors").stat().st_mtime_ns for run in runs}


@pytest.fixture
def begin(warm_here, tmp_path):
    """Start a command: whether it still runs, how to kill it, and how to wait for its code and what it said."""

    def begin(*words_):
        out, err = tmp_path / "out", tmp_path / "err"
        pid = warm_here.start(words_, err, out=out, environment=dict(os.environ))
        deadline = time.monotonic() + 300

        def wait():
            too_long = threading.Timer(300, os.killpg, (pid, signal.SIGKILL))
            too_long.start()
            code = warm_here.wait(pid)
            too_long.cancel()
            return code, out.read_text(), err.read_text()

        return SimpleNamespace(going=lambda: time.monotonic() < deadline, kill=lambda: warm_here.kill(pid), wait=wait)

    return begin


def test_a_killed_sweep_goes_on_into_one_table(texts, tmp_path, run, begin):
    output = tmp_path / "runs"
    command = ["zoo", "sweep", *GRID, *words(texts), "--output", str(output)]
    started = begin(*command)
    while len(stamps(output)) < 2:
        assert started.going()
        time.sleep(0.01)
    assert started.kill()
    before = stamps(output)
    listed = {each["member"]: each for each in status(output)}
    assert list(listed) == MEMBERS
    assert listed[MEMBERS[0]]["state"] == "done"
    assert listed[MEMBERS[-1]]["state"] == "waiting"
    done = run(*command)
    assert "4 measurements of 4 members" in done.stdout
    assert "of 2: texts" in done.stderr
    assert stamps(output).items() >= before.items()
    table = collapse.Results.read(output / "results.csv").frame()
    assert list(table["model"]) == [f"{member}@0" for member in MEMBERS]
    assert table["val_loss"].notna().all()
    assert len(collapse.Results.read(output / "results.json").rows) == 4
    shown = run("zoo", "status", output).stdout
    assert shown.count("done") == 4
    assert "1 of 1" in shown


def test_submitits_local_jobs_give_the_same_table(texts, tmp_path, run):
    here, jobs = tmp_path / "here", tmp_path / "jobs"
    run("zoo", "sweep", "1,2x16", *words(texts), "--output", here)
    run("zoo", "sweep", "1,2x16", *words(texts), "--output", jobs, "--launcher", "local", "--parallel", 2)
    mine, theirs = (collapse.Results.read(folder / "results.json").rows for folder in (jobs, here))
    assert [row.model for row in mine] == [row.model for row in theirs]
    for row, other in zip(mine, theirs, strict=True):
        assert row.measurements == pytest.approx(other.measurements, rel=1e-6)


def holder_of(lock: Path) -> int:
    """The process that holds a lock, as the kernel lists it."""
    inode = f":{lock.stat().st_ino}"
    return next(int(line.split()[4]) for line in Path("/proc/locks").read_text().splitlines() if inode in line)


@pytest.mark.skipif(not Path("/proc/locks").exists(), reason="needs Linux")
def test_a_local_job_that_was_killed_is_resumed_by_the_same_command(texts, tmp_path, begin, run):
    output = tmp_path / "runs"
    command = [
        "zoo",
        "sweep",
        "2x16",
        *words(texts),
        "--output",
        str(output),
        "--launcher",
        "local",
        "--max-steps",
        "40",
    ]
    started = begin(*command)
    member = Run(output / "texts-02x0016_01d")
    while not member.checkpoints:
        assert started.going()
        time.sleep(0.01)
    os.kill(holder_of(member.path / ".lock"), signal.SIGKILL)
    code, _, said = started.wait()
    assert code == 1
    assert "1 of 1 member failed" in said
    assert "Traceback" not in said
    run(*command)
    assert [line["step"] for line in member.curve() if "loss" in line] == list(range(1, 41))


def test_ctrl_c_ends_local_jobs_without_tracebacks_and_the_same_command_resumes(texts, tmp_path):
    output = tmp_path / "runs"
    options = ["--launcher", "local", "--max-steps", "60", "--save-every", "10"]
    command = [sys.executable, "-m", "collapse", "zoo", "sweep", "1x16", *map(str, words(texts)), *options]
    command += ["--output", str(output)]
    member = Run(output / "texts-01x0016_01d")
    # a session of its own, whose processes all receive the signal, as those of a terminal do
    sweep = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True
    )
    while not member.checkpoints:
        assert sweep.poll() is None, sweep.communicate()
        time.sleep(0.01)
    os.killpg(sweep.pid, signal.SIGINT)
    said, _ = sweep.communicate(timeout=60)  # the jobs have the same stdout: all of them have ended
    assert sweep.returncode == 130
    assert said.splitlines()[-1].startswith("collapse: interrupted. Finished work is kept: run the same command")
    assert "Traceback" not in said
    for log in (output / "jobs").glob("*_log.*"):
        assert "Traceback" not in log.read_text(), log.read_text()
    assert not member.finished
    again = subprocess.run(command, capture_output=True, text=True)
    assert again.returncode == 0, again.stderr
    assert "1 measurement of 1 member" in again.stdout
    assert [line["step"] for line in member.curve() if "loss" in line] == list(range(1, 61))


FAKE_SBATCH = """#!/bin/bash
# Keeps the batch file, which its owner moves away, then runs each task of its array as SLURM would.
n=$(($(cat {folder}/count 2>/dev/null || echo 100) + 1)); echo $n > {folder}/count
file="${{@: -1}}"
cp "$file" {folder}/batch-$n.sh
tasks=$(sed -n 's/^#SBATCH --array=0-\\([0-9]*\\)%.*/\\1/p' "$file")
for task in $(seq 0 ${{tasks:-0}}); do
    if [ -n "$tasks" ]; then id=${{n}}_$task; else id=$n; fi
    (
        export SLURM_JOB_ID=$n SLURM_JOBID=$n SLURM_NTASKS=1 SLURM_PROCID=0 SLURM_LOCALID=0 SLURM_NODEID=0
        export SLURM_JOB_NUM_NODES=1 SLURM_JOB_NODELIST=here SLURM_NNODES=1
        [ -n "$tasks" ] && export SLURM_ARRAY_JOB_ID=$n SLURM_ARRAY_TASK_ID=$task
        echo "$id|RUNNING" > {folder}/state-$id
        bash {folder}/batch-$n.sh > {folder}/out-$id 2>&1
        if grep -q RUNNING {folder}/state-$id; then echo "$id|COMPLETED" > {folder}/state-$id; fi
    ) > /dev/null 2>&1 &
done
echo "Submitted batch job $n"
"""
FAKE_SRUN = """#!/bin/bash
while [[ $1 == -* ]]; do [ "$1" = --unbuffered ] || shift; shift; done
exec "$@"
"""
FAKE_SACCT = """#!/bin/bash
echo "JobID|State"
cat {folder}/state-* 2>/dev/null
exit 0
"""


@pytest.fixture
def slurm(tmp_path, monkeypatch):
    """A folder with sbatch and sacct on PATH, and what they were given."""
    folder = tmp_path / "slurm"
    folder.mkdir()
    for name, text in (("sbatch", FAKE_SBATCH), ("sacct", FAKE_SACCT), ("srun", FAKE_SRUN)):
        file = folder / name
        file.write_text(text if name == "srun" else text.format(folder=folder))
        file.chmod(file.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")
    return folder


def flags(batch):
    lines = [line.removeprefix("#SBATCH --") for line in batch.read_text().splitlines() if line.startswith("#SBATCH")]
    return dict(line.split("=", 1) if "=" in line else (line, "") for line in lines)


def test_a_machine_without_sbatch(texts, tmp_path, run, monkeypatch):
    monkeypatch.setenv("PATH", os.path.dirname(sys.executable))
    refused = run("zoo", "sweep", "1x16", *words(texts), "--output", tmp_path, "--launcher", "slurm", ok=False)
    assert refused.returncode == 2
    assert "there is no sbatch here" in refused.stderr
    assert "--launcher local" in refused.stderr


def test_what_is_no_grid(run, tmp_path):
    for word, said in (("papr", "did you mean paper"), ("1,2x63", "heads do not divide"), ("1x64_01q", "weight decay")):
        refused = run("zoo", "sweep", word, "--generated", ok=False, cwd=tmp_path)
        assert refused.returncode == 2
        assert said in refused.stderr
    refused = run("zoo", "sweep", "1x64", "--seeds", "1,x", "--generated", ok=False, cwd=tmp_path)
    assert "--seeds must be whole numbers" in refused.stderr
    refused = run("zoo", "sweep", "1x64", "--vary", "data", "--dry-run", ok=False, cwd=tmp_path)
    assert refused.returncode == 2
    assert "--vary data applies only to the grid seeds, not to 1x64" in refused.stderr
    assert len(run("zoo", "sweep", "seeds", "--vary", "both", "--dry-run").stdout.splitlines()) == 21
    refused = run("zoo", "status", tmp_path / "none", ok=False)
    assert refused.returncode == 2
    listed = run("zoo", "sweep", "paper", "--dry-run")
    assert len(listed.stdout.splitlines()) == 150
    assert "150 runs, 210 measurements" in listed.stderr


def test_slurm_gets_what_was_asked_for_and_a_failed_job_says_why(texts, tmp_path, slurm, run):
    output = tmp_path / "runs"
    command = ["zoo", "sweep", "1,2x16", *words(texts), "--output", output, "--launcher", "slurm", "--partition", "gpu"]
    command += ["--account", "mine", "--gpus", 1, "--cpus", 3, "--memory", 20, "--hours", 1.5, "--parallel", 7]
    command += ["--qos", "low", "--constraint", "h200", "--precision", "float32"]
    assert "2 measurements of 2 members" in run(*command).stdout
    (batch,) = slurm.glob("batch-*.sh")
    made = flags(batch)
    asked = {
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
    assert {key: made[key] for key in asked} == asked
    assert re.fullmatch(r"0-1%\d+", made["array"])
    subprocess.run(["bash", "-n", batch], check=True)
    options = ["--output", tmp_path / "b", "--launcher", "slurm", "--gpus", 0]
    failed = run("zoo", "sweep", "1x16", *words(texts, "--batch-size", 999), *options, ok=False)
    assert failed.returncode == 1
    assert "too little text for one batch" in failed.stderr
    assert "too little text" in run("zoo", "status", tmp_path / "b").stdout


def test_a_job_is_queued_again_as_it_is(tmp_path):
    again = Job(work).checkpoint(Run(tmp_path))
    assert (again.function, again.args) == (Job(work), (Run(tmp_path),))


def swept(texts, folder, name, *, training=None, **options):
    """The result of a small sweep from Python."""
    values = {"chunk_length": 64, "batch_size": 8, "max_steps": 4, "precision": "float32"} | options.pop("values", {})
    source = find_source(
        text=str(texts / "train.jsonl"),
        validation_text=str(texts / "validation.jsonl"),
        tokenizer=str(texts / "tokenizer"),
    )
    training = {"device": "cpu"} | (training or {})
    return sweep(grid(name), source, folder, values=values, training=training, **options)


def models(folder):
    return list(collapse.Results.read(folder / "results.csv").frame()["model"])


def test_a_table_has_every_run_of_the_folder_and_only_runs_of_these_options_are_taken(texts, tmp_path):
    for name in ("1x16", "1x32", "1x16"):
        made = swept(texts, tmp_path, name)
        assert [row.model for row in made.rows] == [f"texts-01x00{name[2:]}_01d@0"]
    both = ["texts-01x0016_01d@0", "texts-01x0032_01d@0"]
    assert models(tmp_path) == both
    before = stamps(tmp_path)
    made = swept(texts, tmp_path, "1x16", values={"learning_rate": 0.01})
    (problem,) = made.problems.values()
    assert "holds a run of other settings: learning_rate 5e-05 and 0.01" in problem
    assert not made.rows
    assert models(tmp_path) == both
    assert stamps(tmp_path) == before
    assert {each["state"] for each in status(tmp_path)} == {"done"}


def test_the_last_model_of_so_many_steps_is_the_one_measured(texts, tmp_path):
    made = swept(texts, tmp_path, "1x16", values={"max_steps": 4, "batch_size": 150})
    (row,) = made.rows
    assert row.model == "texts-01x0016_01d@1"
    last = Run(tmp_path / "texts-01x0016_01d").checkpoint(1)
    assert last.step == 4
    assert row.measurements["val_loss"] == pytest.approx(last.validation["validation_loss"], rel=1e-4)


def test_one_failure_does_not_stop_the_others(texts, tmp_path, monkeypatch):
    (tmp_path / "texts-01x0016_01d").mkdir(parents=True)
    (tmp_path / "texts-01x0016_01d" / "thesis.tex").write_text("mine")
    done = sweeping.work

    def work(run, *more):
        assert "x0032" not in run.name, "nobody foresaw it"
        done(run, *more)

    monkeypatch.setattr(sweeping, "work", work)
    made = swept(texts, tmp_path, "1x16,32,48")
    assert "is not empty and holds no run" in made.problems["texts-01x0016_01d"]
    assert "AssertionError: nobody foresaw it" in made.problems["texts-01x0032_01d"]
    assert [row.model for row in made.rows] == ["texts-01x0048_01d@0"]
    listed = {each["member"]: each["state"] for each in status(tmp_path)}
    assert "nobody foresaw it" in listed["texts-01x0032_01d"]
    assert listed["texts-01x0048_01d"] == "done"


def test_members_that_options_make_equal_are_one(texts, tmp_path):
    made = swept(texts, tmp_path, "1x16_10d,03d,01d", values={"epochs": 2, "max_steps": None})
    assert (made.members, [row.model for row in made.rows]) == (1, ["texts-01x0016_02d@1"])


def test_a_member_that_another_process_works_on_is_left_to_it(texts, tmp_path):
    with locked(tmp_path / "texts-01x0016_01d"):
        made = swept(texts, tmp_path, "1x16,32")
    assert made.elsewhere == ["texts-01x0016_01d"]
    assert not made.problems
    assert models(tmp_path) == ["texts-01x0032_01d@0"]


@pytest.mark.usefixtures("group_left")
def test_a_member_on_two_processes(texts, tmp_path):
    made = swept(texts, tmp_path, "1x16", resources=Resources(gpus=2))
    assert not made.problems
    record = Run(tmp_path / "texts-01x0016_01d").record
    assert record["processes"] == 2
    assert len(made.rows) == 1
