"""SIGKILL at any moment of a collection: the same command goes on to the same bytes, and repeats no finished slice."""

import json
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from collapse.store import Store

KILLS, TWICE, IN_A_WRITE = 20, 5, 3
ZYGOTE = Path(__file__).with_name("zygote.py")


class Runner:
    """Starts command lines in process groups of their own."""

    def __init__(self, home: Path) -> None:
        environment = os.environ | {"COLLAPSE_HOME": str(home), "TOKENIZERS_PARALLELISM": "false"}
        self.process = subprocess.Popen(
            [sys.executable, str(ZYGOTE)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment
        )

    def start(self, arguments: list[str], log: Path) -> int:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(json.dumps({"arguments": arguments, "log": str(log)}) + "\n")
        self.process.stdin.flush()
        return int(self.process.stdout.readline())

    def wait(self) -> int:
        assert self.process.stdout is not None
        return os.waitstatus_to_exitcode(int(self.process.stdout.readline()))


@pytest.fixture(scope="module")
def runner(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Runner]:
    made = Runner(tmp_path_factory.mktemp("home"))
    yield made
    made.process.kill()
    made.process.communicate()


def tensor_bytes(store: Path) -> dict[str, bytes]:
    return {file.name: file.read_bytes() for file in sorted(store.glob("top/*.safetensors"))}


def logged(log: Path) -> list[tuple[str, int]]:
    found = re.findall(r"^(train|validation): slice (\d+) of", log.read_text(), re.MULTILINE)
    return [(phase, int(index)) for phase, index in found]


def kill_when(pid: int, store: Path, moment: float | None) -> None:
    """Kill the group after some seconds, or in the middle of a state write."""
    deadline = time.monotonic() + (moment if moment is not None else 30)
    partial = store / "partial"
    while time.monotonic() < deadline:
        if moment is None:
            try:
                if any(name.endswith(".partial") for name in os.listdir(partial)):
                    break
            except FileNotFoundError:
                continue
        else:
            time.sleep(0.002)
    with suppress(ProcessLookupError):  # it was quicker than its killer
        os.killpg(pid, signal.SIGKILL)


def test_killed_at_will_gives_the_same_bytes(runner, tiny, tmp_path):
    def command(store: Path) -> list[str]:
        return ["collect", *tiny.words("--store", store, "--batch-size", 4)]

    assert runner.start(command(tmp_path / "warm"), tmp_path / "warm.log")
    assert runner.wait() == 0, (tmp_path / "warm.log").read_text()
    clock = time.monotonic()
    runner.start(command(tmp_path / "undisturbed"), tmp_path / "log")
    assert runner.wait() == 0
    took = time.monotonic() - clock
    slices = Counter(phase for phase, _ in logged(tmp_path / "log"))
    assert slices["train"] >= 12
    assert slices["validation"] >= 4
    expected = tensor_bytes(tmp_path / "undisturbed")
    assert len(expected) == 4
    in_a_write = twice = 0
    for index in range(KILLS):
        store, log = tmp_path / f"store{index}", tmp_path / f"log{index}"
        # uniformly over the run, and every fourth inside a state write; again where the run was quicker than its killer
        moment = None if index % 4 == 1 else took * (index + 0.5) / KILLS
        for _ in range(10):
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
        runner.start(command(store), log)
        assert runner.wait() == 0, log.read_text()
        assert tensor_bytes(store) == expected
        repeated = [each for each, times in Counter(logged(log)).items() if times > 1]
        assert not repeated, f"finished slices were computed again: {repeated}"
        assert not Store.load(store).verify()
        assert not (store / "partial").exists()
    assert in_a_write >= IN_A_WRITE
    assert twice >= TWICE


def killed_run(runner: Runner, command: list[str], store: Path, log: Path, moment: float | None) -> tuple[bool, bool]:
    """Start a command and kill it; whether it was still running, and whether it was inside a state write."""
    pid = runner.start(command, log)
    kill_when(pid, store, moment)
    killed = runner.wait() == -signal.SIGKILL
    return killed, killed and any(file.name.endswith(".partial") for file in store.glob("partial/.*"))
