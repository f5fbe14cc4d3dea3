"""A pass that memory has no room for stops before its first chunk, with what it needs, what there is and what fits."""

from pathlib import Path

import numpy as np
import pytest
import torch

import collapse
from collapse.collection import room
from collapse.collection.room import Need
from collapse.errors import CollapseError
from collapse.numerics.accumulate import ClassMoments
from collapse.numerics.decisions import Decider
from collapse.numerics.memory import available

CPU = torch.device("cpu")
MB = 1 << 20


def written(root: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    return root


MACHINE = {"proc/meminfo": "MemTotal:  9000 kB\nMemAvailable:    6000 kB\nSwapFree:  1000 kB\nHugePages_Total:  0\n"}


@pytest.mark.parametrize(
    ("files", "left"),
    [
        ({}, 7000),
        ({"proc/self/cgroup": "0::/a/b\n"}, 7000),
        ({"proc/self/cgroup": "0::/a/b\n", "a/b/memory.max": "max", "a/b/memory.current": "4096"}, 7000),
        (
            {
                "proc/self/cgroup": "0::/a/b\n",
                "a/memory.max": f"{5000 << 10}",
                "a/memory.current": f"{3000 << 10}",
                "a/memory.stat": f"anon 7\nfile {600 << 10}\nshmem {100 << 10}\n",
                "a/b/memory.max": "max",
                "a/b/memory.current": "0",
            },
            5000 - 3000 + 500 + 1000,
        ),
        (
            {
                "proc/self/cgroup": "5:cpu,cpuacct:/x\n4:memory:/x\n",
                "memory/x/memory.limit_in_bytes": f"{2000 << 10}",
                "memory/x/memory.usage_in_bytes": f"{1500 << 10}",
                "cpu,cpuacct/x/memory.limit_in_bytes": "1",
            },
            500 + 1000,
        ),
        ({"proc/self/cgroup": "0::/a\n", "a/memory.max": "9", "a/memory.current": f"{9000 << 10}"}, 0),
    ],
)
def test_what_is_left_is_what_machine_and_container_leave(tmp_path, files, left):
    groups = {name if name.startswith("proc") else f"sys/fs/cgroup/{name}": text for name, text in files.items()}
    assert available(CPU, written(tmp_path, MACHINE | groups)) == left << 10


def test_where_nothing_is_known_nothing_is_refused(tmp_path, monkeypatch):
    assert available(CPU, tmp_path) is None
    assert available(torch.device("mps"), tmp_path) is None
    monkeypatch.setattr(room, "available", lambda device: None)
    Need("train", "m", 10**12, 10**6, 10**12, CPU).check()


# In a process of its own, whose memory ends soon.
SHORT = """
import re, resource, sys
from pathlib import Path
import numpy as np
import collapse
classes, dim, left = map(int, sys.argv[1:])
draw = np.random.default_rng(0)
collapse.collect_arrays(np.eye(4), np.arange(4) % 2, np.eye(2, 4))
arrays = [draw.normal(size=(classes, dim)).astype("f4"), np.arange(classes), np.zeros((classes, dim), "f4")]
used = int(re.search(r"VmSize:\\s+(\\d+)", Path("/proc/self/status").read_text())[1]) << 10
resource.setrlimit(resource.RLIMIT_AS, (used + left, used + left))
try:
    collapse.collect_arrays(*arrays, statistics=[])
except collapse.CollapseError as error:
    print(error)
"""


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="asks Linux for the memory in use")
def test_a_vocabulary_too_large_for_memory_is_refused_before_the_first_chunk(run_python):
    done = run_python(SHORT, 20_000, 512, 250 * MB)  # the means alone have 82 MB
    assert done.returncode == 0, done.stderr
    (said,) = done.stdout.splitlines()
    assert "the train pass of arrays needs at least 327.7 MB beside the model (20,000 classes × 512 dimensions" in said
    fits = int(said.partition("enough for ")[2].partition(" classes")[0].replace(",", ""))
    assert 10_000 < fits < 20_000
    assert said.endswith("classes: use a machine with more memory")


def test_classes_are_counted_where_the_vocabulary_would_not_fit(monkeypatch):
    arrays = np.ones((60, 4)), np.arange(60) % 3, np.ones((50, 4))
    monkeypatch.setattr(room, "available", lambda device: 4 * 8 * 4 * 3)  # 4 copies of 3 classes
    assert collapse.collect_arrays(*arrays, statistics=[]).statistics().n_classes == 3
    monkeypatch.setattr(room, "available", lambda device: 4 * 8 * 4 * 3 - 1)
    with pytest.raises(CollapseError, match=r"\(3 classes × 4 dimensions in float64\), .* enough for 2 classes"):
        collapse.collect_arrays(*arrays, statistics=[])


@pytest.fixture
def words(tiny, tmp_path):
    return ["collect", *tiny.words("--max-chunks", 9, "--store", tmp_path / "s")]


def test_a_validation_without_room_leaves_the_trained_store(words, tmp_path, told, monkeypatch):
    needs = {}

    def free(device):
        return needs.get("left", 10**12)

    def check(self):
        needs["left"] = self.size - 1 if self.phase == "validation" else self.size
        plain(self)

    plain = Need.check
    monkeypatch.setattr(room, "available", free)
    monkeypatch.setattr(Need, "check", check)
    said = told(1, *words).splitlines()[-1]
    assert "/model needs at least" in said
    assert "collapse: the validation pass of " in said
    assert "in float64, a vocabulary of 512), and" in said
    assert "a store that is trained can be validated elsewhere. A smaller --batch-size does not help" in said
    assert collapse.load(tmp_path / "s").state == "trained"
    monkeypatch.setattr(Need, "check", plain)
    monkeypatch.setattr(room, "available", lambda device: 10**12)
    told(0, *words)
    assert collapse.load(tmp_path / "s").state == "complete"


@pytest.mark.parametrize("error", [torch.OutOfMemoryError("CUDA out of memory. Tried to allocate"), MemoryError()])
def test_memory_that_runs_out_in_validation_costs_one_line(words, tmp_path, told, monkeypatch, error):
    def full(self, *arguments):
        raise error

    with monkeypatch.context() as changed:
        changed.setattr(Decider, "linear", full)
        said = told(1, *words).splitlines()[-1]
    assert said.startswith("collapse: memory ran out: the validation pass of ")
    assert "try --batch-size 1, or use a machine with more memory; a store that is trained" in said
    assert collapse.load(tmp_path / "s").state == "trained"
    told(0, *words)


def test_memory_that_runs_out_in_training_costs_one_line(words, tmp_path, told, monkeypatch):
    def full(self, *arguments):
        raise RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate 99 bytes")

    with monkeypatch.context() as changed:
        changed.setattr(ClassMoments, "add", full)
        said = told(1, *words).splitlines()[-1]
    assert said.startswith("collapse: memory ran out: the train pass of ")
    assert "try --batch-size 1, or use a machine with more memory, or fewer chunks (--max-chunks), of fewer" in said
    told(0, *words)
    assert collapse.load(tmp_path / "s").state == "complete"


def test_other_errors_are_not_told_as_such(tiny, tmp_path, monkeypatch):
    def wrong(self, *arguments):
        raise RuntimeError("shapes")

    monkeypatch.setattr(Decider, "linear", wrong)
    with pytest.raises(RuntimeError, match="shapes"):
        collapse.collect(tiny.model, store=tmp_path / "s", max_chunks=9, **tiny.options())


@pytest.mark.parametrize("phase", ["train", "validation"])
def test_a_gpu_without_room_names_the_cpu_where_that_has_some(monkeypatch, phase):
    left = {"cuda": 10**9, "cpu": 10**12}
    monkeypatch.setattr(room, "available", lambda device: left[device.type])
    need = Need(phase, "m", 262_144, 2_304, 262_144, torch.device("cuda:0"))
    with pytest.raises(CollapseError, match=r"1\.0 GB are available on cuda:0, enough for [\d,]+ classes: use --dev"):
        need.check()
    left["cpu"] = 10**9
    with pytest.raises(CollapseError, match=r"classes: use a machine with more memory.* --batch-size does not help"):
        need.check()
    left["cuda"] = need.size
    need.check()
