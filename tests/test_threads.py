"""Threads: their number is what a container grants or the user says, and they do not spin while others could work."""

import json
import os
import subprocess
import sys
from contextlib import contextmanager
from unittest.mock import patch

import pytest

from collapse.errors import UsageError
from collapse.threads import cpu_quota, prepare

ASKS = """
import json, os, sys, torch
print(json.dumps({"spins": os.environ.get("GOMP_SPINCOUNT"), "threads": torch.get_num_threads()}), file=sys.stderr)
"""
"""A plugin that says with what it was loaded, on stderr (stdout is for results); without a hook it is refused."""


@pytest.mark.parametrize(
    ("files", "found"),
    [
        ({}, None),
        ({"proc/self/cgroup": "0::/job/step", "sys/fs/cgroup/job/cpu.max": "max 100000"}, None),
        ({"proc/self/cgroup": "0::/", "sys/fs/cgroup/cpu.max": "50000 100000"}, 1),
        (
            {
                "proc/self/cgroup": "0::/job/step",
                "sys/fs/cgroup/job/cpu.max": "350000 100000",
                "sys/fs/cgroup/job/step/cpu.max": "max 100000",
            },
            4,
        ),
        (
            {
                "proc/self/cgroup": "9:name=systemd:/\n0::/docker/ab",
                "sys/fs/cgroup/cpu.max": "200000 100000",  # the host's path is not in the container
            },
            2,
        ),
        ({"proc/self/cgroup": "0::/", "sys/fs/cgroup/cpu.max": "not a number"}, None),
    ],
    ids=["no-linux", "no-limit", "half", "of-the-group-around", "in-a-container", "unreadable"],
)
def test_the_quota_is_the_smallest_of_the_groups_around_a_process(tmp_path, files, found):
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    assert cpu_quota(tmp_path) == found


@contextmanager
def no_torch(environment):
    """As in a process that has not loaded torch yet, with this environment."""
    with patch.dict(sys.modules), patch.dict(os.environ, environment, clear=True):
        sys.modules.pop("torch", None)
        yield os.environ


@pytest.fixture
def asked(tmp_path):
    """The environment and the threads of torch in a command of its own, by what is set and typed."""
    plugin = tmp_path / "asks.py"
    plugin.write_text(ASKS)
    ours = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "GOMP_SPINCOUNT", "OMP_WAIT_POLICY")

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


def test_the_user_says_how_many_threads(asked):
    assert asked("--threads", "1")["threads"] == 1
    assert asked("--threads=1", OMP_NUM_THREADS="2")["threads"] == 1
    assert asked(OMP_NUM_THREADS="1")["threads"] == 1
    more = 2 * (os.cpu_count() or 1)  # which MKL, and torch with it, would cut down to the cores
    assert asked("--threads", str(more))["threads"] == more


@pytest.mark.parametrize("name", ["OMP_NUM_THREADS", "MKL_NUM_THREADS"])
@pytest.mark.parametrize("value", ["x", "0", "-1", "1.5", "2,x", ",", "٢", "1 2", "4\x1f", "\u00a04", "4294967296"])
def test_what_is_set_and_is_no_number_of_threads_is_refused(name, value):
    with no_torch({name: value}), pytest.raises(UsageError, match=rf"{name} must be a whole number of at least 1, got"):
        prepare()


@pytest.mark.parametrize(("value", "kept"), [("3", "3"), (" 2 ", " 2 "), ("4,2", "4,2"), ("", None), (" ", None)])
def test_numbers_lists_of_them_and_nothing_are_taken(value, kept):
    with no_torch({"MKL_NUM_THREADS": value}) as environment:
        prepare()
        assert environment.get("MKL_NUM_THREADS") == kept


def test_the_option_goes_before_what_is_no_number():
    with no_torch({"OMP_NUM_THREADS": "x"}) as environment:
        prepare(1)
        assert environment["OMP_NUM_THREADS"] == "1"


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ("0", "0 is not in the range 1<=x<=1024"),
        ("two", "'two' is not a valid integer range"),
        ("1025", "1025 is not in the range 1<=x<=1024"),
    ],
)
def test_threads_that_cannot_be_started_are_refused(told, given, said):
    assert said in told(2, "metrics", "--threads", given)
