"""Processes that repeat pieces of work on request, so that settings and versions of the code can take turns."""

import io
import os
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from benchmarks.machine import ROOT
from collapse.errors import CollapseError, UsageError

THREADS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OMP_WAIT_POLICY", "GOMP_SPINCOUNT")
"""What decides about the threads of torch in the environment."""

_PROGRAM = """
import sys, time
answers, sys.stdout = sys.stdout, sys.stderr
works = {}
exec(compile(sys.argv[1], "snippet", "exec"))
for work in works.values():
    work()
print("ready", file=answers, flush=True)
for line in sys.stdin:
    start = time.perf_counter()
    works[line.strip()]()
    print(time.perf_counter() - start, file=answers, flush=True)
"""


class Worker:
    """A process with pieces of work, each of which has run once.

    Args:
        snippet: Python code that fills the dictionary ``works`` with functions; ``sys.argv[2:]`` are the arguments.
        arguments: Its arguments.
        tree: The checkout whose code it imports.
        environment: The whole environment of the process; None for this one's.
    """

    def __init__(
        self, snippet: str, *arguments: str, tree: Path = ROOT, environment: Mapping[str, str] | None = None
    ) -> None:
        given = dict(os.environ if environment is None else environment)
        folders = [str(tree), str(tree / "plugins"), str(tree / "zoo"), given.get("PYTHONPATH", "")]
        given["PYTHONPATH"] = os.pathsep.join(filter(None, folders))
        self._errors = tempfile.TemporaryFile("w+")  # noqa: SIM115  # closed with the process
        self._process = subprocess.Popen(
            [sys.executable, "-c", _PROGRAM, snippet, *arguments],
            cwd=tree,
            env=given,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            text=True,
        )
        self._ready = False

    def wait(self) -> None:
        """Wait until every piece of work has run once.

        Raises:
            CollapseError: The process failed.
        """
        if not self._ready:
            self._answer()
            self._ready = True

    def seconds(self, work: str) -> float:
        """Let it do a piece of work, and return the time.

        Raises:
            CollapseError: The process failed.
        """
        self.wait()
        assert self._process.stdin is not None
        self._process.stdin.write(f"{work}\n")
        self._process.stdin.flush()
        return float(self._answer())

    def _answer(self) -> str:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            self._process.wait()
            self._errors.seek(0)
            said = self._errors.read().strip().splitlines() or [f"exit status {self._process.returncode}"]
            raise CollapseError(f"a process of the benchmark failed: {said[-1]}")
        return line

    def __enter__(self) -> "Worker":
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.communicate()
        self._errors.close()


@contextmanager
def tree_of(commit: str) -> Iterator[Path]:
    """Give the files of a commit in a temporary folder.

    Raises:
        UsageError: There is no such commit.
    """
    done = subprocess.run(["git", "archive", "--format=tar", commit], cwd=ROOT, capture_output=True, check=False)
    if done.returncode:
        raise UsageError(f"--against {commit}: not a commit of this checkout: {ROOT}")
    with tempfile.TemporaryDirectory() as folder:
        with tarfile.open(fileobj=io.BytesIO(done.stdout)) as files:
            files.extractall(folder, filter="data")
        yield Path(folder)
