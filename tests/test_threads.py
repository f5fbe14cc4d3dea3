"""Threads: as many as the user asks for or the machine grants; waiting threads soon sleep."""

import json
import os
import subprocess
import sys

import pytest

ASKS = """
import json, os, sys, torch
print(json.dumps({"spins": os.environ.get("GOMP_SPINCOUNT"), "threads": torch.get_num_threads()}), file=sys.stderr)
"""
"""A plugin that says with what it was loaded, on stderr (stdout is for results); without a hook it is refused."""


@pytest.fixture
def asked(tmp_path):
    """The environment and the threads of torch in a command of its own, by what is set and typed."""
    plugin = tmp_path / "asks.py"
    plugin.write_text(ASKS)
    ours = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "GOMP_SPINCOUNT", "OMP_WAIT_POLICY", "SLURM_CPUS_PER_TASK")

    def asked(*words, **settings):
        environment = {name: value for name, value in os.environ.items() if name not in ours}
        command = [sys.executable, "-m", "collapse", "-p", str(plugin), "plugins", *words]
        done = subprocess.run(command, env={**environment, **settings}, capture_output=True, text=True)
        return json.loads(done.stderr.splitlines()[0])

    return asked


def test_threads_do_not_spin_for_long_unless_the_user_says_so(asked):
    assert asked()["spins"] == "3000"
    assert asked(OMP_WAIT_POLICY="active")["spins"] is None
    assert asked(GOMP_SPINCOUNT="7")["spins"] == "7"


def test_how_many_threads(asked):
    assert asked("--threads", "1", OMP_NUM_THREADS="2")["threads"] == 1
    assert asked(OMP_NUM_THREADS="2", SLURM_CPUS_PER_TASK="1")["threads"] == 2
    assert asked(SLURM_CPUS_PER_TASK="1")["threads"] == 1
    more = 2 * (os.cpu_count() or 1)  # which MKL, and torch with it, would cut down to the cores
    assert asked("--threads", str(more))["threads"] == more
