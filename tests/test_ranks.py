"""Ranks share a command: any number of them gives the store of one, only rank 0 prints, and a dead one costs little.

The long version, of twenty kills, is ``pytest -n0 -m slow tests/test_ranks.py``.
"""

import json
import os
import random
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest
from equal_stores import eventually, same
from safetensors.torch import save_file
from started_ranks import Ranks

import collapse
from collapse.stores.shards import shards_in
from collapse.stores.store import Store
from collapse.testing import random_features


@pytest.fixture
def ranks(warm_here, tmp_path_factory):
    return Ranks(warm_here, tmp_path_factory.mktemp("ranks"))


@pytest.fixture(scope="module")
def whole(tiny, tmp_path_factory):
    """The store of one process."""
    return collapse.collect(
        tiny.model, store=tmp_path_factory.mktemp("whole") / "store", batch_size=4, **tiny.options()
    )


def words_of(tiny, store):
    return ["collect", *tiny.words("--store", store, "--batch-size", 4)]  # in float32, batches of other sizes round


@pytest.mark.parametrize("count", [2, 3])
def test_ranks_give_the_store_of_one_process(ranks, tiny, whole, tmp_path, count):
    words = words_of(tiny, tmp_path / "store")
    assert ranks.run(*[words] * count) == [0] * count
    assert "is complete" in ranks.said(0, "out")
    assert not any(ranks.said(rank, kind) for rank in range(1, count) for kind in ("out", "err"))
    same(Store.load(tmp_path / "store"), whole)
    assert not (tmp_path / "store" / "shards").exists()


def await_shard(store):
    eventually(lambda: any(store.glob("shards/train-*.safetensors")))


@pytest.mark.parametrize("kills", [3, pytest.param(20, marks=pytest.mark.slow)])
def test_ranks_continue_what_killed_ranks_left(ranks, tiny, whole, tmp_path, kills):
    """Kill a random rank or all of them at a random moment; another number of ranks repeats no slice of a shard."""
    draw, store = random.Random(kills), tmp_path / "store"
    words = [*words_of(tiny, store), "-v"]
    effective, ended = 0, True
    while effective < kills:
        if ended:
            shutil.rmtree(store, ignore_errors=True)
        count = draw.randint(1, 4)
        kept = slices_in(store)
        pids = ranks.start(*[words] * count)
        # ranks wait for minutes for one that dies before it joins
        eventually(lambda: any(log.exists() and log.stat().st_size for log in (ranks.log(0), ranks.log(0, "out"))))
        time.sleep(draw.uniform(0, 0.3))
        killed = [ranks.warm.kill(pid) for pid in (pids if draw.random() < 0.5 else draw.sample(pids, 1))]
        for pid in pids:
            ranks.warm.wait(pid)
        effective, ended = effective + any(killed), not any(killed)
        assert not kept & collected(ranks, count)
        assert store.joinpath("collapse.json").exists() or kept <= slices_in(store)
    kept = slices_in(store)
    assert ranks.run(words, words) == [0, 0]
    assert not kept & collected(ranks, 2)
    same(Store.load(store), whole)


def slices_in(store):
    """The phase and number of each slice that a shard holds."""
    shards = [*shards_in(store, "train"), *shards_in(store, "validation")]
    return {(each.phase, index) for each in shards for index in range(each.start + 1, each.stop + 1)}


def collected(ranks, count):
    """The phase and number of each slice after which a rank of the last command saved its state."""
    said = "".join(ranks.said(rank) for rank in range(count))
    return {(phase, int(index)) for phase, index in re.findall(r"(train|validation): slice (\d+) of", said)}


def test_a_part_is_shared_by_ranks(ranks, tiny, whole, tmp_path):
    for k in (1, 2):
        words = [*words_of(tiny, tmp_path / f"{k}"), "--part", f"{k}/2"]
        assert ranks.run(words, words) == [0, 0]
        assert "holds training slices" in ranks.said(0, "out")
    words = words_of(tiny, tmp_path / "store")
    collapse.merge([tmp_path / "1", tmp_path / "2"], store=tmp_path / "store")
    assert ranks.run(words, words) == [0, 0]
    same(Store.load(tmp_path / "store"), whole)


@pytest.mark.parametrize("victim", [0, 2, "torchrun"])
def test_a_death_is_told_once(ranks, tiny, tmp_path, victim):
    store = tmp_path / "store"
    pids = ranks.start(*[words_of(tiny, store)] * 3)
    await_shard(store)
    if victim == "torchrun":
        for pid in pids:
            os.killpg(pid, signal.SIGSTOP)
        ranks.store = None
        time.sleep(1.1)  # they look at most once a second
        for pid in pids:
            os.killpg(pid, signal.SIGCONT)
    else:
        assert ranks.warm.kill(pids[victim])
    others = [rank for rank in range(3) if rank != victim]
    assert [ranks.warm.wait(pids[rank]) for rank in others] == [1] * len(others)
    said = "".join(ranks.said(rank) for rank in others)
    assert said.count("run the same command again, with any number of ranks") == 1
    assert "Traceback" not in said


def test_an_error_of_a_rank_is_told_by_rank_0(ranks, tiny, tmp_path):
    ours, theirs = (words_of(tiny, tmp_path / name) for name in ("one", "two"))
    assert ranks.run(ours, theirs) == [2, 2]
    assert ranks.said() == "collapse: rank 1 has other arguments than rank 0: start all ranks with the same command\n"
    assert ranks.run(*[["collect", "--xyzzy"]] * 2) == [2, 2]
    assert ranks.said().endswith("collapse: No such option '--xyzzy'.\n")
    assert not ranks.said(1)


def test_a_launcher_is_refused(ranks, tiny, tmp_path):
    words = [*words_of(tiny, tmp_path / "store"), "--launcher", "local"]
    assert ranks.run(words, words) == [2, 2]
    assert ranks.said() == "collapse: --launcher starts processes of its own: run the command without torchrun\n"


def test_ranks_with_other_texts_are_refused(ranks, tiny, tmp_path):
    for name, lines in (("one", 300), ("two", 200)):
        (tmp_path / name).mkdir()
        text = "".join(tiny.text.read_text().splitlines(keepends=True)[:lines])
        (tmp_path / name / "text.jsonl").write_text(text)
    words = ["collect", tiny.model, "--text", "text.jsonl", "--chunk-length", 32, "--store", tmp_path / "store"]
    assert ranks.run(words, words, folders=(tmp_path / "one", tmp_path / "two")) == [1, 1]
    assert re.search("collapse: rank 1: the ranks differ in corpus.sha256: .* run the same command", ranks.said())
    assert not (tmp_path / "store").exists()


def test_torchrun_starts_ranks(tmp_path):
    save_file(random_features(40, 8, 400), tmp_path / "features.safetensors")
    words = ["collapse", "measure", tmp_path / "features.safetensors", "--metrics", "nc1.cdnv", "--json"]
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", "-m"]
    done = subprocess.run([*torchrun, *map(str, words)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert len(json.loads(done.stdout)) == 1


THREADS = """
from pathlib import Path
from collapse.core import ranks
with ranks.left_at_the_end():
    ranks.join([], silent=False)
    import transformers.modeling_utils
names = [each.read_text() for each in Path("/proc/self/task").glob("*/comm")]
assert not [each for each in names if "gloo" in each], names
"""


@pytest.mark.skipif(not Path("/proc/self/task").is_dir(), reason="reads Linux's list of threads")
def test_no_thread_of_the_group_is_left_at_the_end(tmp_path):
    """Otherwise it could abort the process as it exits."""
    (tmp_path / "threads.py").write_text(THREADS)
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    done = subprocess.run([*torchrun, tmp_path / "threads.py"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_a_process_that_inherits_a_rank_is_told_so(run, tiny, tmp_path):
    done = run(*words_of(tiny, tmp_path / "store"), code=1, changes={"RANK": "1", "WORLD_SIZE": "2"})
    assert done.stderr.startswith("collapse: rank 1 of 2 cannot reach the others (")
    assert done.stderr.endswith("): start all ranks with torchrun, or unset RANK and WORLD_SIZE\n")


def test_rank_1_tells_that_rank_0_died_if_no_agent_holds_the_store(ranks, tiny, tmp_path):
    store = tmp_path / "store"
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        own = {"MASTER_PORT": str(free.getsockname()[1]), "TORCHELASTIC_USE_AGENT_STORE": "False"}
    pids = ranks.start(*[words_of(tiny, store)] * 2, more=own)
    await_shard(store)
    assert ranks.warm.kill(pids[0])
    assert ranks.warm.wait(pids[1]) == 1
    assert "another rank has ended" in ranks.said(1)


FAILS_ONCE = """
import os
import torch
from collapse import State, Statistic

class Fragile(Statistic):
    name = "fragile"
    state = {"seen": State((), torch.float64, "sum")}
    failed = []

    def update(self, batch):
        if os.environ.get("RANK") == "1" and not self.failed:
            self.failed.append(True)
            raise ValueError("not this one")
"""


def test_models_that_fail_on_all_ranks_or_on_one_leave_the_next_model(ranks, tiny, tmp_path):
    (tmp_path / "fragile.py").write_text(FAILS_ONCE)
    copy = shutil.copytree(tiny.model, tmp_path / "copy")
    words = ["measure", "a.safetensors", "b.safetensors", copy, *tiny.words("-p", tmp_path / "fragile.py")]
    assert ranks.run(*[[*words, "-v", "--metrics", "nc1"]] * 2) == [1, 1]
    assert "copy is not measured: rank 1: " in ranks.said()
    assert "ValueError: not this one" in ranks.said()
    assert "3 of 4 models are not measured" in ranks.said().partition("4 of 4: ")[2]
    assert "nc1.cdnv" in ranks.said(0, "out")


FAULTY = """
import os
import collapse

RANK = int(os.environ.get("RANK", 0))

@collapse.pair_metric(collapse.Mean("faulty.fails"))
def fails(cosine):
    if RANK == 1:
        raise ValueError("no number")
    return cosine

@collapse.pair_metric(collapse.Mean("faulty.writes"))
def writes(cosine, gram):
    return gram.zero_() if RANK == 1 else cosine

@collapse.metric("faulty.scalar")
def scalar(means):
    return means.zero_().sum() if RANK == 1 else means.sum()
"""


def test_measurements_of_ranks_equal_those_of_one_process(ranks, tmp_path):
    """Also if metrics fail or write to shared tensors on one rank only; 1,600 classes are six tiles."""
    (tmp_path / "faulty.py").write_text(FAULTY)
    save_file(random_features(1_600, 8, 8_000), tmp_path / "features.safetensors")
    words = ["measure", tmp_path / "features.safetensors", "--json", "-p", tmp_path / "faulty.py"]
    assert ranks.run(*[words] * 3) == [0] * 3
    values = numbers(json.loads(ranks.said(0, "out"))[0]["measurements"])
    assert not ranks.said(1, "out") + ranks.said(2, "out")
    for name in ("fails failed: ValueError: no number", "writes failed: it wrote", "scalar failed: it wrote"):
        assert name in ranks.said()
    alone = numbers(collapse.measure(tmp_path / "features.safetensors").measurements)
    assert values == pytest.approx(alone, rel=1e-12, abs=1e-12)


def numbers(measurements):
    return {name: value for name, value in measurements.items() if value is not None}
