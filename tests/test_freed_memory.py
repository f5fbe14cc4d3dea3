"""Freed memory is kept for the next batch, unless the user has chosen otherwise."""

import subprocess
import sys
from ctypes.util import find_library

import pytest

HOLDS = """
import sys
from pathlib import Path
from collapse.numerics.freed_memory import keep_freed_memory

def resident():
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096

if "keep" in sys.argv:
    keep_freed_memory()
before = resident()
blocks = [b"x" * 25_000_000 for _ in range(2)]
held = resident() - before
del blocks
print(held, resident() - before)
"""


def held(*arguments, **environment):
    """How many MB of 50 the process holds before and after they are freed."""
    command = [sys.executable, "-c", HOLDS, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=True, env=environment)
    return [int(each) / 1e6 for each in done.stdout.split()]


@pytest.mark.skipif(not sys.platform.startswith("linux") or find_library("c") is None, reason="GNU's allocator only")
def test_memory_that_was_freed_is_kept_unless_the_user_has_set_otherwise():
    before, after = held("keep")
    assert before > 45
    assert after > 45
    assert held()[1] < 30
    assert held("keep", MALLOC_MMAP_THRESHOLD_="131072")[1] < 5
