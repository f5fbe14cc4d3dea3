"""The environment of a sweep's local jobs."""

import os
import shlex
import shutil
import subprocess
import sys

import pytest

from collapse_zoo.launching import Resources, _local, _same_gpus


@pytest.mark.parametrize("visible", [None, "", "1,0", "GPU-1 $HOME"])
def test_a_local_job_sees_the_gpus_that_the_sweep_sees(tmp_path, monkeypatch, visible):
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    if visible is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    executor = _local(tmp_path, Resources())
    assert executor.submit(os.getenv, "CUDA_VISIBLE_DEVICES").result() == visible


@pytest.mark.parametrize("shell", ["sh", "bash", "dash"])
def test_a_local_job_is_a_child_of_its_shell(shell):
    if shutil.which(shell) is None:
        pytest.skip(f"no {shell} here")
    job = shlex.join([sys.executable, "-c", "import os; print(os.getppid())"])
    with subprocess.Popen([shell, "-c", " && ".join([*_same_gpus(), job])], stdout=subprocess.PIPE, text=True) as made:
        assert int(made.communicate()[0]) == made.pid
