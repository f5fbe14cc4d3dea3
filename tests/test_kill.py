"""SIGKILL at any moment of a collection: the same command resumes to the same bytes, and repeats no saved slice.

The long version, of twenty kills, is ``pytest -n0 -m slow tests/test_kill.py``.
"""

import os
import random
import re
import shutil
import time
from collections import Counter
from pathlib import Path

import pytest

from collapse.stores.store import Store


def tensor_bytes(store: Path) -> dict[str, bytes]:
    return {file.name: file.read_bytes() for file in sorted(store.glob("top/*.safetensors"))}


def logged(log: Path) -> list[tuple[str, int]]:
    found = re.findall(r"^(train|validation): slice (\d+) of", log.read_text(), re.MULTILINE)
    return [(phase, int(index)) for phase, index in found]


def await_moment(store: Path, moment: float | None) -> None:
    """Let some seconds pass, or wait for the middle of a state write."""
    deadline = time.monotonic() + (moment if moment is not None else 30)
    shards = store / "shards"
    while time.monotonic() < deadline:
        if moment is None:
            try:
                if any(name.endswith(".partial") for name in os.listdir(shards)):
                    break
            except FileNotFoundError:
                continue
        else:
            time.sleep(0.002)


@pytest.mark.parametrize(
    ("kills", "least_twice", "least_in_a_write"), [(5, 1, 1), pytest.param(20, 5, 3, marks=pytest.mark.slow)]
)
def test_killed_at_will_gives_the_same_bytes(runner, tiny, tmp_path, kills, least_twice, least_in_a_write):
    def command(store: Path) -> list[str]:
        return ["collect", *tiny.words("--store", store, "--batch-size", 4), "-v"]

    code, said = runner.run(command(tmp_path / "warm"), tmp_path / "warm.log")
    assert code == 0, said
    clock = time.monotonic()
    assert runner.run(command(tmp_path / "undisturbed"), tmp_path / "log")[0] == 0
    took = time.monotonic() - clock
    slices = Counter(phase for phase, _ in logged(tmp_path / "log"))
    assert slices["train"] >= 2
    assert slices["validation"] >= 2
    expected = tensor_bytes(tmp_path / "undisturbed")
    assert len(expected) == 4
    in_a_write = twice = 0
    for index in range(kills):
        store, log = tmp_path / f"store{index}", tmp_path / f"log{index}"
        # uniformly over the run, and every fourth inside a state write; again where the run was quicker than its killer
        moment = None if index % 4 == 1 else took * (index + 0.5) / kills
        for _ in range(10 if moment is not None else 30):  # a busy machine seldom lets the killer see a write
            shutil.rmtree(store, ignore_errors=True)
            log.unlink(missing_ok=True)
            killed, writing = killed_run(runner, command(store), store, log, moment)
            if killed and (writing or moment is not None):
                break
            moment = None if moment is None else 0.7 * moment
        assert killed
        in_a_write += writing
        if index % 3 == 2:
            soon = random.Random(index).uniform(0.02, 0.1) * took
            twice += killed_run(runner, command(store), store, log, soon)[0]
        code, said = runner.run(command(store), log)
        assert code == 0, said
        assert tensor_bytes(store) == expected
        repeated = [each for each, times in Counter(logged(log)).items() if times > 1]
        assert not repeated, f"slices of a state were computed again: {repeated}"
        assert not Store.load(store).verify()
        assert not (store / "shards").exists()
    assert in_a_write >= least_in_a_write
    assert twice >= least_twice


def killed_run(runner, command: list[str], store: Path, log: Path, moment: float | None) -> tuple[bool, bool]:
    """Start a command and kill it; return whether it was still running, and whether it was writing its state."""
    pid = runner.start(command, log)
    await_moment(store, moment)
    killed = runner.kill(pid)
    return killed, killed and any(file.name.endswith(".partial") for file in store.glob("shards/.*"))
