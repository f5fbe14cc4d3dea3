"""Two processes and one store: the second waits for the first; the lock of a killed process does not count."""

import os
import signal
import time
from multiprocessing import get_context

import pytest
from equal_stores import eventually

from collapse.errors import InUseError
from collapse.stores.lock import is_locked, locked, running_parts
from collapse.stores.store import Store


@pytest.fixture
def stopped(hub_runner, commands, tmp_path):
    """Start a command, stop it while it holds the lock of the store, and return its process id."""
    started = []

    def stopped(name):
        pid = hub_runner.start(commands[name].words(tmp_path), tmp_path / "first.log")
        eventually(lambda: is_locked(tmp_path / "store"), 30)
        os.killpg(pid, signal.SIGSTOP)
        started.append(pid)
        return pid

    yield stopped
    for pid in started:
        hub_runner.kill(pid)


def text_of(file):
    return file.read_text() if file.exists() else ""


def waits(hub_runner, words, log):
    """Start a command that must wait for the lock, and return its process id."""
    pid = hub_runner.start(words, log)
    eventually(lambda: "store is in use by another process: waiting until it ends" in text_of(log), 30)
    return pid


@pytest.mark.parametrize("name", ["collect", "merge", "pull", "measure"])
def test_the_second_writer_waits_and_uses_the_store_of_the_first(hub_runner, commands, stopped, tmp_path, name):
    pid = stopped(name)
    second = waits(hub_runner, commands[name].words(tmp_path), tmp_path / "log")
    interrupted = waits(hub_runner, commands[name].words(tmp_path), tmp_path / "interrupted.log")
    os.killpg(interrupted, signal.SIGINT)
    assert hub_runner.wait(interrupted) == 130
    said = text_of(tmp_path / "interrupted.log").split("\n\n")
    assert len(said) == 2, said
    assert said[1].startswith("collapse: interrupted")
    os.killpg(pid, signal.SIGCONT)
    assert hub_runner.wait(pid) == 0, text_of(tmp_path / "first.log")
    written = (tmp_path / "store" / "collapse.json").stat().st_mtime_ns
    assert hub_runner.wait(second) == 0, text_of(tmp_path / "log")
    assert not Store.load(tmp_path / "store").verify()
    assert (tmp_path / "store" / "collapse.json").stat().st_mtime_ns == written
    assert not (tmp_path / "store" / ".lock").exists()


@pytest.mark.parametrize("ends", [signal.SIGKILL, signal.SIGINT])
def test_the_second_writer_goes_on_if_the_first_is_ended(hub_runner, commands, stopped, tmp_path, ends):
    pid = stopped("collect")
    second = waits(hub_runner, commands["collect"].words(tmp_path), tmp_path / "log")
    os.killpg(pid, ends)
    os.killpg(pid, signal.SIGCONT)
    assert hub_runner.wait(second) == 0, text_of(tmp_path / "log")
    assert not Store.load(tmp_path / "store").verify()


def take_turns(folder, turns):
    """Take the lock this number of times; return how often another process held it at the same time."""
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


def look(folder, turns):
    """Look this number of times which parts run; return how often the first seemed to."""
    return sum((1, 2) in running_parts(folder) for _ in range(turns))


def test_looking_at_parts_that_do_not_run_neither_shows_nor_leaves_a_lock(tmp_path):
    (tmp_path / ".lock-1-of-2").touch()  # of a killed process
    with get_context("fork").Pool(4) as pool:
        looking = pool.starmap_async(look, [(tmp_path, 3000)] * 4)
        while not looking.ready():
            with locked(tmp_path, part=(2, 2)):
                pass
        assert looking.get() == [0] * 4
    assert [each.name for each in tmp_path.iterdir()] == [".lock-1-of-2"]
