"""Two hundred altered stores are refused or read safely, and a check taken out is missed.

The long version is ``python tests/fuzz_stores.py --examples 50000``; ``pytest -m slow tests/test_fuzz.py`` takes three
more checks out.
"""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest


def fuzz(*words):
    runner = Path(__file__).with_name("fuzz_stores.py")
    done = subprocess.run([sys.executable, runner, *words], capture_output=True, text=True, timeout=300)
    assert done.stdout, done.stderr
    return done, json.loads(done.stdout)


def test_altered_stores_are_refused_or_read_safely():
    done, counts = fuzz("--examples", "200")
    assert done.returncode == 0, done.stderr
    assert counts["inputs"] == 200
    assert counts["mutations that reached the tensor reader"] >= 100
    assert counts["refused"] >= 20
    assert counts["shown"] >= 2


@pytest.mark.parametrize(
    ("check", "kind", "found"),
    [
        ("hash", "unsealed", "an altered store was taken"),
        pytest.param("bound", "length", "MemoryError|OverflowError", marks=pytest.mark.slow),
        pytest.param("path", "path", "opened outside the store", marks=pytest.mark.slow),
        pytest.param("invariants", "words", "an absurd number|Error", marks=pytest.mark.slow),
    ],
)
def test_a_check_taken_out_is_missed(check, kind, found):
    done, counts = fuzz("--examples", "300", "--kind", kind, "--without", check)
    assert done.returncode == 1
    assert re.search(found, counts["found"])
