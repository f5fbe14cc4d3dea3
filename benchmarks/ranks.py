"""Benchmark a collection by several ranks with one thread each, compared with one rank with as many threads.

Whole commands are timed: they load the model and the tokens of both passes from the cache, collect, and write a store.
"""

import os
import subprocess
import sys
import tempfile
from functools import partial
from pathlib import Path

import torch

from benchmarks.collect import STORY, make
from benchmarks.machine import ROOT
from benchmarks.record import Record
from benchmarks.timing import in_turn
from collapse_zoo.stories import write_stories


def benchmark(quick: bool) -> Record:
    """Time torchrun with one rank, and with one rank for each thread, in turn."""
    threads = torch.get_num_threads()
    length, chunks, held_out = (128, 16, 16) if quick else (512, 768, 192)
    record = Record(
        "ranks",
        "Both passes of a collection, run with torchrun, with loading and writing. 100 % is the run with one rank.",
    )
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made)
        make(folder, quick, length, chunks)
        write_stories(folder / "validation.jsonl", held_out * length // STORY + 1, seed=2)
        limits = ["--max-chunks", chunks, "--max-validation-chunks", held_out, "--chunk-length", length]
        texts = ["--text", folder / "train.jsonl", "--validation-text", folder / "validation.jsonl"]
        words = ["collect", folder / "model", *texts, *limits, "--store", folder / "store", "--recollect"]
        works = {
            _called(ranks, threads // ranks): partial(_run, ranks, threads // ranks, list(map(str, words)))
            for ranks in dict.fromkeys((1, threads))
        }
        times = in_turn(works, 1 if quick else 3)
    title = f"GPT-Neo {'2x64' if quick else '4x256'}, {chunks} + {held_out} chunks of {length:,}"
    record.add(title, times, amount=(chunks + held_out) * length, unit="tokens", limit=_called(1, threads))
    return record


def _called(ranks: int, threads: int) -> str:
    return f"{ranks} rank{'s' * (ranks > 1)} x {threads} thread{'s' * (threads > 1)}"


def _run(ranks: int, threads: int, words: list[str]) -> None:
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(ranks)]
    command = [*torchrun, "-m", "collapse", "--threads", str(threads), *words]
    subprocess.run(command, cwd=ROOT, env=os.environ, capture_output=True, check=True)
