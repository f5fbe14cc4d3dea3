"""Collection, validation and the pair sweep beside a process that keeps one core busy, and within half a CPU.

Each setting of the threads is a process of its own that ``collapse.core.threads`` prepares before torch is loaded, as
the command line does it; the processes take turns.
"""

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.control_group import group
from benchmarks.options import Options
from benchmarks.record import Goal, Record, Row, Table
from benchmarks.workers import THREADS, Worker

WORKS = ("collection", "validation", "pair sweep")
SNIPPET = """
import os, sys
threads, folder, quick, procs = sys.argv[2:]
if procs:
    with open(procs, "w") as file:
        file.write(str(os.getpid()))
if threads != "torch":
    from collapse.core.threads import prepare
    prepare(int(threads) if threads else None)
from benchmarks.neighbour import made
works.update(made(folder, bool(quick)))
"""
_DEFAULT, _ONE, _TORCH = "", "1", "torch"
"""The threads of collapse, one thread, and those of torch as if nothing had set them."""
_HALF = 0.5
_REFILLED = 0.2  # seconds after which what one process has taken of the group's CPU is not missing for the next
_CHUNKS = 8


def benchmark(options: Options) -> Record:
    """Measure both worlds."""
    record = Record("neighbour", "The same work alone, beside a busy process, and within half a CPU.", [])
    with tempfile.TemporaryDirectory() as folder:
        _write_texts(Path(folder), options.quick)
        _beside(record, folder, options)
        with group(_HALF) as half:
            if half is None:
                record.notes.append("no control group can be made here: half a CPU is not measured")
            else:
                _within(record, folder, half, options)
    if options.quick:
        record.goals.clear()  # they are for the whole sizes
    return record


def _beside(record: Record, folder: str, options: Options) -> None:
    settings = {"one thread": _ONE, "collapse's threads": _DEFAULT, "torch's own threads": _TORCH}
    with ExitStack() as stack:
        workers = _started(stack, settings, folder, options.quick)
        alone, beside = _empty(settings), _empty(settings)
        for _ in range(1 if options.quick else 3):
            _add_times(alone, workers)
            with busy():
                _add_times(beside, workers)
    for work in WORKS:
        one = median(alone[work]["one thread"])
        rows = [
            Row(f"{name}, {where}", median(times[work][name]), of_limit=one / median(times[work][name]))
            for where, times in (("alone", alone), ("beside", beside))
            for name in settings
        ]
        record.tables.append(
            Table(f"{work}, beside a process that keeps one core busy", rows, limit="one thread alone")
        )
        ours = median(beside[work]["collapse's threads"])
        record.goals.append(Goal(f"{work} beside a busy process over one thread alone", ours / one, 1.3))
        lost = median(alone[work]["collapse's threads"]) / median(alone[work]["torch's own threads"])
        record.notes.append(f"{work} alone, collapse's threads over torch's own: {lost:.2f} ×")


def _within(record: Record, folder: str, half: Path, options: Options) -> None:
    settings = {"one thread": _ONE, "collapse's threads": _DEFAULT}
    with ExitStack() as stack:
        workers = _started(stack, settings, folder, options.quick, procs=str(half / "cgroup.procs"))
        times = _empty(settings)
        for _ in range(1 if options.quick else 5):
            _add_times(times, workers, pause=_REFILLED)
    for work in WORKS:
        one, ours = (median(times[work][name]) for name in settings)
        rows = [Row("one thread", one, of_limit=1), Row("collapse's threads", ours, of_limit=one / ours)]
        record.tables.append(Table(f"{work}, within half a CPU", rows, limit="one thread there"))
        record.goals.append(Goal(f"{work} within half a CPU over one thread there", ours / one, 1.05))


def _started(
    stack: ExitStack, settings: Mapping[str, str], folder: str, quick: bool, procs: str = ""
) -> dict[str, Worker]:
    environment = {name: value for name, value in os.environ.items() if name not in THREADS}
    workers = {
        name: stack.enter_context(
            Worker(SNIPPET, threads, folder, "quick" if quick else "", procs, environment=environment)
        )
        for name, threads in settings.items()
    }
    for worker in workers.values():
        worker.wait()
    return workers


def _empty(settings: Mapping[str, str]) -> dict[str, dict[str, list[float]]]:
    return {work: {name: [] for name in settings} for work in WORKS}


def _add_times(times: dict[str, dict[str, list[float]]], workers: Mapping[str, Worker], *, pause: float = 0.0) -> None:
    for work in WORKS:
        for name, worker in workers.items():
            time.sleep(pause)
            times[work][name].append(worker.seconds(work))


@contextmanager
def busy() -> Iterator[None]:
    """Run a process that keeps one core busy, at the priority of this one."""
    process = subprocess.Popen([sys.executable, "-c", "while True: pass"])
    try:
        yield
    finally:
        process.kill()
        process.wait()


def _write_texts(folder: Path, quick: bool) -> None:
    from benchmarks.models import made_in

    depth, width, vocabulary, length = (2, 64, 4_000, 256) if quick else (4, 256, 50_257, 2_048)
    made_in(folder, depth=depth, width=width, vocabulary=vocabulary, chunk_length=length, chunks=_CHUNKS)


def made(folder: str, quick: bool) -> dict[str, Callable[[], Any]]:
    """Return the pieces of work, in a process whose threads are set."""
    from benchmarks import pairs, validate
    from benchmarks.collect import Work
    from collapse.numerics.decisions import Decider, ValidationTally
    from collapse.numerics.pairs import sweep

    work = Work(f"{folder}/model", f"{folder}/train.jsonl", 256 if quick else 2_048, 2, {})
    loaded = work.load()
    sizes = {"V": 4_000, "C": 2_000, "d": 64, "N": 512} if quick else {"V": 50_257, "C": 29_233, "d": 256, "N": 2_047}
    h, y, weight, s = validate.data(**sizes)
    decider = Decider(s, weight, None)
    means = pairs.statistics(1_000, 64) if quick else pairs.statistics(6_000, 768)
    three = pairs.by_metric(pairs.THREE)
    return {
        "collection": lambda: work.collect(loaded, _CHUNKS),
        "validation": lambda: ValidationTally(decider).add(h, y),
        "pair sweep": lambda: sweep(means, three),
    }
