"""A program on a terminal sees a bar without asking for one; other programs see nothing."""

import io
import os
import re
import subprocess
import sys
from contextlib import suppress

import pytest
from rich.console import Console

from collapse.cli import progress_bar as lines_and_bar
from collapse.core.progress import progress_bar

COLLECT = """
import sys, collapse
store = collapse.collect(sys.argv[1], text=sys.argv[2], chunk_length=32, store=sys.argv[3])
print(store.state)
"""
MESSAGE = """
import time
from collapse.cli.progress_bar import progress
from collapse.cli.terminal import say_aside
with progress() as report:
    report("collecting", 1, 3)
    time.sleep(0.5)
    say_aside("a message")
    time.sleep(0.5)
"""


def on_a_terminal(program: str, *words: object) -> tuple[str, str]:
    """What a program writes to stdout, and to a terminal as its stderr."""
    ours, theirs = os.openpty()
    environment = os.environ | {"TERM": "xterm", "COLUMNS": "80", "LC_ALL": "C"}  # the locale of many a container
    command = [sys.executable, "-c", program, *map(str, words)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=theirs, text=True, env=environment)
    os.close(theirs)
    parts = []
    with suppress(OSError):  # Linux's way of saying that nobody writes any more
        while part := os.read(ours, 1 << 16):
            parts.append(part)
    os.close(ours)
    return process.communicate(timeout=120)[0], b"".join(parts).decode()


def test_a_bar_is_drawn_on_a_terminal_only(tiny, tmp_path, run_python):
    out, shown = on_a_terminal(COLLECT, tiny.model, tiny.text, tmp_path / "a")
    assert out == "trained\n"
    assert "collecting train" in shown
    silent = run_python(COLLECT, tiny.model, tiny.text, tmp_path / "b", timeout=120)
    assert (silent.returncode, silent.stdout) == (0, "trained\n")
    assert "collecting train" not in silent.stderr


@pytest.mark.parametrize("width", [80, 200])
def test_a_bar_fits_the_terminal_and_estimates_the_time_left(width):
    clock, written = [0.0], io.StringIO()
    out = Console(file=written, force_terminal=True, width=width, get_time=lambda: clock[0])
    what = "[red]a[/red]\x1b[31m"
    with progress_bar(out) as report:
        for done in (80, 81, 82, 83):  # resumed at 80: what was done before says nothing about the speed
            clock[0] += 60
            report(what, done, 100, "12,345/s [b]n[/b]\x9b2J")
    lines = re.split(r"[\r\n]", re.sub(r"\x1b\[[\d;?]*\w", "", written.getvalue()))
    assert max(map(len, lines)) <= width
    assert any("[red]a[/red]\\x1b[31m" in line and "17:00 left 12,345" in line for line in lines)
    assert "\x9b" not in written.getvalue()


def test_without_a_terminal_the_time_left_is_of_this_phase(capsys, monkeypatch):
    clock = [0.0]
    monkeypatch.setattr(lines_and_bar.time, "monotonic", lambda: clock[0])
    with lines_and_bar.progress() as report:
        for second, done in ((0, 0), (600, 50), (1200, 100), (10_000, 0), (10_060, 10)):
            clock[0] = second
            report("collecting train", done, 100)
    said = capsys.readouterr().err
    assert [line.partition("%)")[2] for line in said.splitlines()] == [", 0:10:00 left", "", "", ", 0:09:00 left"]
