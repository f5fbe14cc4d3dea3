"""Benchmark the start of ``collapse --help`` and ``collapse measure STORE``, compared with importing torch.

Each is a whole process. CPU time is measured, because other processes on the machine hardly affect it.
"""

import os
import resource
import subprocess
import sys
import tempfile
from functools import partial
from pathlib import Path

from safetensors.torch import save_file

import collapse
from benchmarks.machine import ROOT
from benchmarks.record import Record
from benchmarks.timing import in_turn
from collapse.testing import random_features


def benchmark(quick: bool) -> Record:
    """Time the processes in turn; the first round fills the caches of files and bytecode, and does not count."""
    ours = [sys.executable, "-m", "collapse"]
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    run = partial(subprocess.run, cwd=ROOT, env=environment, capture_output=True, check=True)
    record = Record("startup", "CPU time of whole processes. The store is local and small.")
    with tempfile.TemporaryDirectory() as folder:
        features, store = Path(folder) / "features.safetensors", Path(folder) / "store"
        save_file(random_features(classes=200, dim=32, samples=2_000), features)
        collapse.collect(str(features), store=store)
        works = {
            "import torch": partial(run, [sys.executable, "-c", "import torch"]),
            "collapse --help": partial(run, [*ours, "--help"]),
            "collapse measure STORE": partial(run, [*ours, "measure", str(store)]),
        }
        record.add("start", in_turn(works, 1 if quick else 7, clock=_cpu_seconds))
    return record


def _cpu_seconds() -> float:
    """Return the CPU time of all processes that this one has started and that have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime
