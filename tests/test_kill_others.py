"""SIGKILL at any moment of merge, push, pull and measure: partial results never look complete, and a rerun succeeds.

Collections are killed in test_kill.py. The long version, collections too, is
``pytest -n0 -s -m slow tests/test_kill_others.py``.
"""

import random
import re
import shutil
import time

import pytest
from commands import homes

from collapse.stores.store import Store

TRIES = 12
NAMES = ("collect", "merge", "push", "pull", "measure")


@pytest.fixture
def kill_and_repeat(hub_runner, commands, tmp_path):
    """Kill a command at some fractions of its running time, each time in a new folder, and run it again."""

    def run(name, at):
        return hub_runner.run(commands[name].words(at), tmp_path / "log", environment=homes(at))

    def undisturbed(name, at):
        at.mkdir()
        commands.begin()
        clock = time.monotonic()
        code, said = run(name, at)
        assert code == 0, said
        return commands[name].outcome(at), time.monotonic() - clock

    def killed(name, at, moment):
        """How often the command ended before the kill, and was repeated."""
        for tries in range(TRIES):
            shutil.rmtree(at, ignore_errors=True)
            at.mkdir()
            commands.begin()
            environment = homes(at)
            if hub_runner.kill_after(
                commands[name].words(at), tmp_path / "log", moment * 0.8**tries, environment=environment
            ):
                return tries
        return pytest.fail(f"{name} was never killed in {moment:.2f} s")

    def kill_and_repeat(name, moments):
        command = commands[name]
        undisturbed(name, tmp_path / "warm")
        expected, took = undisturbed(name, tmp_path / "undisturbed")
        whole = again = 0
        for index, moment in enumerate(moments):
            at = tmp_path / f"{index}"
            again += killed(name, at, took * moment)
            done = command.looks_whole(at)
            if done:
                whole += 1
                if (at / "store").exists():
                    assert not Store.load(at / "store").verify()
                else:
                    assert command.outcome(at) == expected
            code, said = run(name, at)
            assert code == 0, said
            # a file of --output is written under a random name, which a kill may leave
            outcome = {
                name: each for name, each in command.outcome(at).items() if not re.fullmatch(r"\.\w+\.partial", name)
            }
            if done:  # killed between its last file and the release of its lock, which the next writer takes over
                outcome.pop("store/.lock", None)
            assert set(outcome) == set(expected)
            assert not [file for file in expected if outcome[file] != expected[file]]
            shutil.rmtree(at)
        print(f"{name} killed {len(moments)} times within {took:.2f} s ({whole} were done, {again} aimed at again)")  # noqa: T201

    return kill_and_repeat


@pytest.mark.parametrize("name", NAMES[1:])
def test_killed_and_run_again(kill_and_repeat, name):
    kill_and_repeat(name, [0.3, 0.6, 0.9])


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_killed_at_many_moments(kill_and_repeat, name):
    draw = random.Random(0)
    kill_and_repeat(name, sorted(draw.random() for _ in range(15)))
