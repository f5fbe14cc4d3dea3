"""Freed memory: the command line keeps it for the next batch, unless the user has chosen otherwise."""

import subprocess
import sys

import pytest

HOLDS = """
import sys
from pathlib import Path
from collapse.freed_memory import keep_freed_memory

def resident():
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096

kept = "keep" in sys.argv and keep_freed_memory()
before = resident()
blocks = [b"x" * 20_000_000 for _ in range(8)]
held = resident() - before
del blocks
print(kept, held, resident() - before)
"""

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="a setting of GNU's allocator")


def held(*arguments, **environment):
    """Whether memory is kept, and how much of 160 MB the process holds before and after they are freed."""
    command = [sys.executable, "-c", HOLDS, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=True, env=environment)
    kept, before, after = done.stdout.split()
    return kept == "True", int(before) / 1e6, int(after) / 1e6


def test_memory_that_was_freed_is_kept():
    kept, before, after = held("keep")
    if not kept:
        pytest.skip("another allocator than GNU's")
    assert before > 150
    assert after > 150
    assert held()[2] < 100


@pytest.mark.parametrize("name", ["MALLOC_TRIM_THRESHOLD_", "MALLOC_MMAP_THRESHOLD_", "GLIBC_TUNABLES"])
def test_what_the_user_has_set_stays(name):
    value = "glibc.malloc.check=0" if name == "GLIBC_TUNABLES" else "131072"
    kept, _, after = held("keep", **{name: value})
    assert not kept
    assert after < 100
