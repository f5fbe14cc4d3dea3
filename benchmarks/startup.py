"""Time to start: ``collapse --help``, and ``collapse measure STORE`` against importing torch.

Each is a whole process. The time is that of the CPU, which another process on the machine does not lengthen.
"""

import os
import resource
import subprocess
import sys
import tempfile
from pathlib import Path
from statistics import median

from safetensors.torch import save_file

import collapse
from benchmarks.machine import ROOT
from benchmarks.record import Record
from collapse.errors import CollapseError
from collapse.testing import random_features


def benchmark(quick: bool) -> Record:
    """Measure processes in turn."""
    ours = [sys.executable, "-m", "collapse"]
    with tempfile.TemporaryDirectory() as folder:
        features, store = Path(folder) / "features.safetensors", Path(folder) / "store"
        save_file(random_features(classes=200, dim=32, samples=2_000), features)
        collapse.collect(str(features), store=store)
        commands = {
            "import torch": [sys.executable, "-c", "import torch"],
            "collapse --help": [*ours, "--help"],
            "collapse measure STORE": [*ours, "measure", str(store)],
        }
        times: dict[str, list[float]] = {name: [] for name in commands}
        for _ in range(2 if quick else 8):
            for name, command in commands.items():
                times[name].append(_cpu_seconds(command))
    record = Record("startup", "CPU time of whole processes; the store is here and small.")
    # the first fills the caches of files and bytecode
    record.add("start", {name: median(each[1:]) for name, each in times.items()})
    return record


def _cpu_seconds(command: list[str]) -> float:
    """Return the CPU time of a process and of those that it starts."""
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    before = _of_children()
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        raise CollapseError(f"{' '.join(command[1:])} failed: {done.stderr.strip().splitlines()[-1]}")
    return _of_children() - before


def _of_children() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime
