"""Run collect, merge, push, pull and measure as command lines: start quickly, kill, and compare their outcomes."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from copy import copy
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file

import collapse
from collapse.testing import random_features

TIMES = ("started", "finished", "merged", "seconds", "slices_of_earlier_runs")


class Runner:
    """Starts command lines, each in its own process group, forked from a warm process (see zygote.py)."""

    def __init__(self, environment: dict[str, str], *, imports: tuple[str, ...] = ()) -> None:
        self.process = subprocess.Popen(
            [sys.executable, str(Path(__file__).with_name("zygote.py")), *imports],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=environment | {"TOKENIZERS_PARALLELISM": "false"},
        )
        self.ended: dict[int, int] = {}
        self.environment: dict[str, str] = {}

    def at(self, home: Path) -> "Runner":
        """Return the same warm process, whose command lines have their caches in a folder."""
        other = copy(self)
        other.environment = {"COLLAPSE_HOME": str(home)}
        return other

    def start(
        self,
        words: list[Any],
        log: Path,
        *,
        program: str | None = None,
        out: Path | None = None,
        environment: dict[str, str] | None = None,
        folder: Path | None = None,
        file_limit: int | None = None,
    ) -> int:
        """Start a command line, and return its process id.

        Args:
            words: Its words.
            program: Python code to run instead, with the words as its arguments.
            log: The file for stderr, and for stdout unless ``out`` is given.
            out: The file for stdout.
            environment: Variables in addition to those of the warm process.
            folder: The working directory.
            file_limit: The maximum size of a file.
        """
        pid = self._ask(
            start=[str(word) for word in words],
            program=program,
            out=str(out or log),
            err=str(log),
            environment=self.environment | (environment or {}),
            folder=str(folder) if folder else None,
            file_limit=file_limit,
        )
        self.ended.pop(pid, None)  # the system gives the number of one that ended to another
        return pid

    def wait(self, pid: int) -> int:
        """Wait for a command line to end, and return its exit code."""
        if pid not in self.ended:
            self.ended[pid] = os.waitstatus_to_exitcode(self._ask(wait=pid))
        return self.ended[pid]

    def run(self, words: list[Any], log: Path, **options: Any) -> tuple[int, str]:
        """Run a command line to its end; return the exit code and the output."""
        before = log.stat().st_size if log.exists() else 0
        code = self.wait(self.start(words, log, **options))
        return code, log.read_bytes()[before:].decode()

    def kill(self, pid: int) -> bool:
        """Kill a command line's process group; return whether it was still running."""
        with suppress(ProcessLookupError):  # it leads no group in its first instant
            if pid not in self.ended:
                os.killpg(pid, signal.SIGKILL)
        return self.wait(pid) == -signal.SIGKILL

    def kill_after(self, words: list[Any], log: Path, seconds: float, **options: Any) -> bool:
        """Start a command line and kill it after some time; return whether it was still running."""
        pid = self.start(words, log, **options)
        time.sleep(seconds)
        return self.kill(pid)

    def _ask(self, **request: Any) -> int:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(json.dumps(request) + "\n")
        self.process.stdin.flush()
        return int(self.process.stdout.readline())

    def close(self) -> None:
        """End the warm process."""
        self.process.kill()
        self.process.communicate()


@dataclass(frozen=True)
class Command:
    """A command line that works in a folder.

    Attributes:
        words: Its words.
        outcome: Returns its results by name; two runs with the same outcome return equal results.
        looks_whole: Whether its results look finished.
    """

    words: Callable[[Path], list[Any]]
    outcome: Callable[[Path], dict[str, Any]]
    looks_whole: Callable[[Path], bool]


class Commands:
    """The five commands by name, on a small model and on stores of some megabytes; and the Hub that they use."""

    def __init__(self, hub: Any, tiny: Any, folder: Path) -> None:
        self.hub, self.tiny, self.folder = hub, tiny, folder

    def __getitem__(self, name: str) -> Command:
        if name == "push":
            pushed = partial(self.hub.files, "owner/new")
            return Command(lambda _: ["push", self.big, "owner/new"], lambda _: pushed(), lambda _: bool(pushed()))
        if name == "pull" and ("models", "owner/big") not in self.hub.repos:
            files = {f"collapse/x/{name}": (self.big / name).read_bytes() for name in _files(self.big)}
            self.hub.add("owner/big", files)
        words = {
            "collect": lambda at: ["collect", *self._model(at)],
            "merge": lambda at: ["merge", *self.parts, "--store", at / "store"],
            "pull": lambda at: ["pull", "owner/big", "--store", at / "store"],
            "measure": lambda at: ["measure", *self._model(at), "--output", at / "table.json"],
        }
        return Command(words[name], _left, lambda at: (at / "store" / "collapse.json").exists())

    def begin(self) -> None:
        """Remove what was pushed."""
        with self.hub.lock:
            self.hub.repos.pop(("models", "owner/new"), None)
            self.hub.uploaded.clear()
            kept = [
                sha for repo in self.hub.repos.values() for files in repo.commits.values() for sha in files.values()
            ]
            self.hub.blobs = {sha: self.hub.blobs[sha] for sha in kept}

    def _model(self, at: Path) -> list[str]:
        return self.tiny.words("--store", at / "store", "--batch-size", 4, "--max-chunks", 48)

    @cached_property
    def parts(self) -> list[Path]:
        """Three parts of a model that is wide enough for statistics of some megabytes."""
        from transformers import GPTNeoConfig, GPTNeoForCausalLM

        model = Path(shutil.copytree(self.tiny.model, self.folder / "wide"))
        torch.manual_seed(0)
        GPTNeoForCausalLM(GPTNeoConfig.from_pretrained(self.tiny.model, hidden_size=512)).save_pretrained(model)
        options = {**self.tiny.options(), "max_chunks": 24, "batch_size": 4}
        folders = [self.folder / f"part{k}" for k in (1, 2, 3)]
        for k, folder in enumerate(folders, 1):
            collapse.collect(model, store=folder, part=(k, 3), **options)
        return folders

    @cached_property
    def big(self) -> Path:
        """A store with files that the client writes in pieces, so that a kill leaves incomplete files in its cache."""
        save_file(random_features(1200, 1200, 2400), self.folder / "features.safetensors")
        store = collapse.collect(self.folder / "features.safetensors", store=self.folder / "big")
        assert sum(entry["size"] > 10_000_000 for entry in store.manifest["files"].values()) >= 2
        return self.folder / "big"


def _files(folder: Path) -> list[Path]:
    return sorted(file.relative_to(folder) for file in folder.rglob("*") if file.is_file())


def _left(at: Path) -> dict[str, Any]:
    """All files in a store's folder; the manifest without times, and without the checksum that includes them."""
    found: dict[str, Any] = {str(name): (at / name).read_bytes() for name in _files(at) if name.parts[0] != "home"}
    if "store/collapse.json" not in found:
        return found
    manifest = json.loads(found["store/collapse.json"])
    del manifest["checksum"]
    provenance = manifest["provenance"]
    for record in (provenance, provenance.get("validation", {}), *provenance.get("parts", [])):
        for each in TIMES:
            record.pop(each, None)
    return found | {"store/collapse.json": manifest}


def homes(at: Path) -> dict[str, str]:
    """Variables for empty caches inside a folder."""
    return {"COLLAPSE_HOME": str(at / "home"), "HF_HUB_CACHE": str(at / "home" / "hub")}
