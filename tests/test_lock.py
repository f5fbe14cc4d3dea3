"""Two processes and one store: the second waits for the first; a lock that a killed process left is none."""

import os
import shutil
import signal
import subprocess
import sys
import time
from multiprocessing import get_context

import pytest

from collapse.errors import InUseError
from collapse.stores.lock import is_locked, locked
from collapse.stores.store import Store


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
        while not is_locked(tmp_path / "store"):
            assert time.monotonic() < deadline
        os.killpg(pid, signal.SIGSTOP)
        started.append(pid)
        return pid

    yield stopped
    for pid in started:
        runner.kill(pid)


def text_of(file):
    return file.read_text() if file.exists() else ""


def waits(runner, words, log):
    """Start a command that has to wait for the holder of the lock; its process id."""
    pid = runner.start(words, log)
    deadline = time.monotonic() + 30
    while "store is in use by another process: waiting until it ends" not in text_of(log):
        assert time.monotonic() < deadline, text_of(log)
        time.sleep(0.01)
    return pid


@pytest.mark.parametrize("name", ["collect", "merge", "pull", "measure"])
def test_the_second_writer_waits_and_uses_the_store_of_the_first(runner, commands, stopped, tmp_path, name):
    pid = stopped(name)
    second = waits(runner, commands[name].words(tmp_path), tmp_path / "log")
    interrupted = waits(runner, commands[name].words(tmp_path), tmp_path / "interrupted.log")
    os.killpg(interrupted, signal.SIGINT)
    assert runner.wait(interrupted) == 130
    said = text_of(tmp_path / "interrupted.log").split("\n\n")
    assert len(said) == 2, said
    assert said[1].startswith("collapse: interrupted")
    os.killpg(pid, signal.SIGCONT)
    assert runner.wait(pid) == 0, text_of(tmp_path / "first.log")
    written = (tmp_path / "store" / "collapse.json").stat().st_mtime_ns
    assert runner.wait(second) == 0, text_of(tmp_path / "log")
    assert not Store.load(tmp_path / "store").verify()
    assert (tmp_path / "store" / "collapse.json").stat().st_mtime_ns == written
    assert not (tmp_path / "store" / ".lock").exists()


@pytest.mark.parametrize("ends", [signal.SIGKILL, signal.SIGINT])
def test_the_second_writer_goes_on_if_the_first_is_ended(runner, commands, stopped, tmp_path, ends):
    pid = stopped("collect")
    second = waits(runner, commands["collect"].words(tmp_path), tmp_path / "log")
    os.killpg(pid, ends)
    os.killpg(pid, signal.SIGCONT)
    assert runner.wait(second) == 0, text_of(tmp_path / "log")
    assert not Store.load(tmp_path / "store").verify()


@pytest.mark.parametrize("first", ["collect", "merge", "pull"])
def test_the_lock_of_a_killed_process_is_none(runner, commands, stopped, tmp_path, first):
    assert runner.kill(stopped(first))
    assert (tmp_path / "store" / ".lock").exists()
    code, said = runner.run(commands[first].words(tmp_path), tmp_path / "log")
    assert code == 0, said
    assert not Store.load(tmp_path / "store").verify()


def test_a_lock_file_that_nobody_holds_is_no_lock(runner, commands, tmp_path):
    (tmp_path / "store").mkdir()
    (tmp_path / "store" / ".lock").write_text("12")
    assert not is_locked(tmp_path / "store")
    code, said = runner.run(commands["merge"].words(tmp_path), tmp_path / "log")
    assert code == 0, said
    assert not (tmp_path / "store" / ".lock").exists()


HOLD = """
import sys
from pathlib import Path
from collapse.stores.lock import locked

with locked(Path(sys.argv[1])):
    print("held", flush=True)
"""


def take_turns(folder, turns):
    """Hold the lock so many times; how often somebody else held it at the same time."""
    together = 0
    for _ in range(turns):
        try:
            with locked(folder):
                mine = folder / "mine"
                together += mine.exists()
                mine.touch()
                time.sleep(0.0005)
                mine.unlink()
        except InUseError:
            pass
        except FileNotFoundError:
            together += 1
    return together


def test_four_processes_never_hold_it_at_once(tmp_path):
    with get_context("fork").Pool(4) as pool:
        assert sum(pool.starmap(take_turns, [(tmp_path, 50)] * 4)) == 0
    assert list(tmp_path.iterdir()) == []


@pytest.mark.skipif(os.geteuid() == 0 and not shutil.which("setpriv"), reason="root may write everywhere")
def test_a_folder_that_cannot_be_written(tmp_path):
    folder = tmp_path / "folder"
    folder.mkdir(mode=0o555)
    assert not is_locked(folder)
    tmp_path.chmod(0o755)
    prefix = ["setpriv", "--bounding-set=-all", "--inh-caps=-all"] if os.geteuid() == 0 else []
    refused = subprocess.run([*prefix, sys.executable, "-c", HOLD, folder], capture_output=True, text=True)
    last = refused.stderr.splitlines()[-1]
    assert "CollapseError: cannot write" in last, refused.stderr
    assert "Permission denied" in last
    assert "hoose another --store" in last


def test_what_a_killed_run_had_no_time_to_remove(runner, commands, tmp_path):
    words = commands["collect"].words(tmp_path)
    pid = runner.start(words, tmp_path / "log")
    while not (tmp_path / "store" / "shards" / "train-1.safetensors").exists():
        time.sleep(0.001)
    os.killpg(pid, signal.SIGSTOP)  # or a file may be replaced while it is copied
    shutil.copytree(tmp_path / "store" / "shards", tmp_path / "shards")
    os.killpg(pid, signal.SIGCONT)
    assert runner.wait(pid) == 0
    shutil.move(tmp_path / "shards", tmp_path / "store" / "shards")
    code, said = runner.run(words, tmp_path / "log")
    assert code == 0, said
    assert not (tmp_path / "store" / "shards").exists()
    (tmp_path / "features").mkdir()
    for name in (".collapse.json.partial", ".lock.break.1.a"):
        (tmp_path / "features" / name).write_text("{")
    features = commands.big.with_name("features.safetensors")
    code, said = runner.run(["collect", features, "--store", tmp_path / "features"], tmp_path / "log")
    assert code == 0, said
