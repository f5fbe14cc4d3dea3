"""If memory runs out in a pass or in the pair sweep, one line gives the operation, C, d, 8·C·d and advice."""

from pathlib import Path

import pytest
import torch

import collapse
from collapse.numerics.class_moments import ClassMoments
from collapse.numerics.decisions import Decider

MB = 1 << 20

# In a process of its own, whose memory ends soon.
SHORT = """
import re, resource, sys
from pathlib import Path
import numpy as np
import collapse
what, classes, dim, left = sys.argv[1], *map(int, sys.argv[2:])
draw = np.random.default_rng(0)
collapse.measure(collapse.collect_arrays(np.eye(4), np.arange(4) % 2, np.eye(2, 4)))
arrays = [draw.normal(size=(classes, dim)).astype("f4"), np.arange(classes), np.zeros((classes, dim), "f4")]
store = collapse.collect_arrays(*arrays, statistics=[]) if what == "measure" else None
used = int(re.search(r"VmSize:\\s+(\\d+)", Path("/proc/self/status").read_text())[1]) << 10
resource.setrlimit(resource.RLIMIT_AS, (used + left, used + left))
try:
    collapse.measure(store, metrics="nc1.cdnv") if store else collapse.collect_arrays(*arrays, statistics=[])
except collapse.CollapseError as error:
    print(error)
"""


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="asks Linux for the memory in use")
@pytest.mark.parametrize(
    ("what", "said"),
    [
        ("collect", "memory ran out in the collection of arrays: up to "),
        ("measure", "memory ran out in the measurements: up to "),
    ],
)
def test_a_vocabulary_that_memory_does_not_hold(run_python, what, said):
    done = run_python(SHORT, what, 20_000, 512, 100 * MB)  # the means alone have 82 MB
    assert done.returncode == 0, done.stderr
    (line,) = done.stdout.splitlines()
    assert line.startswith(f"{said}C = 20,000 classes × d = 512 dimensions, 8·C·d = 81.9 MB for each matrix of ")
    assert "class means: use a machine with more memory" in line


@pytest.mark.parametrize(
    ("full", "error", "said", "state"),
    [
        (
            (Decider, "linear"),
            torch.OutOfMemoryError("CUDA out of memory. Tried to allocate"),
            "of class means: use a machine with more memory or --batch-size 1",
            "trained",
        ),
        ((Decider, "nearest"), MemoryError(), "memory ran out in the collection of ", "trained"),
        (
            (ClassMoments, "add"),
            RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate 99 bytes"),
            "model: up to C = 512 classes × d = 48 dimensions, 8·C·d = 0.2 MB for each matrix of class means: use a "
            "machine with more memory or --batch-size 1 or fewer chunks (--max-chunks)",
            None,
        ),
    ],
    ids=["GPU", "Python", "CPU"],
)
def test_a_pass_without_memory_can_be_resumed(tiny, tmp_path, told, monkeypatch, full, error, said, state):
    def raises(self, *arguments):
        raise error

    words = ["collect", *tiny.words("--max-chunks", 9, "--store", tmp_path / "s")]
    with monkeypatch.context() as changed:
        changed.setattr(*full, raises)
        assert said in told(1, *words).splitlines()[-1]
    if state:
        assert collapse.load(tmp_path / "s").state == state
    told(0, *words)
    assert collapse.load(tmp_path / "s").state == "complete"
