"""SIGKILL at any moment of merge, push, pull and measure: nothing half done looks whole, and again it ends the same.

Collections are killed in test_kill.py. The long version, collections too, is
``pytest -n0 -s -m slow tests/test_kill_others.py``.
"""

import json
import random
import shutil
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

import collapse
from collapse.store import Store
from collapse.testing import random_features

TRIES = 12
TIMES = ("started", "finished", "merged")


@dataclass(frozen=True)
class Killable:
    """A command line: its words, what it leaves behind (both of a folder), and how to begin anew."""

    words: Callable[[Path], list[object]]
    outcome: Callable[[Path], dict[str, object]]
    whole: Callable[[Path], bool]
    """Whether something is there that looks finished."""
    begin: Callable[[], None] = lambda: None


@pytest.fixture(scope="module")
def hub(hub_server):
    """Slow enough to be interrupted."""
    served = hub_server.Hub().start()
    served.pause = 0.01
    yield served
    served.shutdown()
    served.server_close()


@pytest.fixture(scope="module")
def runner(start_runner, hub, tmp_path_factory):
    return start_runner(tmp_path_factory.mktemp("home"), hub)


@pytest.fixture(scope="module")
def parts(tiny, tmp_path_factory):
    """Three parts of a model wide enough that its statistics are some megabytes."""
    from transformers import GPTNeoConfig, GPTNeoForCausalLM

    folder = tmp_path_factory.mktemp("parts")
    model = shutil.copytree(tiny.model, folder / "wide")
    torch.manual_seed(0)
    GPTNeoForCausalLM(GPTNeoConfig.from_pretrained(tiny.model, hidden_size=512)).save_pretrained(model)
    options = {**tiny.options(), "max_chunks": 24, "batch_size": 4}
    return [collapse.collect(model, store=folder / f"{k}", part=(k, 3), **options).path for k in (1, 2, 3)]


@pytest.fixture(scope="module")
def big(tmp_path_factory):
    """A store whose files are longer than what the client writes at a time, so that parts of them lie in its cache."""
    folder = tmp_path_factory.mktemp("big")
    save_file(random_features(1200, 1200, 2400), folder / "features.safetensors")
    store = collapse.collect(folder / "features.safetensors", store=folder / "store")
    assert sum(entry["size"] > 10_000_000 for entry in store.manifest["files"].values()) >= 2
    return store.path


@pytest.fixture
def killable(request, hub, tiny):
    """The command that a test is about."""
    at_store = {"outcome": files_of, "whole": lambda at: (at / "store" / "collapse.json").exists()}

    def texts(at):
        return tiny.words("--store", at / "store", "--batch-size", 4, "--max-chunks", 48)

    def pushed():
        there = hub.repos.get(("models", "owner/stats"))
        tree = there.commits[there.branches["main"]] if there else {}
        return {path: hub.blobs[sha] for path, sha in tree.items()}

    def begin():
        hub.repos.clear()
        hub.blobs.clear()

    if request.param == "collect":
        return Killable(lambda at: ["collect", *texts(at)], **at_store)
    if request.param == "merge":
        parts = request.getfixturevalue("parts")
        return Killable(lambda at: ["merge", *parts, "--store", at / "store"], **at_store)
    if request.param == "measure":
        return Killable(lambda at: ["measure", *texts(at), "--output", at / "table.json"], **at_store)
    big = request.getfixturevalue("big")
    if request.param == "push":
        return Killable(lambda _: ["push", big, "owner/stats"], lambda _: pushed(), lambda _: bool(pushed()), begin)
    hub.add("owner/big", {f"collapse/x/{file}": (big / file).read_bytes() for file in map(str, names(big))})
    return Killable(lambda at: ["pull", "owner/big", "--store", at / "store"], **at_store)


def names(folder: Path) -> list[Path]:
    return sorted(file.relative_to(folder) for file in folder.rglob("*") if file.is_file())


def files_of(at: Path) -> dict[str, object]:
    """Every file of a store and beside it; the manifest without its times and its checksum over them."""
    found: dict[str, object] = {str(name): (at / name).read_bytes() for name in names(at) if name.parts[0] != "home"}
    manifest = json.loads((at / "store" / "collapse.json").read_bytes())
    del manifest["checksum"]
    provenance = manifest["provenance"]
    for record in (provenance, provenance.get("validation", {}), *provenance.get("parts", [])):
        for each in TIMES:
            record.pop(each, None)
    return found | {"store/collapse.json": manifest}


def kill_and_repeat(runner, killable: Killable, folder: Path, moments: list[float]) -> str:
    """Kill a command at some shares of its running time, each time in a folder of its own, and run it again."""

    def options(at: Path) -> dict[str, dict[str, str]]:
        return {"environment": {"COLLAPSE_HOME": str(at / "home"), "HF_HUB_CACHE": str(at / "home" / "hub")}}

    took = expected = None
    for name in ("warm", "undisturbed"):
        at = folder / name
        at.mkdir()
        killable.begin()
        clock = time.monotonic()
        code, said = runner.run(killable.words(at), folder / f"{name}.log", **options(at))
        took = time.monotonic() - clock
        assert code == 0, said
        assert expected in (None, killable.outcome(at))
        expected = killable.outcome(at)
    whole = again = 0
    for index, moment in enumerate(moments):
        at, log = folder / f"{index}", folder / f"{index}.log"
        for tries in range(TRIES):  # aimed again where the command was quicker than its killer
            shutil.rmtree(at, ignore_errors=True)
            at.mkdir()
            killable.begin()
            if runner.kill_after(killable.words(at), log, took * moment * 0.8**tries, **options(at)):
                break
            again += 1
        else:
            pytest.fail(f"never killed at {moment:.2f} of {took:.2f} s: {log.read_text()}")
        if killable.whole(at):
            whole += 1
            if (at / "store").exists():
                assert not Store.load(at / "store").verify()
            else:
                assert killable.outcome(at) == expected
        code, said = runner.run(killable.words(at), log, **options(at))
        assert code == 0, said
        outcome = killable.outcome(at)
        assert set(outcome) == set(expected)
        assert outcome == expected, [name for name in expected if outcome[name] != expected[name]]
        shutil.rmtree(at)
    return f"killed {len(moments)} times within {took:.2f} s ({whole} found whole, {again} aimed again)"


@pytest.mark.parametrize("killable", ["merge", "push", "pull", "measure"], indirect=True)
def test_killed_and_run_again(runner, killable, tmp_path):
    kill_and_repeat(runner, killable, tmp_path, [0.3, 0.6, 0.9])


@pytest.mark.slow
@pytest.mark.parametrize("killable", ["collect", "merge", "push", "pull", "measure"], indirect=True)
def test_killed_at_many_moments(runner, killable, tmp_path, request):
    draw = random.Random(0)
    moments = sorted(draw.random() for _ in range(15))
    said = kill_and_repeat(runner, killable, tmp_path, moments)
    print(f"{request.node.callspec.id}: {said}")  # noqa: T201  # the run's result
