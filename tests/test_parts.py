"""Parts of one store in one folder, at the same time: each holds its own lock, and the last one folds."""

import os
import signal
import time

import pytest
from equal_stores import eventually, same

import collapse
from collapse.stores.lock import is_locked, running_parts
from collapse.stores.shards import shards_in


@pytest.fixture
def start(runner, tiny, tmp_path):
    """Start collecting into the store; ends what is left."""
    started = []

    def start(*words, log="log"):
        started.append(runner.start(["collect", *tiny.words("--store", tmp_path / "store", *words)], tmp_path / log))
        return started[-1]

    yield start
    for pid in started:
        runner.kill(pid)


@pytest.fixture
def stopped(start, tmp_path):
    """Start collecting a part, and stop it while it holds its lock."""

    def stopped(part):
        pid = start("--part", "{}/{}".format(*part), log=f"log{part}")
        eventually(lambda: part in running_parts(tmp_path / "store"))
        os.killpg(pid, signal.SIGSTOP)
        while is_locked(tmp_path / "store"):  # it looks for what is done
            os.killpg(pid, signal.SIGCONT)
            time.sleep(0.05)
            os.killpg(pid, signal.SIGSTOP)
        return pid

    return stopped


def test_parts_at_once_end_in_the_store_of_one_process(runner, start, whole, tmp_path):
    for _ in ("train", "validation"):
        pids = [start("--part", f"{k}/3", log=f"log{k}") for k in (1, 2, 3)]
        assert [runner.wait(pid) for pid in pids] == [0, 0, 0]
    store = collapse.load(tmp_path / "store")
    assert store.state == "complete"
    same(store, whole)
    assert [each.name for each in store.path.iterdir() if each.name != "collapse.json"] == ["top"]
    assert len(store.manifest["provenance"]["parts"]) == 3


def test_beside_a_running_part(runner, start, stopped, out, told, tiny, tmp_path):
    store = tmp_path / "store"
    pid = stopped((1, 2))
    shown = out("status", store, "--format", "csv").splitlines()
    assert shown[1].startswith(f"{store},train,1/2,0,")
    assert ",running," in shown[1]
    refused = told(1, "collect", *tiny.words("--store", store, "--part", "2/3"))
    assert refused == (
        f"collapse: another process collects part 1/2 into {store}: wait until it ends, or divide the collection into "
        "2 parts too: --part k/2\n"
    )
    others = [start(*words, log="waits") for words in (("--part", "1/2"), ())]
    eventually(lambda: (tmp_path / "waits").read_text().count("in use by another process: waiting until it ends") == 2)
    assert runner.wait(start("--part", "2/2")) == 0
    assert "holds training slices" in (tmp_path / "log").read_text()
    assert ",2/2," in out("status", store, "--format", "csv")
    os.killpg(pid, signal.SIGCONT)
    assert [runner.wait(each) for each in (pid, *others)] == [0, 0, 0], (tmp_path / "waits").read_text()
    assert collapse.load(store).check().state == "complete"


def test_status_of_stores_and_parts(tiny, whole, out, told, tmp_path):
    assert [line.split(",")[1:6] for line in out("status", whole, "--format", "csv").splitlines()] == [
        ["phase", "part", "done", "of", "state"],
        ["train", "", "11", "11", "done"],
        ["validation", "", "10", "10", "done"],
    ]
    for k in (1, 2):
        collapse.collect(tiny.model, store=tmp_path / f"p{k}", part=(k, 2), **tiny.options())
    shown = out("status", tmp_path)
    assert shown.count("not running") == 2
    (shard,) = shards_in(tmp_path / "p2", "train")
    assert shard.header["seconds"] < shard.header["provenance"]["seconds"]  # which includes loading the model
    assert str(tmp_path / "p2") in shown
    assert "there is no folder" in told(2, "status", tmp_path / "none")


def test_more_parts_than_slices_are_refused(tiny, told, tmp_path):
    words = tiny.words("--store", tmp_path / "store", "--part", "1/12")
    assert "--part 1/12: the text has only 11 slices; use at most 11 parts" in told(2, "collect", *words)
