"""Two processes and one store: the second is told by whom it is in use; a lock that a killed process left is none."""

import os
import platform
import re
import shutil
import signal
import time

import pytest

from collapse.store import Store

WRITERS = ("collect", "merge", "pull", "measure")


@pytest.fixture(scope="module")
def runner(start_runner, commands, tmp_path_factory):
    return start_runner(tmp_path_factory.mktemp("home"), commands.hub)


@pytest.fixture
def stopped(runner, commands, tmp_path):
    """Start a command and stop it where it holds the lock of the store; its process id."""
    started = []

    def stopped(name):
        pid = runner.start(commands[name].words(tmp_path), tmp_path / "first.log")
        deadline = time.monotonic() + 30
        while not (re.fullmatch(rf"{pid}\n.+\n(\d+\n)?", text_of(tmp_path / "store" / ".lock"))):
            assert time.monotonic() < deadline
        os.killpg(pid, signal.SIGSTOP)
        started.append(pid)
        return pid

    yield stopped
    for pid in started:
        runner.kill(pid)


def text_of(file):
    return file.read_text() if file.exists() else ""


@pytest.mark.parametrize("first", ["collect", "merge", "pull"])
def test_the_second_writer_is_told_by_whom(runner, commands, stopped, tmp_path, first):
    pid = stopped(first)
    for second in WRITERS:
        code, said = runner.run(commands[second].words(tmp_path), tmp_path / "log")
        assert code == 1, said
        assert f"store is in use by process {pid} on {platform.node()}: wait for it, or use another --store" in said
        assert said.count("\n") == 1
    os.killpg(pid, signal.SIGCONT)
    assert runner.wait(pid) == 0, text_of(tmp_path / "first.log")
    assert not Store.load(tmp_path / "store").verify()
    assert not (tmp_path / "store" / ".lock").exists()


@pytest.mark.parametrize("first", ["collect", "merge", "pull"])
def test_the_lock_of_a_killed_process_is_none(runner, commands, stopped, tmp_path, first):
    assert runner.kill(stopped(first))
    assert (tmp_path / "store" / ".lock").exists()
    code, said = runner.run(commands[first].words(tmp_path), tmp_path / "log")
    assert code == 0, said
    assert not Store.load(tmp_path / "store").verify()


@pytest.mark.parametrize("marker", ["", "12", "\0" * 40], ids=["empty", "cut", "zeros"])
def test_a_marker_without_a_name_is_none(runner, commands, tmp_path, marker):
    # its maker was killed, or the machine went down, before its process id and host had been written
    (tmp_path / "store").mkdir()
    (tmp_path / "store" / ".lock").write_text(marker)
    code, said = runner.run(commands["merge"].words(tmp_path), tmp_path / "log")
    assert code == 0, said
    assert not (tmp_path / "store" / ".lock").exists()


def test_a_store_can_be_measured_while_its_validation_is_collected(runner, commands, tiny, stopped, tmp_path):
    words = tiny.words("--store", tmp_path / "store", "--batch-size", 4, "--max-chunks", 48)
    code, said = runner.run(["collect", *words, "--part", "1/1"], tmp_path / "log")
    assert code == 0, said
    pid = stopped("collect")
    code, said = runner.run(["measure", tmp_path / "store", "--metrics", "nc3"], tmp_path / "log")
    assert code == 0, said
    code, said = runner.run(["push", tmp_path / "store", "owner/new"], tmp_path / "log")
    assert code == 0, said
    os.killpg(pid, signal.SIGCONT)
    assert runner.wait(pid) == 0
    code, said = runner.run(["pull", "owner/new", "--store", tmp_path / "pulled"], tmp_path / "log")
    assert code == 0, said
    assert Store.load(tmp_path / "pulled").state == "trained"


def test_what_is_pushed_is_the_store_as_it_was_opened(commands, as_user, hub, tiny, runner, tmp_path):
    store, later = tmp_path / "store", tmp_path / "later"
    words = tiny.words("--store", store, "--batch-size", 4, "--max-chunks", 48)
    assert runner.run(["collect", *words, "--part", "1/1"], tmp_path / "log")[0] == 0
    shutil.copytree(store, later)
    assert runner.run(["collect", *words], tmp_path / "log")[0] == 0
    os.rename(store, tmp_path / "validated")
    os.rename(later, store)
    # opened when it was trained, pushed when another process had validated it
    as_user(
        python="import os, collapse; s = collapse.load('store'); os.rename('store', 'before'); "
        "os.rename('validated', 'store'); s.push('owner/stats')",
        cwd=tmp_path,
    )
    as_user("pull", "owner/stats", "--store", tmp_path / "pulled")
    assert Store.load(tmp_path / "pulled").state == "trained"


def test_what_a_killed_run_had_no_time_to_remove(runner, commands, tmp_path):
    words = commands["collect"].words(tmp_path)
    pid = runner.start(words, tmp_path / "log")
    while not (tmp_path / "store" / "partial" / "state.json").exists():
        time.sleep(0.001)
    shutil.copytree(tmp_path / "store" / "partial", tmp_path / "partial")
    assert runner.wait(pid) == 0
    shutil.move(tmp_path / "partial", tmp_path / "store" / "partial")
    code, said = runner.run(words, tmp_path / "log")
    assert code == 0, said
    assert not (tmp_path / "store" / "partial").exists()
    (tmp_path / "features").mkdir()
    for name in (".collapse.json.partial", ".lock.break.1.a"):
        (tmp_path / "features" / name).write_text("{")
    features = commands.big.with_name("features.safetensors")
    code, said = runner.run(["collect", features, "--store", tmp_path / "features"], tmp_path / "log")
    assert code == 0, said
