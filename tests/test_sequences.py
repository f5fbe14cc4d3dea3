"""Some random sequences of user actions print no wrong number.

The long version, of 300 sequences, is ``python tests/sequences.py``.
"""

import json
import subprocess
import sys
from pathlib import Path


def sequences(*words):
    runner = Path(__file__).with_name("sequences.py")
    return subprocess.run([sys.executable, runner, *words], capture_output=True, text=True, timeout=300)


def test_numbers_are_of_what_was_named():
    done = sequences("--sequences", "2", "--length", "5")
    assert done.returncode == 0, done.stdout + done.stderr
    counts = json.loads(done.stdout.splitlines()[-1])
    assert counts["sequences"] == 2
    assert counts["measured"] >= 2
