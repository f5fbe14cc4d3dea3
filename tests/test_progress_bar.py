"""A program on a terminal sees a bar without asking for one; other programs see nothing."""

import io
import os
import re
import subprocess
import sys

import pytest
from rich.console import Console

from collapse.core.progress import progress_bar

PROGRAM = """
import sys, collapse
store = collapse.collect(sys.argv[1], text=sys.argv[2], chunk_length=32, store=sys.argv[3])
print(store.state)
"""


def read_all(terminal: int) -> str:
    """What was written to a terminal whose other end is closed."""
    parts = []
    while True:
        try:
            part = os.read(terminal, 1 << 16)
        except OSError:  # Linux's way of saying that nobody writes any more
            break
        if not part:
            break
        parts.append(part)
    return b"".join(parts).decode()


@pytest.mark.skipif(sys.platform == "win32", reason="needs pseudo-terminals")
def test_a_bar_is_drawn_on_a_terminal_only(tiny, tmp_path, run_python):
    words = [str(tiny.model), str(tiny.text)]
    environment = os.environ | {"TERM": "xterm", "COLUMNS": "80"}
    ours, theirs = os.openpty()
    process = subprocess.Popen(
        [sys.executable, "-c", PROGRAM, *words, str(tmp_path / "a")],
        stdout=subprocess.PIPE,
        stderr=theirs,
        text=True,
        env=environment,
    )
    os.close(theirs)
    shown = read_all(ours)
    assert process.communicate(timeout=120)[0] == "trained\n"
    assert "collecting train" in shown
    silent = run_python(PROGRAM, *words, tmp_path / "b", timeout=120)
    assert (silent.returncode, silent.stdout) == (0, "trained\n")
    assert "collecting train" not in silent.stderr


def test_slow_phases_have_an_estimate_and_what_was_done_before_is_no_speed():
    clock, written = [0.0], io.StringIO()
    out = Console(file=written, force_terminal=True, width=80, get_time=lambda: clock[0])
    with progress_bar(out) as report:
        for done in (80, 81, 82, 83):  # resumed at 80
            clock[0] += 60
            report("collecting", done, 100)
    shown = re.sub(r"\x1b\[[\d;?]*\w", "", written.getvalue())
    assert "17:00 left 1.0/min" in shown


SCRIPT = """
import time
from collapse.cli.progress_bar import progress
from collapse.cli.terminal import say_aside
with progress() as report:
    report("collecting", 1, 3)
    time.sleep(0.5)
    say_aside("a message")
    time.sleep(0.5)
"""


@pytest.mark.skipif(sys.platform == "win32", reason="needs pseudo-terminals")
def test_a_message_is_written_above_the_bar():
    ours, theirs = os.openpty()
    environment = os.environ | {"TERM": "xterm", "COLUMNS": "80", "LC_ALL": "C"}  # the locale of many a container
    process = subprocess.Popen([sys.executable, "-c", SCRIPT], stderr=theirs, env=environment)
    os.close(theirs)
    before, message, after = read_all(ours).partition("a message")
    assert process.wait(timeout=60) == 0
    assert "collecting" in before
    assert message
    assert before.endswith("\x1b[2K")  # the bar's line was erased first
    assert "collecting" in after
