"""Seeded schedules of faults while a store is pulled or pushed: it ends right, or says what is wrong, and where.

The tests run the first of each; the long version is ``pytest -n0 -s -m slow tests/test_hub_faults.py``.
"""

import json
import os
import random
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

import collapse

PULL_TRANSIENT, PULL_LASTING = ("503", "429", "cut", "reset"), ("truncated", "altered", "revoked")
PUSH_TRANSIENT, PUSH_LASTING = ("503", "429", "cut", "reset"), ("lost", "full", "revoked")


@pytest.fixture(scope="module")
def big(tmp_path_factory):
    """A store of three files of more than 5 MB."""
    folder = tmp_path_factory.mktemp("big")
    draw = torch.Generator().manual_seed(0)
    classes, dim = 900, 850
    labels = torch.arange(2 * classes) % classes
    features = {
        "train_features": torch.randn(len(labels), dim, generator=draw),
        "train_labels": labels,
        "classifier": torch.randn(classes, dim, generator=draw, dtype=torch.float64),
        "validation_features": torch.randn(40, dim, generator=draw),
        "validation_labels": labels[:40].clone(),
    }
    save_file(features, folder / "features.safetensors")
    store = collapse.collect(folder / "features.safetensors", store=folder / "store")
    assert sum(entry["size"] > 5_000_000 for entry in store.manifest["files"].values()) >= 3
    return store


class Schedule:
    """Faults of one seed, each at the first request that it suits from some request on.

    Odd seeds have faults that pass only. A lasting one stays: with its file, or with the login.
    """

    def __init__(self, seed, transient, lasting):
        draw = random.Random(seed)
        kinds = transient if seed % 2 else transient + lasting
        self.transient_kinds = transient
        self.pending = sorted((draw.randint(1, 6), draw.choice(kinds)) for _ in range(draw.randint(1, 3)))
        self.lasting, self.requests, self.fired = [], 0, []

    def __call__(self, ask, method, path):
        self.requests += 1
        for kind, where in self.lasting:
            if kind == "revoked" or (where == path and self.suits(kind, method, path)):
                return self.do(kind, ask, path)
        for each in self.pending:
            at, kind = each
            if at <= self.requests and self.suits(kind, method, path):
                self.pending.remove(each)
                if kind not in self.transient_kinds:
                    self.lasting.append((kind, path))
                return self.do(kind, ask, path)
        return False

    @staticmethod
    def suits(kind, method, path):
        if kind in ("truncated", "altered"):
            return method == "GET" and "/resolve/" in path
        if kind == "cut":
            return (method == "GET" and "/resolve/" in path) or (method == "PUT" and "/lfs/" in path)
        if kind == "full":
            return method == "PUT"
        return "/commit/" in path if kind == "lost" else True

    def do(self, kind, ask, path):
        self.fired.append(kind)
        if kind in ("503", "429"):
            ask.send(b"busy", int(kind), {"Retry-After": "0"})
        elif kind == "full":
            ask.send(b"no space left", 507)
        elif kind == "revoked":
            ask.fail(401, "RepoNotFound", "Invalid credentials")
        elif kind == "reset":
            ask.close_connection = True
        elif kind == "lost":  # it is done, and nobody hears of it
            ask.wfile = open(os.devnull, "wb")  # noqa: SIM115  # closed with the request
            ask.close_connection = True
            return False
        elif "/lfs/" in path:
            ask.rfile.read(int(ask.headers["Content-Length"]) // 3)
            ask.close_connection = True
        else:
            self.answer_wrongly(kind, ask, path)
        return True

    @staticmethod
    def answer_wrongly(kind, ask, path):
        repo = ask.server.repos["models", "owner/big"]
        sha = repo.branches["main"]
        blob = repo.commits[sha][path.split("/resolve/")[1].split("/", 1)[1]]
        content = ask.server.blobs[blob]
        headers = {"X-Repo-Commit": sha, "ETag": f'"{blob}"'}
        if kind == "altered":
            content = content[:-9] + bytes([content[-9] ^ 16]) + content[-8:]
        if kind == "truncated":
            content = content[: len(content) // 2]
        if kind != "cut":
            ask.send(content, 200, headers)
            return
        ask.send_response(200)
        for key, value in (headers | {"Content-Length": str(len(content))}).items():
            ask.send_header(key, value)
        ask.end_headers()
        ask.wfile.write(content[: len(content) // 3])
        ask.close_connection = True


class Runner:
    """A user's process, and how its pulls and pushes ended: (seed, outcome, what was said, schedule)."""

    def __init__(self, hub, big, folder, *words):
        self.hub, self.big, self.folder = hub, big, folder
        self.files = {file: (big.path / file).read_bytes() for file in [*big.manifest["files"], "collapse.json"]}
        self.process = subprocess.Popen(
            [sys.executable, Path(__file__).with_name("fault_runner.py"), *words],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            env=hub.environment(folder / "home"),
        )

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.communicate()

    def ask(self, **job):
        self.process.stdin.write(json.dumps(job) + "\n")
        self.process.stdin.flush()
        return json.loads(self.process.stdout.readline())

    def pull(self, seeds):
        self.hub.add("owner/big", {f"collapse/x/{file}": content for file, content in self.files.items()})
        for seed in seeds:
            folder = self.folder / f"pulled-{seed}"
            self.hub.fault = schedule = Schedule(seed, PULL_TRANSIENT, PULL_LASTING)
            outcome = self.ask(pull="owner/big", store=str(folder), cache=str(self.folder / f"cache-{seed}"))
            found = None
            if (folder / "collapse.json").is_file():
                found = {file: (folder / file).read_bytes() for file in self.files if (folder / file).is_file()}
            yield seed, self.judge(outcome, found), outcome.get("said", ""), schedule

    def push(self, seeds):
        for seed in seeds:
            self.hub.blobs.clear()
            repo = f"owner/pushed-{seed}"
            self.hub.fault = schedule = Schedule(seed, PUSH_TRANSIENT, PUSH_LASTING)
            outcome = self.ask(push=repo, store=str(self.big.path), cache=str(self.folder / "cache"))
            self.hub.fault = None
            there = self.hub.repos.get(("models", repo))
            tree = there.commits[there.branches["main"]] if there else {}
            assert len(there.commits if there else {}) <= 2, "one commit a push"
            found = {path.split("/", 2)[-1]: self.hub.blobs[sha] for path, sha in tree.items() if "/" in path}
            yield seed, self.judge(outcome, found or None), outcome.get("said", ""), schedule

    def judge(self, outcome, found):
        if found is None:
            return "wrong" if outcome["ended"] == "right" else outcome["ended"]
        return outcome["ended"] if found == self.files else "wrong"


def check(ended, repo):
    ended = list(ended)
    counts = Counter(outcome for _, outcome, _, _ in ended)
    faults = Counter(kind for *_, schedule in ended for kind in schedule.fired)
    print(f"{len(ended)} schedules on {repo}: {dict(counts)}; faults: {dict(faults)}")  # noqa: T201  # the run's result
    for seed, outcome, said, schedule in ended:
        assert schedule.fired, seed
        assert outcome in ("right", "told"), (seed, outcome, said, schedule.fired)
        if not schedule.lasting:
            assert outcome == "right", (seed, said, schedule.fired)
        if outcome == "told":
            assert repo in said, said
    return counts


def test_schedules_of_faults_end_right_or_are_told(hub, big, tmp_path):
    with Runner(hub, big, tmp_path) as runner:
        assert check(runner.pull(range(7)), "owner/big")["right"] >= 3
        assert check(runner.push(range(5)), "owner/pushed-")["right"] >= 2


def test_without_the_hash_check_they_do_not(hub, big, tmp_path):
    with Runner(hub, big, tmp_path, "--without-check") as runner:
        assert any(outcome == "wrong" for _, outcome, _, _ in runner.pull(range(0, 60, 2)))


@pytest.mark.slow
def test_two_hundred_schedules(hub, big, tmp_path):
    with Runner(hub, big, tmp_path) as runner:
        assert check(runner.pull(range(200)), "owner/big")["told"] >= 10
        assert check(runner.push(range(100)), "owner/pushed-")["told"] >= 10
