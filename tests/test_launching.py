"""``--launcher``: parts as processes or SLURM jobs, killed and queued again, end in the store of one process."""

import os
import random
import signal
import time

import click
import pytest
from equal_stores import eventually, same
from fake_slurm import Slurm

import collapse
from collapse.cli.collect import command as collect
from collapse.cli.collection_jobs import option_words
from collapse.cli.measure import command as measure
from collapse.stores.lock import running_parts


@pytest.mark.parametrize(("jobs", "kills"), [(2, 1), pytest.param(4, 5, marks=pytest.mark.slow)])
def test_killed_local_jobs_continue_into_the_store_of_one_process(runner, tiny, whole, tmp_path, jobs, kills):
    store, log, draw = tmp_path / "store", tmp_path / "log", random.Random(0)
    command = ["collect", *tiny.words("--store", store, "--launcher", "local", "--jobs", jobs)]
    if kills == 1:  # quickly, without the processes of the validation
        at = command.index("--validation-text")
        command[at : at + 2] = []
    pid = runner.start(command, log)
    eventually(lambda: store.exists() and len(running_parts(store)) == jobs)
    os.kill(pid, signal.SIGKILL)  # only the parent: the others end with it
    eventually(lambda: not running_parts(store), 10)
    for _ in range(kills - 1):
        pid = runner.start(command, log)
        eventually(lambda: running_parts(store))
        time.sleep(draw.uniform(0, 2))
        assert runner.kill(pid)
    code, said = runner.run(command, log)
    assert code == 0, said
    same(collapse.load(store), whole, only=("train", "classifier") if kills == 1 else ())
    assert {each.name for each in store.iterdir() if not each.name.startswith(".lock")} == {"collapse.json", "top"}


def test_what_cannot_be_launched(tiny, told, tmp_path, monkeypatch):
    words = tiny.words("--store", tmp_path / "store")
    assert "--jobs needs a launcher: also give --launcher" in told(2, "collect", *words, "--jobs", 3)
    assert "give --store" in told(2, "measure", *tiny.words("--launcher", "local"))
    assert "--recollect cannot be used with --launcher" in told(
        2, "collect", *words, "--launcher", "local", "--recollect"
    )
    monkeypatch.setenv("PATH", str(tmp_path))
    assert "the command sbatch is not available" in told(2, "collect", *words, "--launcher", "slurm")


@pytest.mark.parametrize("command", [collect, measure])
def test_jobs_have_every_option_of_the_command(command):
    def words_of(option):
        if option.is_flag:
            return option.opts
        choices = getattr(option.type, "choices", None)
        value = choices[0] if choices else "a=b, c.csv" if option.type is click.STRING else "3"
        return [f"{option.opts[0]}={value}"] * (1 + option.multiple)

    def parsed(words):
        return command.make_context(None, [*words, "model"], resilient_parsing=True)

    options = [each for each in command.params if isinstance(each, click.Option)]
    lines = [words_of(each) for each in options]
    for words in [*lines, [word for line in lines for word in line]]:
        context = parsed(words)
        assert context.params != parsed([]).params, words
        assert parsed(option_words(context)).params == context.params


@pytest.fixture
def slurm(runner, tmp_path, monkeypatch):
    made = Slurm(tmp_path / "slurm", runner)
    monkeypatch.setenv("PATH", f"{made.folder}:{os.environ['PATH']}")
    return made


def test_only_what_is_missing_is_submitted(tiny, slurm, out, told, tmp_path, monkeypatch):
    command = ["collect", *tiny.words("--store", tmp_path / "store", "--launcher", "slurm", "--jobs", 2)]
    collapse.collect(tiny.model, store=tmp_path / "store", part=(1, 2), **tiny.options())
    said = told(1, *command, "--slurm", "account=nobody")
    assert said.startswith("collapse: the jobs could not be submitted: sbatch: error: invalid account nobody. Check")
    assert "are in the queue" not in said
    assert "SLURM jobs 1 to 3: 4 pending" in out(*command)
    assert [slurm.options(job).get("array") for job in (1, 2, 3)] == [None, "0-1%2", None]
    assert "holds an unfinished collection that differs in max_chunks" in told(1, *command, "--max-chunks", 9)
    assert "Wait until they end, or cancel them: scancel 1 2 3" in told(1, *command, "--slurm", "foo")
    monkeypatch.setenv("PATH", str(tmp_path))
    assert "the queue of SLURM jobs cannot be read" in told(1, *command)
    assert "the queue of SLURM jobs cannot be read" in out("status", tmp_path / "store")
    collapse.collect(tiny.model, store=tmp_path / "store", **tiny.options())
    assert "is complete" in out(*command)


def test_jobs_in_the_queue_are_named_if_later_ones_are_refused(tiny, slurm, told, tmp_path):
    command = ["collect", *tiny.words("--store", tmp_path / "store", "--launcher", "slurm", "--jobs", 2)]
    said = told(1, *command, "--slurm", "account=nobody-later")
    assert "The jobs 1_0 to 1_1 are in the queue: first cancel them" in said


def test_failed_jobs_are_reported_and_submitted_again(tiny, slurm, out, tmp_path):
    text, store = tmp_path / "text.jsonl", tmp_path / "store"
    text.write_bytes(tiny.text.read_bytes())
    words = [tiny.model, "--text", text, "--validation-text", text, "--chunk-length", 32]
    command = ["collect", *words, "--store", store, "--launcher", "slurm", "--jobs", 1]
    out(*command)
    assert "SLURM jobs 1 to 3: 3 pending" in out("status", store)
    text.unlink()
    slurm.work()
    assert slurm.states == {"1": "FAILED", "2": "FAILED", "3": "FAILED"}
    log = (slurm.folder / "log-1").read_text()
    assert "text.jsonl" in log
    assert "Traceback" not in log
    assert "SLURM jobs 1 to 3: 3 failed" in out("status", store)
    text.write_bytes(tiny.text.read_bytes())
    said = out(*command)
    assert said.startswith("earlier SLURM jobs 1 to 3: 3 failed")
    assert "SLURM jobs 4 to 6: 3 pending" in said


def test_slurm_jobs_that_are_queued_again_complete_the_store(slurm, tiny, whole, run, out, tmp_path):
    store, table = tmp_path / "store", tmp_path / "table.csv"
    how = ["--jobs", 2, "--partition", "gpu", "--hours", 0.1, "--slurm", "account=mine", "--slurm", "cpus-per-task=3"]
    command = ["measure", *tiny.words("--store", store, "--output", table, "--launcher", "slurm", *how)]
    assert "SLURM jobs 1_0 to 3" in run(*command).stdout
    expected = {"array": "0-1%2", "partition": "gpu", "time": "6", "account": "mine", "cpus-per-task": "3"}
    assert {name: slurm.options(1)[name] for name in expected} == expected
    assert "--cpus-per-task 3" in (slurm.folder / "1.sh").read_text()
    assert [slurm.options(job).get("dependency") for job in (1, 2, 3)] == [None, "afterany:1", "afterany:2"]

    def interrupt(job, pid):
        if slurm.ran.count(job) > 1:
            return
        if job == "1_0":
            eventually(lambda: (1, 2) in running_parts(store))
            os.kill(pid, signal.SIGSTOP)
            assert "1 running, 4 pending" in run(*command).stdout  # and does not submit again
            os.kill(pid, signal.SIGUSR2)
            os.kill(pid, signal.SIGCONT)
        if job == "1_1":
            eventually(lambda: (2, 2) in running_parts(store))
            slurm.preempt(job, pid)

    slurm.work(interrupt)
    assert "merge them" not in (slurm.folder / "log-1_0").read_text()  # advice for parts that are started by hand
    assert slurm.ran == ["1_0", "1_0", "1_1", "1_1", "2_0", "2_1", "3"]
    assert set(slurm.states.values()) == {"COMPLETED"}
    same(collapse.load(store), whole)
    rows = collapse.Results.read(table).frame()
    assert list(rows["nc4.agreement"]) == pytest.approx([collapse.measure(whole)["nc4.agreement"]], rel=1e-9)
    assert "all have ended" in out("status", store)
    assert "nc4.agreement" in run(*command).stdout
    assert len(list(slurm.folder.glob("*.sh"))) == 3
