"""Sweeps: killed and run again, as jobs of submitit, and through SLURM's files."""

import os
import re
import shutil
import signal
import stat
import subprocess
import sys
import threading
import time
from types import SimpleNamespace

import pytest

import collapse
from collapse.errors import UsageError
from collapse_zoo import sweeping
from collapse_zoo.catalogue import local_runs
from collapse_zoo.grids import grid
from collapse_zoo.runs import Run
from collapse_zoo.sources import find_source
from collapse_zoo.states import status
from collapse_zoo.sweeping import plan, sweep

GRID = ["1,2x16,32", "--data-seeds", "0,1"]
MEMBERS = [f"texts-0{d}x00{w}_01d0{s}" for d in (1, 2) for w in (16, 32) for s in (0, 1)]


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
    runs = [run for run in local_runs(folder) if run.finished]
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
    while len(stamps(output)) < 3:
        assert started.going()
        time.sleep(0.01)
    assert started.kill()
    before = stamps(output)
    listed = {each["member"]: each for each in status(output)}
    assert list(listed) == MEMBERS
    assert listed[MEMBERS[0]]["state"] == "done"
    assert listed[MEMBERS[-1]]["state"] == "waiting"
    done = run(*command)
    assert "8 measurements of 8 members" in done.stdout
    assert "left for all)" in done.stderr
    assert stamps(output).items() >= before.items()
    table = collapse.Results.read(output / "results.csv").frame()
    assert list(table["model"]) == [f"{member}@0" for member in MEMBERS]
    assert table["val_loss"].notna().all()
    assert len(collapse.Results.read(output / "results.json").rows) == 8
    shown = run("zoo", "status", output).stdout
    assert shown.count("done") == 8
    assert "1 of 1" in shown


def test_one_failure_does_not_stop_the_others(texts, tmp_path, run):
    output = tmp_path / "runs"
    (output / "texts-01x0016_01d").mkdir(parents=True)
    (output / "texts-01x0016_01d" / "thesis.tex").write_text("mine")
    failed = run("zoo", "sweep", "1x16,32", *words(texts), "--output", output, ok=False)
    assert failed.returncode == 1
    assert "1 of 2 members failed" in failed.stderr
    assert "1 measurement of 2 members" in failed.stdout
    states = {each["member"]: each["state"] for each in status(output)}
    assert "holds other things than a run" in states["texts-01x0016_01d"]
    assert states["texts-01x0032_01d"] == "done"


def test_a_run_that_other_things_replaced_is_failed_and_its_lost_row_is_named(texts, tmp_path, run):
    command = ["zoo", "sweep", "1x16,32", *words(texts), "--output", tmp_path]
    run(*command)
    folder = tmp_path / "texts-01x0016_01d"
    shutil.rmtree(folder)
    folder.mkdir()
    (folder / "thesis.tex").write_text("mine")
    failed = run(*command, ok=False)
    assert failed.returncode == 1
    assert "texts-01x0016_01d@0 is not in the table any more: " in failed.stderr
    states = {each["member"]: each["state"] for each in status(tmp_path)}
    assert states["texts-01x0016_01d"].startswith("failed: ")
    assert "holds other things than a run" in states["texts-01x0016_01d"]
    assert states["texts-01x0032_01d"] == "done"


def test_a_folder_that_cannot_be_made_is_told_as_by_other_commands(texts, tmp_path, run):
    (tmp_path / "file").write_text("mine")
    failed = run("zoo", "sweep", "1x16", *words(texts), "--output", tmp_path / "file" / "runs", ok=False)
    assert failed.returncode == 1
    assert f"cannot write {tmp_path / 'file' / 'runs'}: Not a directory. Choose another --output" in failed.stderr


def test_submitits_local_jobs_give_the_same_table(texts, tmp_path, run):
    here, jobs = tmp_path / "here", tmp_path / "jobs"
    run("zoo", "sweep", "1,2x16", *words(texts), "--output", here)
    run(
        "zoo", "sweep", "1,2x16", *words(texts), "--output", jobs, "--launcher", "local", "--parallel", 2, "--poll", 0.2
    )
    mine, theirs = (collapse.Results.read(folder / "results.json").rows for folder in (jobs, here))
    assert [row.model for row in mine] == [row.model for row in theirs]
    for row, other in zip(mine, theirs, strict=True):
        assert row.measurements == pytest.approx(other.measurements, rel=1e-6)


def test_a_local_job_that_was_killed_is_sent_again(texts, tmp_path, begin):
    output = tmp_path / "runs"
    command = ["zoo", "sweep", "2x16", *words(texts), "--output", str(output)]
    started = begin(*command, "--launcher", "local", "--poll", "0.2", "--max-steps", "40")
    member = Run(output / "texts-02x0016_01d")
    while not member.checkpoints():
        assert started.going()
        time.sleep(0.01)
    os.kill(int((member.path / ".lock").read_text().split("\n")[0]), signal.SIGKILL)
    code, out, said = started.wait()
    assert code == 0, said
    assert "it is submitted again and resumes from its last checkpoint" in said
    assert "1 measurement of 1 member" in out
    assert [line["step"] for line in member.curve() if "loss" in line] == list(range(1, 41))


def test_ctrl_c_ends_local_jobs_without_tracebacks_and_the_same_command_resumes(texts, tmp_path):
    output = tmp_path / "runs"
    options = ["--launcher", "local", "--poll", "0.2", "--max-steps", "60", "--save-every", "10"]
    command = [sys.executable, "-m", "collapse", "zoo", "sweep", "1x16", *map(str, words(texts)), *options]
    command += ["--output", str(output)]
    member = Run(output / "texts-01x0016_01d")
    # a session of its own, whose processes all receive the signal, as those of a terminal do
    sweep = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True
    )
    while not member.checkpoints():
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
    for name, text in (("sbatch", FAKE_SBATCH), ("sacct", FAKE_SACCT)):
        file = folder / name
        file.write_text(text.format(folder=folder))
        file.chmod(file.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")
    return folder


def flags(batch):
    lines = [line.removeprefix("#SBATCH --") for line in batch.read_text().splitlines() if line.startswith("#SBATCH")]
    return dict(line.split("=", 1) if "=" in line else (line, "") for line in lines)


def test_slurm_gets_what_was_asked_for_and_what_was_preempted_again(texts, tmp_path, slurm, begin):
    output = tmp_path / "runs"
    command = ["zoo", "sweep", "1,2x16", *words(texts, "--max-steps", 60)]
    command += ["--output", str(output), "--launcher", "slurm", "--partition", "gpu", "--account", "mine"]
    command += ["--gpus", "1", "--cpus", "3", "--memory", "20", "--hours", "1.5", "--parallel", "7", "--poll", "0.3"]
    command += ["--qos", "low", "--constraint", "h200", "--precision", "float32"]
    started = begin(*command)
    victim = Run(output / "texts-02x0016_01d")
    while not victim.checkpoints():
        assert started.going(), (tmp_path / "err").read_text()
        time.sleep(0.01)
    (slurm / "state-101_1").write_text("101_1|PREEMPTED\n")
    os.kill(int((victim.path / ".lock").read_text().split("\n")[0]), signal.SIGKILL)
    code, out, said = started.wait()
    assert code == 0, said
    assert "2 measurements of 2 members" in out

    batches = sorted(slurm.glob("batch-*.sh"))
    assert len(batches) == 2  # the array, and the one that was lost, once
    first, again = map(flags, batches)
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
    }
    for made in (first, again):
        assert {key: made[key] for key in asked} == asked
        assert made.keys() - asked.keys() <= {"array", "output", "error", "open-mode", "signal", "wckey"}
    assert re.fullmatch(r"0-1%\d+", first["array"])
    assert "array" not in again
    for batch in batches:
        subprocess.run(["bash", "-n", batch], check=True)
    assert said.count("it is submitted again") == 1
    # it went on where it was: no step was logged twice, and the loss is that of a run left in peace
    assert [line["step"] for line in victim.curve() if "loss" in line] == list(range(1, 61))
    assert "resuming after step" in (slurm / "out-102").read_text()
    assert len(collapse.Results.read(output / "results.csv")) == 2


def test_a_failed_job_says_why(texts, tmp_path, slurm, run):
    output = tmp_path / "runs"
    options = ["--launcher", "slurm", "--gpus", 0, "--poll", 0.2]
    failed = run("zoo", "sweep", "1x16", *words(texts, "--batch-size", 999), "--output", output, *options, ok=False)
    assert failed.returncode == 1
    assert "too little text for one batch" in failed.stderr
    assert len(list(slurm.glob("batch-*.sh"))) == 1  # its own fault: not sent again


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


def test_the_table_has_the_members_of_every_sweep_in_the_folder(texts, tmp_path):
    for name in ("1x16", "1x32", "1x16"):
        made = sweep(*planned(texts, tmp_path, name), tmp_path)
        assert [row.model for row in made.rows] == [f"texts-01x00{name[2:]}_01d@0"]
    for table in ("results.csv", "results.json"):
        assert list(collapse.Results.read(tmp_path / table).frame()["model"]) == [
            "texts-01x0016_01d@0",
            "texts-01x0032_01d@0",
        ]


def test_options_that_a_member_was_not_made_with_leave_its_rows(texts, tmp_path, run):
    command = ["zoo", "sweep", "1x16,32", *words(texts), "--output", tmp_path]
    run(*command)
    tables = {name: (tmp_path / name).read_bytes() for name in ("results.csv", "results.json", "sweep.json")}
    refused = run(*command, "--max-chunks", 9, ok=False)
    assert refused.returncode == 1
    assert "holds another run, which differs in max_chunks" in refused.stderr
    assert refused.stdout == f"no member was measured; {tmp_path}/results.csv keeps its 2 rows of earlier sweeps\n"
    assert {name: (tmp_path / name).read_bytes() for name in tables} == tables
    assert {each["state"] for each in status(tmp_path)} == {"done"}


@pytest.mark.parametrize("name", ["results.csv", "results.json"])
def test_a_table_of_others_is_refused_before_training(texts, tmp_path, name):
    (tmp_path / name).write_text("a,b\n1,2\n")
    with pytest.raises(UsageError, match=f"{name} exists and is not a results table"):
        sweep(*planned(texts, tmp_path, "1x16"), tmp_path)
    assert [each.name for each in tmp_path.iterdir()] == [name]


def test_heads_that_divide_another_width(texts, tmp_path, run):
    run("zoo", "train", "1x8", "--heads", 2, *words(texts, "--max-steps", 1), "--output", tmp_path / "run")
    assert run("zoo", "sweep", "1x8", "--heads", 2, "--dry-run").stdout == "01x0008_01d@0\n"
    for command in (["train", "1x8"], ["sweep", "1x8", "--heads", 3, "--dry-run"]):
        refused = run("zoo", *command, ok=False, cwd=tmp_path)
        assert refused.returncode == 2
        assert "heads do not divide the width 8" in refused.stderr
    run("zoo", "info", tmp_path / "run")


def test_members_that_options_make_equal_are_one(texts, tmp_path):
    members, source = planned(texts, tmp_path, "1x16_01d,03d")
    assert [member.name for member in members] == ["texts-01x0016_01d", "texts-01x0016_03d"]
    members = plan(grid("1x16_10d,03d,01d"), source, tmp_path, values={"epochs": 3})
    assert [(member.name, member.checkpoints) for member in members] == [("texts-01x0016_03d", (2,))]


def planned(texts, folder, name, **options):
    """A small sweep from Python, and its source."""
    values = {"chunk_length": 64, "batch_size": 8, "max_steps": 4, "precision": "float32"}
    source = find_source(
        text=str(texts / "train.jsonl"),
        validation_text=str(texts / "validation.jsonl"),
        tokenizer=str(texts / "tokenizer"),
    )
    return plan(grid(name), source, folder, values=values, training={"device": "cpu"}, **options), source


@pytest.mark.usefixtures("group_left")
def test_a_member_on_two_processes(texts, tmp_path):
    members, source = planned(texts, tmp_path / "runs", "1x16", processes=2)
    made = sweep(members, source, tmp_path / "runs")
    assert not made.problems
    record = Run(tmp_path / "runs" / "texts-01x0016_01d").record
    assert record["processes"] == 2
    assert len(made.rows) == 1
    assert find_source(**members[0].source).identity() == record["text"]


def test_a_failure_that_nobody_foresaw_does_not_stop_the_others(texts, tmp_path, monkeypatch, caplog):
    done = sweeping.work

    def work(member, *more):
        assert "x0016" not in member.name, "nobody foresaw it"
        done(member, *more)

    monkeypatch.setattr(sweeping, "work", work)
    made = sweep(*planned(texts, tmp_path / "runs", "1x16,32"), tmp_path / "runs")
    assert list(made.problems) == ["texts-01x0016_01d"]
    assert "AssertionError: nobody foresaw it" in made.problems["texts-01x0016_01d"]
    assert [row.model for row in made.rows] == ["texts-01x0032_01d@0"]
    listed = {each["member"]: each["state"] for each in status(tmp_path / "runs")}
    assert "nobody foresaw it" in listed["texts-01x0016_01d"]
