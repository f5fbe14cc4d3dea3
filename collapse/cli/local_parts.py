"""Collect the parts of a store in parallel processes on this machine, which end when this process ends."""

import multiprocessing
import os
import sys
import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress
from multiprocessing.connection import wait
from pathlib import Path

from collapse.cli.progress_bar import progress
from collapse.errors import CollapseError
from collapse.stores.coverage import covered


def run_parts(
    commands: Mapping[int, Sequence[str]], store: Path, phase: str, parts: int, folder: Path
) -> dict[int, str]:
    """Run the command lines of parts in parallel and wait for them; return how each part ended.

    Args:
        commands: The command line of each part, as words, by the part's number. Each process gets an equal share of
            the threads and, if there are several GPUs, one GPU.
        store: Folder of the store.
        phase: The phase that the parts collect; its progress is shown.
        parts: Number of parts.
        folder: Folder to which the processes write their logs.

    Returns:
        For each part, its last error message or, if there is none, a text with its exit status. Parts that succeeded
        are included.
    """
    import torch

    folder.mkdir(parents=True, exist_ok=True)
    context = multiprocessing.get_context("spawn")  # a fork after the start of threads can hang
    threads, gpus = max(1, torch.get_num_threads() // len(commands)), torch.cuda.device_count()
    logs, processes = {}, {}
    for k, words in commands.items():
        at = words.index("collect")  # later options override earlier ones
        device = [f"--device=cuda:{k % gpus}"] if gpus > 1 else []
        words = [*words[:at], f"--threads={threads}", words[at], *device, *words[at + 1 :]]
        logs[k] = folder / f"part-{k}.log"
        processes[k] = context.Process(target=_run, args=(words, logs[k]))
    try:
        with progress() as report:
            for each in processes.values():
                each.start()
            while running := [each.sentinel for each in processes.values() if each.is_alive()]:
                wait(running, timeout=1)
                with suppress(CollapseError):  # shards may be removed now, after they are merged
                    rows = [(each.done, each.slices) for each in covered(store, parts) if each.phase == phase]
                    if slices := sum(of or 0 for _, of in rows):
                        report(f"collecting {phase}", sum(done for done, _ in rows), slices)
    finally:
        for each in processes.values():
            each.kill()
            each.join()
    return {k: _ending(logs[k], each.exitcode) for k, each in processes.items()}


def _run(words: Sequence[str], log: Path) -> None:
    """Run a command line in this new process, with its output in a file."""
    from collapse.cli import main

    threading.Thread(target=_end_with_parent, daemon=True).start()
    with log.open("w") as file:
        for stream in (sys.stdout, sys.stderr):
            os.dup2(file.fileno(), stream.fileno())
    main(list(words))


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    assert parent is not None  # run_parts() started this process
    parent.join()
    os._exit(1)


def _ending(log: Path, code: int | None) -> str:
    """Return the last error message in a process's log or, if there is none, a text with the exit status ``code``."""
    lines = log.read_text(errors="replace").splitlines() if log.exists() else []
    said = [line.removeprefix("collapse: ") for line in lines if line.startswith("collapse: ")]
    return said[-1] if said else f"it ended with exit status {code}; its log is {log}"
